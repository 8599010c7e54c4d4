"""``verify`` finds rows that a disk or somebody has changed. Each row is spoilt behind the store's
back.
"""

import json
import re
import shutil
import sqlite3
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

import foldlog
from foldlog import Histories
from foldlog.eventstore import (
    ANY_VERSION,
    Annotation,
    CondensationRequest,
    CorruptEvent,
    Documents,
    Erased,
    EventStoreError,
    KeyRing,
    Origin,
    StoreDamaged,
    open_store,
)
from foldlog.eventstore.maintenance import rekey_steps
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.recorders import checking as recorders_checking
from foldlog.eventstore.recorders.sqlite import checking as sqlite_checking
from foldlog.eventstore.recorders.types import as_conversation
from foldlog.projections import Views
from tests.eventstore.test_copy import without_page
from tests.golden.rows import rows
from tests.how_many import some
from tests.privacy import erased
from tests.reading import reading
from tests.said import said, say
from tests.sound import problems as problems_of
from tests.stored_rows import execute, replace, with_fields

NAMES = ("a", "b")
LENGTH = 12
BY_ID = "events_by_id"

CHANGED = "its checksum does not match, so these are not the bytes that were written"
STRAY = "it does not follow the event before it: one of the two was changed, or is not in its place"


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """Return the path of a sound store."""
    path = tmp_path_factory.mktemp("once") / "sound.db"
    with open_store(f"sqlite:///{path}") as store:
        for name in NAMES:
            for n in range(LENGTH):
                event = CondensationRequest() if n == 5 else said(f"{name} says {n}")
                store.append(name, event, expected_version=n)
    return path


@pytest.fixture
def path(tmp_path, sound_store):
    return Path(shutil.copy(sound_store, tmp_path / "history.db"))


def verdicts(path, note=None):
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        all_verdicts = list(verify(store) if note is None else verify_against(store, note))
    return {verdict.conversation: verdict for verdict in all_verdicts}


def findings_in(path, note=None):
    """Return the findings of each conversation that has any. The findings of the database have an
    empty name.
    """
    return {
        name or "": [str(finding) for finding in verdict.findings]
        for name, verdict in verdicts(path, note).items()
        if verdict.findings
    }


def test_rekey_names_a_damaged_head(path, monkeypatch):
    monkeypatch.setattr(rekey_steps, "_ROWS_FIRST", 8)
    change = "UPDATE events SET meta = meta_with(meta, 'head', zeroblob(32))"
    execute(path, f"{change} WHERE conversation = 1 AND id = 7")
    with open_store(f"sqlite:///{path}", compression="zlib") as store:
        assert [rekeyed.damaged for rekeyed in rekey(store)] == [(7,), ()]


def test_rekey_names_a_changed_first_event(path):
    with open_store(f"sqlite:///{path}", compression="zlib") as store:
        first, second = store.query("a", lambda read: read.rows(0, 2, 2))
        replace(path, "a", first._replace(body=second.body))
        assert [rekeyed.damaged for rekeyed in rekey(store)] == [(0,), ()]


def test_past_view_names_a_missing_event(path):
    execute(path, "DELETE FROM events WHERE conversation = 1 AND id = 3")
    with (
        foldlog.open(f"sqlite:///{path}") as histories,
        pytest.raises(CorruptEvent, match="event 3"),
    ):
        histories["a"].at(8)


def test_closing_the_generator_stops_the_check_of_the_database(path, monkeypatch):
    def findings_without_end(connection):
        count = (
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
        )
        yield from connection.execute(count)

    monkeypatch.setattr(sqlite_checking, "findings", findings_without_end)
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        generator = verify(store)
        assert next(generator).conversation == "a"
        generator.close()
        assert store.version("a") == LENGTH


@pytest.mark.parametrize(
    "case", rows("damage.json", "one change"), ids=lambda case: case["changes"][-1]
)
def test_one_damage_is_named_alone(path, case):
    execute(path, *case["changes"])
    assert findings_in(path) == case["findings"]


