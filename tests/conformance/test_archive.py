"""Archived conversations, on every recorder: what is read is what was archived, nothing is lost
however an archiving ends, and no object is left that no row names.
"""

import itertools
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import SecretStr

from foldlog import Histories
from foldlog.eventstore import (
    ConversationErased,
    CorruptEvent,
    EventsNotMade,
    InvalidArgument,
    KeyRing,
    Store,
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
)
from foldlog.eventstore.events import ATTRIBUTES, VIEWS
from foldlog.eventstore.log.importing import ARCHIVED
from foldlog.eventstore.log.row import checksum_seed, with_checksums
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance import archive_objects
from foldlog.eventstore.maintenance.archive import Archived, archive, check_archived
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from tests.between import Killed, call_before, kill_after
from tests.conformance.conftest import ENCRYPTS
from tests.figures import FiguresOfStore
from tests.privacy import erased, redacted
from tests.said import ids, said, say
from tests.sound import changes

CONTENT = "what the user wrote, in words that compress well " * 4
EVENTS = 12


def message(number):
    return said(f"{number}: {CONTENT}")


@pytest.fixture
def store(recorder):
    """A store that restores archived conversations, with one conversation, ``c1``."""
    store = Histories(Store(recorder)).store
    with_events(store, "c1")
    return store


def with_events(store, name):
    picture = {"type": "raw", "data": b"bytes beside the body" * 50}
    for number in range(0, EVENTS, 3):
        first = said(({"type": "text", "text": "look"}, picture))
        batch = [first, message(number + 1), message(number + 2)]
        store.append(name, batch, expected_version=number, idempotency_key=f"key-{number}")


@pytest.fixture
def to(tmp_path):
    return f"file://{tmp_path}/objects"


@pytest.fixture
def expected(store, to):
    """What ``c1`` had when it was archived."""
    events = content(store)
    archive(store, "c1", to)
    return events


def objects(to):
    folder = Path(to.removeprefix("file://"))
    return sorted(path.name for path in folder.glob("*"))


def named(store, *operations):
    """Return the objects that rows of the store name, with these operations."""

    def read(reader):
        rows = reader.conversations("", 100)
        return [operation for row in rows for operation in reader.unfinished(row.key)]

    unfinished = store.database.recorder.query(read)
    return sorted(
        operation.state.rpartition("/")[2]
        for operation in unfinished
        if operation.operation in operations
    )


def content(store, name="c1"):
    return [*store.log(name)]


def positions(store):
    return [(entry.position, entry.conversation, entry.event.id) for entry in store.follow()]


def assert_sound(store):
    findings = [check_archived(store, verdict).findings for verdict in verify(store)]
    assert not any(findings), findings


