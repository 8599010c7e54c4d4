"""A source is copied, sealed, verified and erased with its conversation, whether its events are
made or not.
"""

import json
from contextlib import suppress
from itertools import count
from unittest.mock import Mock

import pytest

from foldlog import Histories
from foldlog.eventstore import (
    ConversationErased,
    EventsNotMade,
    KeyUnavailable,
    Message,
    Store,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN
from foldlog.eventstore.sources import moving
from foldlog.eventstore.sources.reading import about
from foldlog.eventstore.sources.tables import Sources, SourcesToWrite
from foldlog.formats import SourceRefused
from tests.between import Killed, before_next_call, kill_after
from tests.foldlog.imports.imports import (
    KEYS,
    bytes_of,
    copy_all,
    events_of,
    figures_of,
    imported,
    imported_lines,
    meanwhile,
    new_store,
    open_with_imports,
    redact_event,
    refused,
    set_sizes,
    source_of,
)
from tests.foldlog.records import CORPUS
from tests.privacy import erased
from tests.sound import assert_sound, problems
from tests.stored_rows import execute


def unused(store, conversation):
    """Leave the records without events."""


def used(store, conversation):
    store.version(conversation)


USES = pytest.mark.parametrize("use", [unused, used])


def test_full_disk_leaves_the_events_made_before(monkeypatch, store, name):
    set_sizes(monkeypatch, events=4)
    records = source_of(store, name).records
    extend = store.extend
    written = []

    def full(conversation, events, **how):
        if len(written) == 2:
            raise StoreUnavailable(f"the disk is full{NOTHING_WRITTEN}", kind="full")
        written.append(extend(conversation, events, **how))
        return written[-1]

    monkeypatch.setattr(store, "extend", full)
    with pytest.raises(StoreUnavailable) as raised:
        store.version(name)
    records_made = source_of(store, name).made
    assert 0 < records_made < records
    stay = (
        f"the events of {records_made} of {records} records are stored, and the next"
        " use of the conversation adds the rest"
    )
    assert str(raised.value) == f"the disk is full; {stay}"
    with pytest.raises(StoreUnavailable, match="nothing was written"):
        store.version(name)
    monkeypatch.undo()
    used(store, name)
    assert source_of(store, name).made == records


def copied(store, target, *conversations, jobs=4):
    """Copy the only conversation of a store, or the named one."""
    (moved,) = copy_store(store, target, *conversations, jobs=jobs)
    assert moved.problem is None
    return moved


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes((CORPUS / "claude-code.jsonl").read_bytes())
    return path


@pytest.fixture
def lines(path):
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def name(store, path):
    """The name of a session that was imported."""
    return imported(store, path).conversation


def test_store_without_formats_refuses_imports(tmp_path, path):
    url = f"sqlite:///{tmp_path}/a.db"
    with open_with_imports(url) as store:
        outcome = imported(store, path)
    with open_store(url) as store, pytest.raises(EventsNotMade, match=r"foldlog\.open"):
        store.version(outcome.conversation)


@USES
def test_a_copy_has_the_source(use, store, target, path, name):
    use(store, name)
    for _ in range(2):
        copied(store, target)
    assert source_of(target, name).head == source_of(store, name).head
    for read in (bytes_of, figures_of, events_of):
        assert read(target, name) == read(store, name)
    assert imported(target, path).is_unchanged  # the copy knows the file too
    assert_sound(target)
    assert [*compare_stores(store, target)][1:] == []


@USES
def test_unchanged_copy_reads_no_index(use, store, target, name, monkeypatch):
    use(store, name)
    copied(store, target)
    monkeypatch.setattr(Sources, "indexes", Mock(side_effect=AssertionError("it was read")))
    assert copied(store, target).added == 0


def test_copy_counts_records_without_events(store, target, path, lines):
    def counts(store, target):
        moved = copied(store, target)
        return moved.added, moved.records

    outcome = imported_lines(store, path, lines[:-2])
    assert counts(store, target) == (0, outcome.records)
    assert counts(store, target) == (0, 0)
    assert imported_lines(store, path, lines).added == 2
    assert counts(store, target) == (0, 2)
    used(store, outcome.conversation)
    assert counts(store, target) == (len(events_of(store, outcome.conversation)), 0)


@USES
@pytest.mark.parametrize("grows", [False, True])
def test_next_copy_restores_no_redacted_event(use, grows, store, target, path, lines):
    """The events that the copy made are not made again either."""
    name = imported_lines(store, path, lines[:12]).conversation
    use(store, name)
    copied(store, target)
    redacted = next(event for event in events_of(target, name) if event.id >= 2)
    redact_event(target, name, redacted.id)
    before = events_of(target, name)
    records = bytes_of(target, name)
    assert records != bytes_of(store, name)
    if grows:
        imported_lines(store, path, lines)
    if grows and use is used:
        # Both stores have made different events after the copy.
        assert "differs from event 12 on" in str(copy_all(store, target))
        assert (events_of(target, name), bytes_of(target, name)) == (before, records)
        return
    copied(store, target)
    assert events_of(target, name)[: len(before)] == before
    assert bytes_of(target, name)[: len(records)] == records
    assert len(records) < len(bytes_of(target, name)) or not grows
    calls = figures_of(target, name)["calls"]
    assert calls == figures_of(store, name)["calls"]
    assert_sound(target)


def test_shorter_source_keeps_records_of_the_target(store, target, path, lines):
    name = imported_lines(store, path, lines[:12]).conversation
    copied(store, target)
    imported_lines(target, path, lines)
    copied(store, target)
    assert bytes_of(target, name) == path.read_bytes()
    assert_sound(target)


def test_copy_replaces_no_records_imported_meanwhile(monkeypatch, store, target, path, name, lines):
    path.write_bytes(b"".join(lines[:5]).replace(b" ", b"  "))
    before_next_call(
        monkeypatch, target.database.recorder, "transact", lambda: imported(target, path)
    )
    assert copy_all(store, target)[name] is not None
    assert bytes_of(target, name) == path.read_bytes()
    assert_sound(target)


@pytest.mark.parametrize("is_same", [True, False])
def test_copy_begins_again_after_an_import_into_the_target(
    monkeypatch, store, target, path, name, lines, is_same
):
    if not is_same:
        path.write_bytes(b"".join(lines[:5]).replace(b" ", b"  "))
    before_next_call(monkeypatch, moving, "blocks_of", lambda: imported(target, path))
    problem = copy_all(store, target)[name]
    if is_same:
        assert problem is None
    else:
        assert "the other history differs from event 0 on" in problem
    assert bytes_of(target, name) == path.read_bytes()
    assert_sound(target)


def test_copied_fork_is_searched_from_its_start(store, target, path, name, lines):
    fork = imported_lines(store, path, [*lines[:8], *lines[9:]]).conversation
    assert copy_all(store, target) == {name: None, fork: None}
    event = next(event for event in events_of(target, fork) if isinstance(event, Message))
    hits = Histories(target).search(str(event.content).split()[0])
    assert (fork, event.id) in {hit[:2] for hit in hits}


def test_fork_copied_alone_gets_later_records(path, lines):
    with new_store() as first, new_store() as store, new_store() as target:
        imported(first, path)
        fork = imported_lines(first, path, [*lines[:8], *lines[9:-3]]).conversation
        copied(first, store, fork)
        copy_all(first, target, jobs=1)
        imported_lines(store, path, [*lines[:8], *lines[9:]])
        source = source_of(store, fork)
        store.database.recorder.transact(
            lambda transaction: SourcesToWrite(store.database, transaction).join_last(source, 0)
        )
        assert (source.parent, source_of(target, fork).from_record) == (None, 8)
        copied(store, target, fork)
        assert bytes_of(target, fork) == path.read_bytes()
        assert_sound(target)


@pytest.mark.parametrize("number", [3, 4, 5, 6])
def test_erasure_during_a_copy(number, store, target, path, name):
    other = Store(store.database.recorder, store.database.settings)
    with meanwhile(store, number, lambda: erased(other, name), "query"):
        copy_all(store, target, jobs=1)
    assert_sound(target)
    for row in target.conversations():
        whole = b"" if row.erased_at else path.read_bytes()
        assert bytes_of(target, row.id) == whole


@pytest.mark.parametrize("lost", [0, 9, 24])
def test_damaged_events_are_made_again(lost, tmp_path, path):
    url = tmp_path / "damaged.db"
    with open_with_imports(url) as store:
        name = imported(store, path).conversation
        expected = events_of(store, name)
    execute(url, f"UPDATE events SET body = 'x' WHERE id = {lost}")
    with open_with_imports(url) as store, new_store() as target:
        assert f"event {lost}" in str(copy_all(store, target, damaged=True))
        assert_sound(target)
        assert bytes_of(target, name) == path.read_bytes()
        assert target.conversation(name, as_stored=True).unmade > 0
        assert events_of(target, name)[: len(expected)] == expected
        assert_sound(target)


@USES
def test_source_is_encrypted_with_its_conversation(use, tmp_path, path):
    def opened(keys):
        return open_with_imports(f"sqlite:///{tmp_path}/a.db", keys=keys)

    def read(keys):
        with opened(keys) as store:
            data = bytes_of(store, name), figures_of(store, name)
            assert_sound(store)
        return data

    with opened(KEYS) as store:
        name = imported(store, path).conversation
        use(store, name)
    before = read(KEYS)
    assert before[0] == path.read_bytes()
    for decrypt, keys in ((True, None), (False, KEYS)):
        with opened(KEYS) as store:
            assert [outcome.problem for outcome in rekey(store, decrypt=decrypt)] == [None]
        assert read(keys) == before
        if keys:
            with pytest.raises(KeyUnavailable, match="encrypted"):
                read(None)


@USES
def test_erased_source_is_refused_in_copies_too(use, tmp_path, store, target, path, name):
    records = source_of(store, name).records
    use(store, name)
    erased(store, name)
    rows = store.database.recorder.query(lambda reader: reader.ask_all("sources", 0, 10))
    assert rows == []
    copied(store, target)
    other = tmp_path / "other.jsonl"
    other.write_bytes(path.read_bytes())
    for each in (store, target):
        for refusal in (
            refused(each, path),
            refused(each, path, prefix="p-"),
            refused(each, other),
        ):
            assert isinstance(refusal, SourceRefused | ConversationErased)
    with new_store() as unaware:
        imported(unaware, path, prefix="p-")
        problem = str(copy_all(unaware, target))
        assert "record 0 of its source, which the target redacted or erased" in problem
    assert imported(store, path, again=True)[:2] == (name, records)
    assert bytes_of(store, name) == path.read_bytes()
    assert_sound(store)


def test_changed_record_is_found(store, name):
    source = source_of(store, name)

    def damage(transaction):
        sources = SourcesToWrite(store.database, transaction)
        (block,) = sources.blocks(source)
        sources.put_blocks(source, [block.with_record(1, json.dumps({"type": "user"}).encode())])

    store.database.recorder.transact(damage)
    (problem,) = problems(store)
    assert "record 1 of its source differs from the imported record" in problem


@pytest.mark.parametrize("column", ["sources.about", "sources.sums", "blocks.body", "made.places"])
def test_undecodable_column_is_found(column, tmp_path, path):
    url = tmp_path / "a.db"
    with open_with_imports(url) as store:
        used(store, imported(store, path).conversation)
    table, name = column.split(".")
    execute(url, f"UPDATE {table} SET {name} = x'00'")
    with open_with_imports(url) as store:
        (problem,) = problems(store)
        assert "cannot be decompressed" in problem


def test_events_made_apart_have_the_same_heads(store, target, path, lines):
    later = lines[-1].replace(b'"uuid":"', b'"uuid":"later-')
    for records in (lines, [*lines, later]):
        name = imported_lines(store, path, records).conversation
        copied(store, target)
        used(target, name)
        used(store, name)
        assert target.conversation(name).head == store.conversation(name).head


def test_secret_of_salts_goes_with_the_first_use(store, name):
    assert "secret" in about(source_of(store, name))
    used(store, name)
    assert "secret" not in about(source_of(store, name))


def without_keys(source):
    """Return the source without its keys, which differ between two stores."""
    return source._replace(conversation=0, root=0, parent=None)


def killed_copies(store, target):
    """Copy again and again, each time one more transaction until a kill, and yield after each kill,
    until a copy is complete.
    """
    recorder = target.database.recorder
    settings = target.database.settings
    for transactions in count(1):
        with suppress(Killed):
            copied(store, Store(kill_after(recorder, transactions), settings), jobs=1)
            return
        assert_sound(target)
        yield


def refusing(store, conversation):
    key = source_of(store, conversation).conversation
    return store.database.recorder.query(
        lambda reader: {*Sources(store.database, reader).refused_of(key)}
    )


def assert_same_redacted_source(store, target, name):
    assert without_keys(source_of(target, name)) == without_keys(source_of(store, name))
    assert refusing(target, name) == refusing(store, name) != set()
    assert bytes_of(target, name) == bytes_of(store, name)


@USES
def test_killed_copy_goes_on(use, monkeypatch, store, target, path, lines):
    set_sizes(monkeypatch, copied_blocks=1)
    for stop in (6, len(lines)):
        name = imported_lines(store, path, lines[:stop]).conversation
        list(killed_copies(store, target))
        use(store, name)
        last = max(event.id for event in events_of(store, name) if has_content(event))
        redact_event(store, name, last)
        list(killed_copies(store, target))
        assert_same_redacted_source(store, target, name)
        assert source_of(target, name).redacted != ()
        assert_sound(target)
        assert [*compare_stores(store, target)] == []
    assert events_of(target, name) == events_of(store, name)


def test_killed_copy_keeps_records_of_the_target(monkeypatch, store, target, path, lines):
    set_sizes(monkeypatch, copied_blocks=1, block=2_000)
    lines[5:5] = [b"a damaged line\n"]
    for stop in (5, 9):
        name = imported_lines(target, path, lines[:stop]).conversation
    bytes_before = bytes_of(target, name)
    imported_lines(store, path, lines)
    stored = [bytes_of(target, name) for _ in killed_copies(store, target)]
    assert len(stored) > 2
    assert all(data.startswith(bytes_before) for data in stored)
    assert bytes_of(target, name) == bytes_of(store, name) == path.read_bytes()


def test_second_copy_writes_only_changed_blocks(monkeypatch, store, target, path, lines):
    set_sizes(monkeypatch, block=2_000)
    firsts = []
    write = SourcesToWrite.put_blocks

    def noted(self, source, blocks):
        firsts.extend(block.first for block in blocks)
        write(self, source, blocks)

    name = imported_lines(store, path, lines[:-2]).conversation
    copied(store, target)
    imported_lines(store, path, lines)
    monkeypatch.setattr(SourcesToWrite, "put_blocks", noted)
    copied(store, target)
    assert min(firsts) > source_of(target, name).records // 2
    monkeypatch.undo()
    redact_event(store, name, 3)
    firsts.clear()
    monkeypatch.setattr(SourcesToWrite, "put_blocks", noted)
    copied(store, target)
    assert min(firsts) < 4
    assert bytes_of(target, name) == bytes_of(store, name)
    assert_sound(target)


def test_copy_redacts_event_and_record_together(store, target, name):
    used(store, name)
    copied(store, target)
    messages = [
        event
        for event in store.events(name)
        if isinstance(event, Message) and isinstance(event.content, str)
    ]
    number = messages[-1].id
    text = str(messages[-1].content).encode()
    assert text in bytes_of(target, name)
    redact_event(store, name, number)
    for _ in killed_copies(store, target):
        (event,) = target.events(name, number, number + 1)
        if not has_content(event):
            break
    assert text not in bytes_of(target, name) == bytes_of(store, name)
    assert_sound(target)
    copied(store, target)
    assert_same_redacted_source(store, target, name)
    assert figures_of(target, name) == figures_of(store, name)


def test_fork_copied_alone_keeps_its_shared_records(store, target, path, name, lines):
    changed = lines[-1].replace(b"timestamp", b"timestamq")
    fork = imported_lines(store, path, [*lines[:-1], changed]).conversation
    assert fork != name
    copied(store, target, fork)
    copied(store, target, name)
    assert imported_lines(store, path, [*lines[:-1], changed, *lines[-1:]]).conversation == fork
    copied(store, target, fork)
    assert bytes_of(target, fork) == bytes_of(store, fork) == path.read_bytes()
    assert_sound(target)


def test_a_copy_follows_records_that_became_no_events(store, target, path):
    """The events of the source were made between two copies, and its last records became none."""
    last = [{"type": "file-history-snapshot", "messageId": f"m{n}"} for n in range(3)]
    lines = [path.read_text(), *(f"{json.dumps(record)}\n" for record in last)]
    path.write_text("".join(lines))
    name = imported(store, path).conversation
    copy_all(store, target)
    assert target.conversation(name, as_stored=True).unmade == source_of(store, name).records
    used(store, name)
    made = source_of(store, name).made
    assert made == source_of(store, name).records
    [unequal] = compare_stores(store, target)
    assert unequal.behind
    copy_all(store, target)
    assert (source_of(target, name).made, [*compare_stores(store, target)]) == (made, [])
    row = target.conversation(name, as_stored=True)
    assert (row.unmade, row.version) == (0, store.version(name))
    assert bytes_of(target, name) == path.read_bytes()
    assert_sound(target)