@pytest.mark.parametrize("flag", ["shown", "structural"])
def test_event_with_a_forged_flag_is_refused(path, flag):
    with open_store(f"sqlite:///{path}") as store:
        store.append("a", [Annotation(name="n"), said("x")], expected_version=LENGTH)
    execute(path, f"UPDATE events SET {flag} = 1 WHERE conversation = 1 AND id = {LENGTH}")
    with open_store(f"sqlite:///{path}") as store:
        reads = [lambda reading: reading.flagged_events([(0, LENGTH + 1)])]
        if flag == "structural":
            reads.append(lambda reading: [*reading.structural_events(0, LENGTH + 1)])
        for read in reads:
            with pytest.raises(
                CorruptEvent,
                match=f"event {LENGTH}: an index lists this event as shown or structural",
            ):
                store.query("a", read)
        assert len([*store.events("a")]) == LENGTH + 2


def test_forged_kind_is_no_document_change(path):
    execute(path, "UPDATE events SET kind = 'document_changes' WHERE conversation = 1 AND id = 7")
    with (
        open_store(f"sqlite:///{path}") as store,
        pytest.raises(CorruptEvent, match="event 7: this event must"),
    ):
        Documents(store).all("a")


def test_hidden_shown_event_is_missed(path):
    execute(path, "UPDATE events SET shown = 0 WHERE conversation = 1 AND id = 7")
    with open_store(f"sqlite:///{path}") as store:
        for interval in ((0, 7), (7, 11), (0, 11)):
            with pytest.raises(CorruptEvent, match="event 7: this event, or a later shown"):
                store.query("a", lambda reading, some=interval: reading.flagged_events([some]))


def test_hidden_structural_event_is_missed(path):
    execute(path, "UPDATE events SET structural = 0 WHERE conversation = 1 AND id = 5")
    with (
        open_store(f"sqlite:///{path}") as store,
        pytest.raises(CorruptEvent, match="event 0: this event, or"),
    ):
        store.query("a", lambda reading: [*reading.structural_events()])


def rewrite(path, conversation, event_id, body):
    """Change the body of an event as somebody does who can make checksums, but does not make the
    heads of the later events again.
    """
    with open_store(path) as store, reading(store, conversation) as read:
        (row,) = read.rows(event_id, event_id + 1, 1)
    replace(path, conversation, row._replace(body=body))


@pytest.mark.parametrize("changed", [[7], [0, LENGTH - 1]], ids=str)
def test_head_shows_a_change_with_new_checksum(path, changed):
    for event_id in changed:
        rewrite(path, "a", event_id, b'{"kind":"message","content":"x","source":"user"}')
    assert findings_in(path) == {"a": [f"event {event_id}: {STRAY}" for event_id in changed]}


def test_inserted_and_removed_event_are_found(tmp_path):
    """ "a" gets an event more before its event 20, and "b" loses its event 20. The ids of the later
    events are one higher in "a", and one lower in "b".
    """
    path = tmp_path / "long.db"
    with open_store(f"sqlite:///{path}") as store:
        for name in ("a", "b"):
            say(store, name, *[str(n) for n in range(60)])
    execute(
        path,
        "UPDATE events SET id = id + 1000 WHERE id >= 20",
        "UPDATE events SET id = id - 999 WHERE id >= 1000 AND conversation = 1",
        "INSERT INTO events SELECT 1000, conversation, 20, kind, shown, structural, meta, body FROM"
        " events WHERE conversation = 1 AND id = 19",
        "DELETE FROM events WHERE id = 1020",
        "UPDATE events SET id = id - 1001 WHERE id > 1000",
    )
    findings = findings_in(path)
    assert f"events 20 to 60: {CHANGED}" in findings["a"]
    assert f"events 20 to 58: {CHANGED}" in findings["b"]