def archive_writing(write, store, to):
    """Archive ``c1`` with another function that writes its object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foldlog.eventstore.maintenance.archive.write_object", write)
        return archive(store, "c1", to)


def as_on(store, recorder):
    """Return ``store`` as a process sees it that opened it with ``recorder``."""
    return Histories(Store(recorder, store.database.settings)).store


# -- what is archived comes back -------------------------------------------------------------------


def test_events_positions_and_keys_come_back(store, to):
    events_before = content(store)
    positions_before = positions(store)
    row_before = store.conversation("c1")
    outcome = archive(store, "c1", to)
    assert outcome == Archived("c1", EVENTS - 1, outcome.bytes)
    assert store.conversation("c1") == row_before._replace(archived=EVENTS - 1)
    assert store.version("c1") == EVENTS
    # Archived events are not followed, and the last event stays.
    assert len(positions(store)) == 1
    assert_sound(store)
    assert objects(to) == named(store, "archived")
    # The first read restores the conversation.
    assert content(store) == events_before
    assert positions(store) == positions_before
    assert store.conversation("c1") == row_before
    assert [entry.event.id for entry in store.recorded("c1", "key-3")] == [3, 4, 5]
    assert_sound(store)
    vacuum(store)
    # The object stays, because backups may need it.
    assert objects(to) == named(store, "restored")


@pytest.mark.parametrize("attributes", [{"user": "ann"}, {}], ids=["attributes", "none"])
def test_what_lists_show_needs_no_object(recorder, to, tmp_path, attributes):
    histories = Histories(Store(recorder))
    history = histories.create("c1", attributes=attributes)
    for number in range(5):
        history.append(message(number))
    [result] = histories.maintenance.archive(timedelta(), to)
    key = recorder.query(lambda reader: reader.conversation("c1")).key
    records = recorder.query(lambda reader: reader.newest_records(key, 100))
    assert {record.projection for record in records} <= {ATTRIBUTES, VIEWS}
    [name] = objects(to)
    (tmp_path / "objects" / name).unlink()
    # From now on, lists read all conversations again.
    recorder.transact(lambda transaction: transaction.set_value("listed", "0 0"))
    for store in (as_on(histories.store, _ReadOnly(recorder)), histories.store):
        [listed] = Histories(store).list(attributes, age_max_s=0).conversations
        assert (listed.id, listed.attributes) == ("c1", attributes)
    [(row, figures)] = FiguresOfStore(histories.store).of(histories.store.iter_conversations())
    assert (row.archived, row.version) == (result.events, result.events + 1)
    assert figures.is_sound
    assert histories.store.version("c1") == row.version


class _ReadOnly:
    """A recorder through which a list cannot be written."""

    def __init__(self, recorder):
        self._recorder = recorder

    def __getattr__(self, name):
        return getattr(self._recorder, name)

    def offer(self, work):
        return False


def test_an_outdated_list_contradicts_nothing(store, to):
    Histories(store).list()
    store.append("c1", message(EVENTS), expected_version=EVENTS)
    archive(store, "c1", to)
    assert_sound(store)


@pytest.mark.usefixtures("expected")
def test_an_append_restores(store):
    say(store, "c1", "more")
    assert ids(store.events("c1")) == [*range(EVENTS + 1)]
    with pytest.raises(VersionConflict):
        say(store, "c1", "x", expected_version=3)
    assert_sound(store)


def test_an_open_iterator_goes_on(store, to):
    say(store, "c1", *["more"] * (3_000 - EVENTS))
    events = store.events("c1")
    assert next(events).id == 0
    archive(store, "c1", to)
    assert ids(events) == [*range(1, 3_000)]


def test_objects_are_encrypted(open_recorder, to, tmp_path):
    store = Histories(Store(open_recorder(), ENCRYPTS)).store
    with_events(store, "c1")
    before = content(store)
    archive(store, "c1", to)
    [name] = objects(to)
    [(row, _), *_] = archive_objects.unpack_rows((tmp_path / "objects" / name).read_bytes())[1:]
    assert CONTENT.encode() not in row.body
    assert_sound(store)
    assert content(store) == before


@pytest.mark.usefixtures("expected")
def test_a_store_without_foldlog_names_the_remedy(store):
    alone = Store(store.database.recorder)
    alone.database.recorder.on_missing = None
    with pytest.raises(
        EventsNotMade, match=r"archived; open the store with foldlog\.open"
    ) as refused:
        next(alone.events("c1"))
    assert (refused.value.unmade, refused.value.archived > 0) == (0, True)


def test_objects_in_memory_need_a_memory_store(store):
    before = content(store)
    if store.path is None and not store.database.recorder.on_server:
        assert archive(store, "c1", "memory:///").stays is None
    else:
        with pytest.raises(InvalidArgument, match="'memory:///' is not the URL"):
            archive(store, "c1", "memory:///")
    assert content(store) == before


def test_an_object_is_compared_before_events_are_deleted(store, to):
    def write_less(address, data):
        archive_objects.write_object(address, data[:-1])

    before = content(store)
    outcome = archive_writing(write_less, store, to)
    assert "does not have the bytes that were written" in str(outcome.stays)
    assert outcome == Archived("c1", 0, 0, outcome.stays)
    assert store.conversation("c1").archived == 0
    vacuum(store)
    assert objects(to) == []
    assert content(store) == before


# -- what stays ------------------------------------------------------------------------------------


def test_what_is_not_archived_says_why(store, to):
    say(store, "one", "only")
    assert "no events of its own except the last" in str(archive(store, "one", to).stays)
    store.fork("c1", 3, "fork")
    assert archive(store, "c1", to) == Archived("c1", 0, 0, "forks need its events: 'fork'")
    erased(store, "fork")
    assert archive(store, "fork", to).stays == "it is erased"
    assert archive(store, "c1", to).stays is None
    assert archive(store, "c1", to).stays == "it is archived"
    with pytest.raises(InvalidArgument, match="is not the URL of an object store"):
        archive(store, "one", "/mnt/archive")
    assert len(objects(to)) == 1


@pytest.mark.parametrize("to", ["gopher://archive/events", "s3://", "://"])
def test_a_url_of_no_object_store_is_refused(store, to):
    with pytest.raises(StoreRefused, match="check the URL of the object store"):
        archive(store, "c1", to)
    assert store.conversation("c1").archived == 0


def test_archived_forks_and_forks_of_the_archived(store, to):
    store.fork("c1", 3, "fork")
    say(store, "fork", "3", "4")
    before = content(store, "fork")
    assert archive(store, "fork", to).events == 1
    assert content(store, "fork") == before
    erased(store, "fork")
    archive(store, "c1", to)
    store.fork("c1", 3, "other")
    assert content(store, "other") == content(store)[:3]
    assert_sound(store)


def test_a_damaged_conversation_stays(store, to, monkeypatch):
    monkeypatch.setattr("foldlog.eventstore.maintenance.verify.link", lambda *event: b"")
    assert "does not follow" in str(archive(store, "c1", to).stays)
    assert objects(to) == []


def test_an_unreadable_conversation_stays(store, to, monkeypatch):
    def fail(check):
        raise CorruptEvent("c1", 0, "it is cut")

    monkeypatch.setattr("foldlog.eventstore.maintenance.archive.Check.run", fail)
    assert "event 0: it is cut" in str(archive(store, "c1", to).stays)
    assert objects(to) == []


# -- interrupted, or met by others -----------------------------------------------------------------


def kill_between_transactions(store, prepare, work, to):
    """Prepare a work, and kill it before one of its transactions; then do the same before the next
    transaction, until the work ends. Return how often it was killed.
    """
    for transactions in itertools.count():
        prepare(store)
        try:
            work(as_on(store, kill_after(store.database.recorder, transactions)))
        except Killed:
            vacuum(store)
            assert objects(to) == named(store, "archived", "restored")
            assert named(store, "archive", "discard") == []
            assert_sound(store)
        else:
            return transactions
    raise AssertionError("the work did not end")


def test_an_archiving_killed_between_transactions_loses_nothing(store, to, expected):
    archive_c1 = partial(archive, conversation="c1", to=to)
    assert kill_between_transactions(store, content, archive_c1, to) > 1
    assert content(store) == expected


def test_a_restoring_killed_between_transactions_loses_nothing(store, to, expected):
    archive_c1 = partial(archive, conversation="c1", to=to)
    assert kill_between_transactions(store, archive_c1, content, to) > 0
    assert content(store) == expected


def test_a_vacuum_killed_between_transactions_loses_nothing(store, to, expected):
    def leave_an_object(store):
        """Let an archiver be killed after it has written its object, which a vacuum deletes."""
        content(store)
        with suppress(Killed):
            archive_writing(write_and_be_killed, store, to)

    def write_and_be_killed(address, data):
        archive_objects.write_object(address, data)
        raise Killed

    assert kill_between_transactions(store, leave_an_object, vacuum, to) > 0
    assert content(store) == expected


@pytest.mark.parametrize("call", ["write_object", "delete_object"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_killed_around_an_object_nothing_is_lost(store, to, expected, call, is_done, monkeypatch):
    real = getattr(archive_objects, call)

    def kill(*arguments):
        if is_done:
            real(*arguments)
        raise Killed

    assert content(store) == expected
    with monkeypatch.context() as patch:
        for place in ("archive_objects", "archive"):
            patch.setattr(f"foldlog.eventstore.maintenance.{place}.{call}", kill)
        with pytest.raises(Killed):
            archive(store, "c1", to)
    assert content(store) == expected
    vacuum(store)
    assert objects(to) == named(store, "archive", "archived", "restored", "discard") == []


def test_the_part_file_of_a_killed_writer_goes(store, to):
    """obstore writes a file under another name first."""

    def kill(address, data):
        path = Path(f"{address.partition('file://')[2]}#1")
        path.write_bytes(data)
        raise Killed

    with pytest.raises(Killed):
        archive_writing(kill, store, to)
    assert len(objects(to)) == 1
    vacuum(store)
    assert objects(to) == named(store, "archive") == []


def _append(store):
    say(store, "c1", "late")


def _erase(store):
    erased(store, "c1")


def _fork(store):
    store.fork("c1", 3, "fork")


def _redact(store):
    redacted(store, "c1", 1)


def archive_met_by(other, store, to, nth):
    """Archive ``c1``. Before the transaction ``nth`` of the archiving, ``other`` happens."""
    met = as_on(store, call_before(store.database.recorder, nth, partial(other, store)))
    archive(met, "c1", to)
    vacuum(store)
    assert objects(to) == named(store, "archived", "restored")
    assert_sound(store)


@pytest.mark.parametrize("nth", range(2))
@pytest.mark.parametrize("other, added", [(_append, 1), (_redact, 1), (_fork, 0), (vacuum, 0)])
def test_a_change_during_an_archiving_wins_or_waits(store, to, other, added, nth):
    archive_met_by(other, store, to, nth)
    assert len(content(store)) == EVENTS + added
    is_redacted = content(store)[1].event.redacted is not None
    assert is_redacted == (other is _redact)
    if other is _fork:
        assert len(content(store, "fork")) == 3


@pytest.mark.parametrize("nth", range(2))
def test_an_erasure_during_an_archiving_wins(store, to, nth):
    archive_met_by(_erase, store, to, nth)
    with pytest.raises(ConversationErased):
        content(store)


@pytest.mark.parametrize("other", [_erase, _redact, vacuum])
def test_a_late_object_is_deleted(store, to, other, monkeypatch):
    def write_late(address, data):
        other(store)
        archive_objects.write_object(address, data)
        raise Killed

    with pytest.raises(Killed):
        archive_writing(write_late, store, to)
    assert len(objects(to)) == 1
    vacuum(store)
    assert objects(to) == []
    # The archiver may still write, so the store remembers the object for some time.
    assert reminders(store) != []
    monkeypatch.setattr(archive_objects, "_LATE", timedelta())
    vacuum(store)
    assert reminders(store) == []
    assert_sound(store)


def reminders(store):
    operations = store.database.recorder.query(lambda reader: reader.unfinished())
    return [operation.state for operation in operations]


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
def test_the_slower_of_two_archivers_is_told(store, to, is_written):
    before = content(store)

    def write(address, data):
        if is_written:
            archive_objects.write_object(address, data)
        assert archive_writing(archive_objects.write_object, store, to).stays is None
        if not is_written:
            archive_objects.write_object(address, data)

    outcome = archive_writing(write, store, to)
    assert "at the same time" in str(outcome.stays)
    assert outcome == Archived("c1", 0, 0, outcome.stays)
    vacuum(store)
    assert objects(to) == named(store, "archived")
    assert content(store) == before


@pytest.mark.parametrize("nth", range(2))
def test_two_archivers_of_one_conversation_leave_one_object(store, to, nth):
    expected = content(store)
    other = partial(archive, store, "c1", to)
    first = archive(as_on(store, call_before(store.database.recorder, nth, other)), "c1", to)
    vacuum(store)
    if first.stays is not None:
        assert "at the same time" in first.stays
        assert first == Archived("c1", 0, 0, first.stays)
    assert objects(to) == named(store, "archived")
    assert len(objects(to)) == 1
    assert content(store) == expected


def test_two_readers_restore_once(store, expected):
    read_by_the_other = []

    def read():
        read_by_the_other.append(content(store))

    met = as_on(store, call_before(store.database.recorder, 0, read))
    assert content(met) == expected
    assert read_by_the_other == [expected]
    assert_sound(store)


# -- what changes an archived conversation ---------------------------------------------------------


def test_an_erasure_deletes_the_object(store, to):
    archive(store, "c1", to)
    erased(store, "c1")
    assert objects(to) == []
    assert_sound(store)
    history = Histories(store).create("c1", replace_erased=True)
    history.append([message(0), message(1)])
    archive(store, "c1", to)
    assert ids(store.events("c1"))[-2:] == [1, 2]


def test_an_erasure_waits_for_its_object(store, to, monkeypatch):
    archive(store, "c1", to)

    def away(address):
        raise StoreUnavailable("the object store is away", kind="away")

    monkeypatch.setattr("foldlog.eventstore.maintenance.archive_objects.delete_object", away)
    for work in (_erase, vacuum):
        with pytest.raises(StoreUnavailable, match="is away") as caught:
            work(store)
        assert caught.value.unfinished
    assert len(objects(to)) == 1
    monkeypatch.undo()
    vacuum(store)
    assert objects(to) == []


def test_a_redaction_reaches_what_is_archived(store, to):
    archive(store, "c1", to)
    _redact(store)
    assert objects(to) == []
    archive(store, "c1", to)
    assert content(store)[1].event.redacted is not None
    assert_sound(store)


def test_a_rekey_restores(recorder, to):
    first = SecretStr("11" * 32)
    second = SecretStr("22" * 32)
    store = Histories(Store(recorder, WriteSettings(None, KeyRing([first])))).store
    with_events(store, "c1")
    before = content(store)
    archive(store, "c1", to)
    new = Histories(Store(recorder, WriteSettings("zlib", KeyRing([second, first])))).store
    assert [rekeyed.damaged for rekeyed in rekey(new)] == [()]
    only_new = Histories(Store(recorder, WriteSettings(None, KeyRing([second])))).store
    assert content(only_new) == before
    assert_sound(only_new)


def test_a_copy_restores_on_both_sides(store, open_recorder, to):
    target = Histories(Store(open_recorder())).store
    archive(store, "c1", to)
    assert [copied.problem for copied in copy_store(store, target)] == [None]
    assert content(target) == content(store)
    archive(target, "c1", to)
    _append(store)
    assert [copied.added for copied in copy_store(store, target)] == [1]
    assert content(target) == content(store)
    assert_sound(target)


# -- objects that are not there --------------------------------------------------------------------


def _altered(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _of_another(path):
    path.write_bytes(archive_objects.pack_rows([]))


@pytest.mark.parametrize(
    "change, problem",
    [
        (Path.unlink, "is missing"),
        (_altered, "was changed or exchanged: its hash differs"),
        (_of_another, "was changed or exchanged: its hash differs"),
    ],
)
def test_missing_or_altered_objects_are_named(store, to, expected, tmp_path, change, problem):
    [name] = objects(to)
    path = tmp_path / "objects" / name
    whole = path.read_bytes()
    change(path)
    for work in (content, _append):
        with pytest.raises(
            StoreRefused, match=f"the object .*{name} of the archived conversation 'c1' {problem}"
        ):
            work(store)
    assert store.version("c1") == EVENTS
    [findings] = [check_archived(store, verdict).findings for verdict in verify(store, "c1")]
    assert problem in str(findings)
    path.write_bytes(whole)
    assert content(store) == expected


def forge(store, to, change):
    """Change the object of ``c1``, and its address in the store, as the owner of both can."""
    [path] = Path(to.removeprefix("file://")).iterdir()
    path.write_bytes(change(archive_objects.unpack_rows(path.read_bytes())))

    def work(transaction):
        key = transaction.conversation("c1").key
        _, url = archive_objects.address_of_object(transaction, key).split(" ")
        address = f"{sha256(path.read_bytes()).hexdigest()} {url}"
        transaction.leave_unfinished(key, ARCHIVED, address)

    store.database.recorder.transact(work)


def _with_another_text(placed):
    rows, positions = zip(*placed, strict=True)
    other = rows[4]._replace(body=rows[4].body.replace(b"wrote", b"never wrote"))
    rows = with_checksums(checksum_seed("c1"), [*rows[:4], other, *rows[5:]])
    return archive_objects.pack_rows([*zip(rows, positions, strict=True)])


def _without_meta(placed):
    [(first, position), *others] = placed
    return archive_objects.pack_rows([(first._replace(meta=b""), position), *others])


@pytest.mark.parametrize(
    "change, problem",
    [
        (_with_another_text, "event 4: it does not follow the event before it"),
        (lambda placed: archive_objects.pack_rows(placed[:-1]), "event 10: it is missing"),
        (_without_meta, "event 0: its checksum does not match"),
        (lambda placed: b"junk", "has no events: it cannot be decompressed"),
    ],
)
@pytest.mark.usefixtures("expected")
def test_forged_object_is_named(store, to, change, problem):
    note = make_checkpoint(store)
    forge(store, to, change)
    # The number of events in its row may differ too, which is a further finding.
    first, *_ = changes(store, note)["c1"]
    assert problem in first


def test_archived_between_two_reads_of_a_comparison_is_sound(recorder, store, to):
    note = make_checkpoint(store)
    say(store, "c1", "later")
    for nth in range(40):
        before = call_before(recorder, nth, lambda: archive(store, "c1", to), "query")
        assert changes(Store(before, store.database.settings), note) == {}, nth
        if not store.conversation("c1").archived:
            break  # the comparison has fewer reads
        content(store)  # restores the conversation
    assert nth > 5


def test_conversation_erased_during_the_check_is_sound(store, expected, monkeypatch):
    def read(conversation, address):
        rows = archive_objects.read_archived(conversation, address)
        erased(store, "c1")
        return rows[:-1]

    [verdict] = verify(store, "c1")
    monkeypatch.setattr("foldlog.eventstore.maintenance.archive.read_archived", read)
    checked = check_archived(store, verdict)
    assert (checked.findings, checked.erasure.events) == ((), len(expected))


def test_a_forked_process_is_refused(tmp_path):
    program = """