@pytest.fixture
def note(path):
    with open_store(f"sqlite:///{path}") as store:
        return make_checkpoint(store)


@pytest.mark.parametrize("case", rows("damage.json", "changes that a checkpoint shows"))
def test_checkpoint_shows_lost_events(path, note, case):
    execute(path, *case["changes"])
    assert findings_in(path, note) == case["findings"]


def test_long_gap_is_one_finding(tmp_path):
    path = tmp_path / "long.db"
    with open_store(f"sqlite:///{path}") as store:
        store.ingest("a", (said(str(n)) for n in range(4_500)))
    execute(path, "DELETE FROM events WHERE id BETWEEN 900 AND 3100")
    assert findings_in(path)["a"] == ["events 900 to 3100: they are missing"]
    assert verdicts(path)["a"].events == 4_500 - 2_201


def test_events_of_a_source_that_grew_are_checked(tmp_path):
    source = tmp_path / "c.json"
    path = tmp_path / "history.db"
    texts = [{"role": "user", "content": str(n)} for n in range(3)]
    with foldlog.open(f"sqlite:///{path}") as histories:
        for length in (2, 3):
            source.write_text(json.dumps(texts[:length]))
            [history] = histories.import_(source)
            if length == 2:
                history.view()
        note = make_checkpoint(histories.store)
    execute(path, "UPDATE events SET body = body || ' ' WHERE conversation = 1 AND id = 1")
    assert findings_in(path) == findings_in(path, note) == {"c": [f"event 1: {CHANGED}"]}
    assert verdicts(path)["c"].unmade == 0, "the new records of a used source became events"


def test_index_without_its_last_entry_is_found(path):
    sql = sql_of(path, BY_ID)
    execute(path, f"DROP INDEX {BY_ID}", f"{sql} WHERE id <> {LENGTH - 1}", *described(BY_ID, sql))
    assert f"row {2 * LENGTH} missing from index events_by_id" in findings_in(path)[""]


MISSING = {
    "index": "reading is slow or fails; copy the store, which makes the index again",
    "table": "calls that need it fail; restore a backup",
}


@pytest.mark.parametrize("part", rows("damage.json", "parts of the schema"))
def test_missing_index_or_table_is_found(path, part):
    """The parts include one that a query of the check needs, and one that the check does not read."""
    execute(path, f"DROP {part}")
    problem = f"the {part} is missing, so {MISSING[part.split()[0]]}"
    assert any(finding.startswith(problem) for finding in findings_in(path)[""])


@pytest.mark.parametrize(
    "index", [part for part in rows("damage.json", "parts of the schema") if "index" in part]
)
def test_index_without_entries_is_found(path, index):
    """SQLite finds nothing wrong with such an index, but Views are not found without it."""
    name = index.split()[1]
    made = sql_of(path, name).partition(" WHERE ")[0]
    execute(path, f"DROP INDEX {name}", f"{made} WHERE 0")
    assert any(
        finding.startswith(f"the index {name} was changed") for finding in findings_in(path)[""]
    )


def test_missing_part_of_a_later_schema_is_found(path, monkeypatch):
    script = "CREATE TRIGGER first_trigger AFTER DELETE ON events BEGIN SELECT 1; END"
    monkeypatch.setattr(recorders_checking, "migrations", lambda dialect: {2: "", 3: script})
    missing = "the trigger first_trigger is missing"
    assert any(finding.startswith(missing) for finding in findings_in(path)[""])
    execute(path, script)
    assert not any(finding.startswith(missing) for finding in findings_in(path)[""])


def test_added_trigger_is_found(path):
    """A trigger on a table of foldlog can change what a later append writes."""
    execute(
        path,
        "CREATE TRIGGER later AFTER INSERT ON events BEGIN DELETE FROM idempotency_keys; END",
    )
    [finding] = findings_in(path)[""]
    assert finding.startswith("somebody added the trigger later, which may change what is written")


def test_index_with_an_extra_entry_is_found(path):
    """The index still knows an event that the table no longer has, as after an interrupted
    repair.
    """
    sql = sql_of(path, BY_ID)
    execute(
        path,
        *described(BY_ID, f"{sql} WHERE id <> {LENGTH - 1}"),
        f"DELETE FROM events WHERE conversation = 1 AND id = {LENGTH - 1}",
        *described(BY_ID, sql),
    )
    assert "wrong # of entries in index events_by_id" in findings_in(path)[""]


@pytest.mark.parametrize("change", rows("damage.json", "changes of lists"))
def test_lists_that_contradict_their_conversations(path, change):
    with open_store(f"sqlite:///{path}") as store:
        Histories(store).create("c", {"team": "red"})
        assert len(Histories(store).list().conversations) == len(NAMES) + 1
    assert findings_in(path) == {}
    execute(path, *change.split("; "))
    (finding,) = findings_in(path)[""]
    assert "the lists of conversations by attribute and activity contradict" in finding


@pytest.mark.parametrize(
    "change, problem",
    [
        ("DELETE FROM listing; DELETE FROM listed", "activity lack 4 conversations"),
        (
            "DELETE FROM listing WHERE conversation = 3; DELETE FROM listed WHERE conversation = 3",
            "activity lack 1 conversation",
        ),
        (
            "DELETE FROM listing WHERE conversation = 4; DELETE FROM listed WHERE conversation = 4",
            "activity lack 1 conversation",
        ),
        (
            "UPDATE store SET value = '9223372036854775807 1' WHERE name = 'listed'",
            "so they leave out new events",
        ),
        ("UPDATE conversations SET visible = 0 WHERE key = 3", "'fork' is hidden"),
        (
            "UPDATE events SET position = -position WHERE conversation = 3",
            "1 event has no position",
        ),
        (
            "UPDATE conversations SET first_position = 1, published = 12 WHERE key = 1",
            "12 events have two positions",
        ),
    ],
)
def test_what_lists_or_followers_lack_is_found(path, change, problem):
    with open_store(f"sqlite:///{path}") as store:
        histories = Histories(store)
        histories["a"].fork(at=2, id="fork").append(said("own"))
        histories["a"].fork(at=2, id="fork without events")
        histories.list(age_max_s=0)
        histories.create("not listed yet").append(said("later"))
        histories.create("without events")
    assert findings_in(path) == {}
    execute(path, *change.split("; "))
    assert any(problem in finding for finding in findings_in(path)[""])


def sql_of(path, name):
    [(sql,)] = execute(path, f"SELECT sql FROM sqlite_schema WHERE name = '{name}'")
    return sql


def described(name, sql):
    """Return statements that make SQLite take ``sql`` for the definition of an index or a table."""
    return [
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_schema SET sql = '{sql}' WHERE name = '{name}'",
        "PRAGMA writable_schema = RESET",
    ]


def change_type(path, table, column, value, where="true"):
    """Give a column of some rows of a STRICT table a value of another type, as a flipped bit
    does.
    """
    sql = sql_of(path, table)
    loose = re.sub(r"STRICT,? ?|NOT NULL", "", sql).rstrip(", ")
    loose = re.sub(r"\b(INTEGER|TEXT)\b(?! PRIMARY KEY)", "BLOB", loose)
    execute(
        path,
        "PRAGMA ignore_check_constraints = ON",
        *described(table, loose),
        f"UPDATE {table} SET {column} = {value} WHERE {where}",
        *described(table, sql),
    )


@pytest.mark.parametrize("column", ["meta", "kind", "body", "shown"])
def test_column_of_another_type_is_named(path, column):
    change_type(path, "events", column, "'text'", "conversation = 1 AND id = 7")
    assert any(finding.startswith("event 7: ") for finding in findings_in(path)["a"])