import os, signal, sys
from foldlog.eventstore import StoreRefused
from foldlog.eventstore.maintenance.archive_objects import read_object, write_object
address = f"digest file://{sys.argv[1]}/object"
write_object(address, b"data")
child = os.fork()
if child == 0:
    signal.alarm(20)  # in place of a wait for ever
    try:
        read_object(address)
    except StoreRefused as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(read_object(address).decode())
"""
    process = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=60
    )
    assert "this process was forked after its parent had used an object store" in process.stdout
    assert (process.returncode, process.stdout.splitlines()[-1]) == (0, "data"), process.stderr


def test_an_operation_of_another_process_is_not_replaced(recorder):
    store = Store(recorder)
    say(store, "a", "zero")
    with recorder.read() as reader:
        key = reader.conversation("a").key
    recorder.transact(lambda transaction: transaction.leave_unfinished(key, "archive", "there"))

    def operations():
        return recorder.query(lambda reader: [*reader.unfinished(key)])

    [operation] = operations()
    assert operation[2:] == ("archive", "there")
    stale = operation._replace(state="elsewhere")
    for replacement in (None, ARCHIVED):
        assert archive_objects.replace_operation(recorder, stale, replacement) is False
        assert operations() == [operation]
    assert archive_objects.replace_operation(recorder, operation, ARCHIVED) is True
    [replaced] = operations()
    assert replaced == operation._replace(operation=ARCHIVED)
    assert archive_objects.replace_operation(recorder, replaced, None) is True
    assert operations() == []