def test_damaged_ledger_entry_is_found(path):
    with open_store(f"sqlite:///{path}") as store:
        erased(store, "a")
        Histories(store).create("a", replace_erased=True).append(said("new"))
        store.fork("b", 2, "fork")
        followed = list(store.follow())
    execute(
        path,
        "UPDATE events SET body = CAST(replace(body, 'e', 'o') AS TEXT) WHERE conversation < 0",
    )
    with open_store(f"sqlite:///{path}") as store:
        findings = [
            (verdict.conversation, verdict.generation, str(finding))
            for verdict in verify(store)
            for finding in verdict.findings
        ]
        assert [finding[:2] for finding in findings] == [("a", 0), ("fork", 0)]
        assert "the entry of its ledger 'erased', number 0, is damaged" in findings[0][2]
        (erasure,) = (entry for entry in followed if isinstance(entry.event, Erased))
        assert next(entry for entry in store.follow(erasure.position - 1)) == erasure
        with pytest.raises(CorruptEvent, match="conversation 'fork', event 2"):
            list(store.follow(erasure.position))


@pytest.fixture(scope="module")
def of_all_tables(tmp_path_factory):
    """Return the path of a store with rows in most tables."""
    path = tmp_path_factory.mktemp("once") / "all.db"
    with foldlog.open(path) as histories:
        for name in ("a", "b"):
            history = histories.create(name, {"user": "u"})
            history.append([said("x")] * 2, idempotency_key="k")
        history.fork(id="fork")
        histories.erase("a", reason="asked for")
        histories.list()
    return path


@pytest.mark.parametrize(
    "place, value",
    some(
        product(
            rows("damage.json", "columns of every table"),
            ["'text'", "-1", "1.5", "NULL", str(2**62)],
        ),
        17,
    ),
)
def test_column_of_another_type_raises_our_errors(tmp_path, of_all_tables, place, value):
    path = Path(shutil.copy(of_all_tables, tmp_path / "h.db"))
    with suppress(sqlite3.IntegrityError):  # This value cannot be in an index.
        change_type(path, *place.split("."), value)
    with suppress(EventStoreError), foldlog.open(path) as histories:
        store = histories.store
        calls = [
            histories.list,
            partial(histories.list, {"user": "u"}, age_max_s=0),
            lambda: deque(store.follow()),
            lambda: deque(store.iter_conversations()),
            histories.maintenance.verify,
        ]
        for name in ("a", "b", "fork"):
            calls += [histories[name].view, partial(say, store, name, "x", idempotency_key="k")]
        for call in calls:
            with suppress(EventStoreError):
                call()


@pytest.fixture
def encrypted(path):
    """A file with an encrypted conversation of four events and idempotency keys."""
    path.unlink()
    with open_store(f"sqlite:///{path}", keys=KeyRing(["22" * 32])) as store:
        say(store, "a", "one", "two", idempotency_key="k")
        say(store, "a", "three", "four", idempotency_key="m")
    return path


def unread_row(path, event_id):
    """Return a stored row as a process without the key reads it."""
    with open_store(f"sqlite:///{path}") as store:
        database = store.database
        key = store.query("a", lambda read: read.state.key)
        (row,) = database.recorder.query(lambda reader: reader.rows(key, event_id, event_id + 1, 1))
    return row


NO_KEY = "it could not be checked: "
EXCHANGED = "its events do not have rising positions: events were exchanged"
MISFIT = (
    "the columns of its row contradict its meta: the kind, the flag 'shown' or the flag"
    " 'structural' differs"
)


@pytest.mark.parametrize(
    "change, problems",
    [
        ("DELETE FROM events WHERE id IN (0, 1)", ["events 0 to 1: they are missing"]),
        ("DELETE FROM events WHERE id = 2", ["event 2: it is missing"]),
        (
            "UPDATE events SET shown = 0 WHERE id IN (1, 3)",
            [f"event 1: {MISFIT}", f"event 3: {MISFIT}"],
        ),
        ("UPDATE events SET position = -position WHERE id = 2", [EXCHANGED]),
        (
            "UPDATE events SET body = zeroblob(40) WHERE id = 1",
            ["event 1: its checksum does not match"],
        ),
        (
            "UPDATE events SET meta = meta_with(meta, 'recorded_at', 0) WHERE id = 3",
            ["event 3: its checksum does not match"],
        ),
    ],
)
def test_what_is_in_the_clear_is_checked_without_the_key(encrypted, change, problems):
    (needs_key,) = findings_in(encrypted)["a"]
    assert needs_key.startswith(NO_KEY)
    execute(encrypted, change)
    assert findings_in(encrypted)["a"] == [needs_key, *problems]


def test_a_damaged_page_is_a_finding_without_the_key(path):
    path.unlink()
    with open_store(f"sqlite:///{path}", keys=KeyRing(["22" * 32])) as store:
        for name in NAMES:
            say(store, name, *[f"{name} number {n} " + "x" * 300 for n in range(100)])
        head = store.query("a", lambda read: read.head_at(51))
    without_page(path, lambda page: head in page)
    found = findings_in(path)
    needs_key, unreadable = found["a"]
    assert needs_key.startswith(NO_KEY)
    assert re.fullmatch(r"event [45]\d: it cannot be read: .* is malformed", unreadable)
    assert len(found["b"]) == 1


def test_a_row_that_is_stored_twice_is_named_without_the_key(encrypted):
    (needs_key,) = findings_in(encrypted)["a"]
    columns = "conversation, id, kind, shown, structural, meta, body"
    execute(
        encrypted,
        f"DROP INDEX {BY_ID}",
        f"INSERT INTO events ({columns}) SELECT {columns} FROM events WHERE id = 2",
        f"CREATE INDEX {BY_ID} ON events (conversation, id)",
    )
    assert findings_in(encrypted)["a"] == [needs_key, "event 2: it is stored twice"]


def test_a_damaged_tombstone_of_an_earlier_conversation_is_named(path):
    with foldlog.open(path) as histories:
        erased(histories.store, "a")
        histories.create("a", replace_erased=True).append(said("new"))
        note = make_checkpoint(histories.store)
    execute(path, "UPDATE conversations SET created_at = -5 WHERE key = 1")
    problem = "the tombstones of earlier conversations with its id cannot be read: "
    (finding,) = findings_in(path)["a"]
    assert finding.startswith(problem)
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        compared = [
            str(finding)
            for verdict in verify_against(store, note)
            for finding in verdict.findings
            if verdict.conversation == "a"
        ]
    assert [text.partition(": ")[0] for text in compared] == [
        problem.partition(": ")[0],
        "it was not compared with the checkpoint",
        "its tombstone was changed or removed since the checkpoint",
    ]


@pytest.mark.parametrize(
    "fields", [{"shown_before": 1}, {"structural_before": 1}, {"recorded_at": 1}]
)
def test_counts_in_the_clear_are_checked_without_the_key(encrypted, fields):
    (needs_key,) = findings_in(encrypted)["a"]
    replace(encrypted, "a", with_fields(unread_row(encrypted, 2), **fields))
    stray = "event 2: it does not follow the event before it"
    assert findings_in(encrypted) == {"a": [needs_key, stray]}


@pytest.mark.parametrize(
    "change, problem",
    [
        (
            "UPDATE idempotency_keys SET first_id = 1 WHERE first_id = 0",
            "an idempotency key was changed by somebody without the encryption key",
        ),
        (
            "DELETE FROM idempotency_keys WHERE first_id = 0",
            "1 of its 2 idempotency keys are missing",
        ),
    ],
)
def test_keys_of_an_encrypted_conversation_are_proved(encrypted, change, problem):
    execute(encrypted, change)
    with open_store(f"sqlite:///{encrypted}", keys=KeyRing(["22" * 32])) as store:
        assert problems_of(store) == [f"a: {problem}"]


@pytest.mark.parametrize(
    "how, answered", [({"idempotency_key": "k"}, 2), ({"dedupe": "origin"}, 0)]
)
def test_a_forged_key_is_refused_at_its_use(path, how, answered):
    path.unlink()
    keys = KeyRing(["22" * 32])
    events = [said(text, origin=Origin(format="f", id=text)) for text in ("x", "y")]
    with open_store(f"sqlite:///{path}", keys=keys) as store:
        store.append("a", events, expected_version=0, **how)
        assert len(store.append("a", events, expected_version=ANY_VERSION, **how)) == answered
        say(store, "a", "more")
    execute(path, "UPDATE idempotency_keys SET first_id = first_id + 1")
    with (
        open_store(f"sqlite:///{path}", keys=keys) as store,
        pytest.raises(CorruptEvent, match="key was changed without the conversation's data key"),
    ):
        store.append("a", events, expected_version=ANY_VERSION, **how)


@pytest.mark.parametrize(
    "fields, counts",
    [
        ({"shown_before": 9}, "9 shown, 1 structural"),
        ({"structural_before": 0}, "6 shown, 0 structural"),
    ],
)
def test_wrong_counts_are_named(path, fields, counts):
    with open_store(f"sqlite:///{path}") as store:
        (row,) = store.query("a", lambda read: read.rows(7, 8, 1))
    replace(path, "a", with_fields(row, **fields))
    problem = f"event 7: its counts of earlier events are wrong: {counts}"
    assert findings_in(path)["a"][0] == problem


def test_events_that_were_exchanged_are_named(path):
    execute(
        path,
        "UPDATE events SET position = 1000 WHERE conversation = 1 AND id = 3",
        "UPDATE events SET position = (SELECT position FROM events WHERE conversation = 1 AND id = 4)"
        " + 500 WHERE conversation = 1 AND id = 11",
    )
    assert findings_in(path)["a"] == [EXCHANGED]


def test_a_damaged_idempotency_key_is_named_at_its_use(path):
    with open_store(f"sqlite:///{path}") as store:
        say(store, "a", "more", idempotency_key="k")
    execute(path, "UPDATE idempotency_keys SET events = 0")
    with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(CorruptEvent, match="the record of an idempotency key of"):
            say(store, "a", "more", idempotency_key="k")
        with pytest.raises(CorruptEvent, match="the record of an idempotency key of"):
            store.recorded("a", "k")


def test_an_idempotency_key_of_very_many_events_is_named_at_its_use(path):
    with open_store(f"sqlite:///{path}") as store:
        say(store, "a", "more", idempotency_key="k")
        version = store.version("a")
    execute(path, f"UPDATE idempotency_keys SET events = {2**62}")
    with open_store(f"sqlite:///{path}") as store:
        missing = f"event {version}: it is missing, but an idempotency key names it"
        with pytest.raises(CorruptEvent, match=missing):
            say(store, "a", "more", idempotency_key="k")
        with pytest.raises(CorruptEvent, match=missing):
            store.recorded("a", "k")
        with pytest.raises(CorruptEvent, match=missing):
            Documents(store).append("a", [], {"note": 1}, idempotency_key="k")


def test_a_conversation_without_its_events_is_named(path):
    execute(path, "DELETE FROM events WHERE conversation = 1")
    assert findings_in(path)["a"] == ["all of its events are missing"]


def test_a_fork_names_the_lost_parent(path):
    with open_store(f"sqlite:///{path}") as store:
        store.fork("a", 5, "fork")
        say(store, "fork", "more")
    execute(path, "DELETE FROM conversations WHERE id = 'a'")
    with open_store(f"sqlite:///{path}") as store:
        assert "fork: events 0 to 4: " in problems_of(store, "fork")[0]


def test_a_fork_without_own_events_names_the_damage_of_its_parent(path):
    with open_store(f"sqlite:///{path}") as store:
        store.fork("a", 5, "fork")
    change_type(path, "events", "meta", "'text'")
    with (
        open_store(f"sqlite:///{path}") as store,
        pytest.raises(StoreDamaged, match="the last event that conversation number 3 shares with"),
    ):
        store.version("fork")


def test_a_damaged_record_of_the_first_version_is_made_again(path):
    path.unlink()
    with open_store(f"sqlite:///{path}") as store:
        store.append("a", CondensationRequest(), expected_version=0)
        Views(store).rebuild("a")
    execute(path, "UPDATE records SET checksum = checksum - 1 WHERE version = 1")
    damaged = "the record of projection 'views' for version 1 is damaged"
    assert damaged in findings_in(path)["a"][0]
    with open_store(f"sqlite:///{path}") as store:
        assert store.query("a", lambda read: [*read.damaged_records("views")]) == [1]


def test_records_out_of_order_are_named_and_not_read_for_ever(path):
    path.unlink()
    with open_store(f"sqlite:///{path}") as store:
        say(store, "a", "one", "two", "three")
        for version in range(3, 6):
            store.append("a", CondensationRequest(), expected_version=version)
        Views(store).rebuild("a")
        whole = Views(store).current("a")
    execute(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    assert data.count(b"views\x06") == 1
    data[data.index(b"views\x06") + len("views")] = 2
    path.write_bytes(data)
    order = "the records of projection 'views' of conversation number 1 are out of order"
    assert findings_in(path)["a"][0].startswith(order)
    with open_store(f"sqlite:///{path}") as store:
        assert Views(store).current("a") == whole
        with pytest.raises(StoreDamaged, match=order):
            store.query("a", lambda read: [*read.damaged_records("views")])


def test_a_record_newer_than_its_conversation_is_named(path):
    with open_store(f"sqlite:///{path}") as store:
        Views(store).current("a")
        say(store, "a", "more")
        Views(store).rebuild("a")
    (kept,) = execute(path, "SELECT max(version) FROM records WHERE conversation = 1")
    execute(path, f"DELETE FROM events WHERE conversation = 1 AND id >= {kept[0] - 1}")
    version = kept[0] - 1
    assert findings_in(path)["a"] == [
        f"projection 'views' has a record for version {kept[0]}, but the conversation has"
        f" {version} events: the newest events may be cut off"
    ]


def test_a_module_is_imported_in_the_thread_of_the_caller(tmp_path, monkeypatch):
    """Python 3.11 fails if two threads parse modules at once, as they do under pytest."""
    threads = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == sqlite_checking.__name__:
                threads.append(threading.current_thread())

    with open_store(tmp_path / "store.db") as store:
        say(store, "c", "0")
        monkeypatch.delitem(sys.modules, sqlite_checking.__name__)
        monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
        assert problems_of(store) == []
    assert threads == [threading.main_thread()]


def test_a_row_that_a_damaged_index_finds_twice_changes_no_log(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        for number in range(3):
            say(store, "c", f"word {number}")
        logged = [*store.log("c")]
    columns = "conversation, id, kind, shown, structural, meta, body"
    execute(
        path,
        "DROP INDEX events_by_id",
        f"INSERT INTO events ({columns}) SELECT {columns} FROM events WHERE id = 2",
        "CREATE INDEX events_by_id ON events (conversation, id)",
    )
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        assert [*store.log("c")] == logged
        with reading(store, "c") as transaction:
            assert [row.id for row in transaction.rows(0, 3)] == [0, 1, 2]


def test_a_row_with_a_text_in_place_of_its_last_number_is_damaged():
    columns = [1, b"c1", 5, b"salt", *[None] * 11, 1, None, None, None, 0, b"text"]
    with pytest.raises(StoreDamaged, match="it has a value of type bytes"):
        as_conversation(columns)
