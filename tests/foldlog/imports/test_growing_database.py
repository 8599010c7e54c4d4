"""A session in OpenCode's database grows, and any of its rows may change. An import that reads only
the newest rows does what an import of all rows does.
"""

import json
import random
import sqlite3
from contextlib import closing, contextmanager
from itertools import count
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from foldlog import Histories
from foldlog._imports import making_events
from foldlog._imports.importing import Failed, Import, Imported
from foldlog._reports.records import decoding
from foldlog.eventstore.sources.tables import Sources
from foldlog.formats import record_decoding
from foldlog.formats.opencode_files import _InTables
from foldlog.formats.resuming import WINDOW_MAX
from tests.between import before_next_call
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    figures_of,
    imported,
    new_store as new_store,
    redact_event,
    source_of,
)
from tests.how_many import some
from tests.sound import assert_sound

DIGEST_BYTES = 32
START = 1_767_225_600_000
SCHEMA = """
CREATE TABLE session(id TEXT PRIMARY KEY, project_id TEXT, title TEXT, revert TEXT,
    time_created INTEGER, time_updated INTEGER);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER,
    time_updated INTEGER, data TEXT);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
    time_updated INTEGER, data TEXT);
CREATE INDEX part_message ON part(message_id);
CREATE INDEX part_session ON part(session_id);
CREATE INDEX message_session ON message(session_id);
"""


@contextmanager
def database_at(path):
    with closing(sqlite3.connect(path)) as database, database:
        yield database


def add_messages(path, numbers, session="s"):
    """Add messages to a session: questions, and answers. Every second answer has a call."""
    is_new = not path.exists()
    with database_at(path) as database:
        if is_new:
            database.executescript(SCHEMA)
        begun = "INSERT OR IGNORE INTO session VALUES(?, 'p', 'a title', NULL, 1, 1)"
        database.execute(begun, (session,))
        for number in numbers:
            add_message(database, number, session)
    return path


def add_message(database, number, session):
    at = START + 1000 * number
    text = {"type": "text", "text": f"plank{number:05}"}
    parts = [text]
    if number % 2:
        info = {"role": "user", "time": {"created": at}}
    else:
        tokens = {"input": 10, "output": 5, "cache": {"read": number, "write": 0}}
        info = {"role": "assistant", "time": {"created": at}, "modelID": "m", "tokens": tokens}
    if number % 4 == 0:
        state = {"status": "completed", "input": {"command": "ls"}, "output": f"board{number}"}
        call = {"type": "tool", "callID": f"c{number}", "tool": "bash", "state": state}
        parts = [call, text]
    name = f"msg_{session}{number:06}"
    row = (name, session, at, at, json.dumps(info))
    database.execute("INSERT INTO message VALUES(?, ?, ?, ?, ?)", row)
    for place, part in enumerate(parts):
        row = (f"prt_{session}{number:06}{place}", name, session, at, at, json.dumps(part))
        database.execute("INSERT INTO part VALUES(?, ?, ?, ?, ?, ?)", row)


def message_ids(database):
    rows = database.execute("SELECT id FROM message WHERE session_id = 's' ORDER BY rowid")
    return [name for (name,) in rows]


def change_text(database, name, chance):
    query = "UPDATE part SET data = json_set(data, '$.text', ?) WHERE message_id = ?"
    database.execute(query, (f"new {chance.random()}", name))


def clear_result(database, name, chance):
    query = "UPDATE part SET data = json_set(data, '$.state.time.compacted', 1) WHERE id = ?"
    database.execute(query, (f"prt_{name.removeprefix('msg_')}0",))


def delete_parts(database, name, chance):
    database.execute("DELETE FROM part WHERE message_id = ?", (name,))


def add_part(database, name, chance):
    part = json.dumps({"type": "text", "text": "late"})
    row = (f"prt_z{chance.random()}", name, "s", 1, 1, part)
    database.execute("INSERT INTO part VALUES(?, ?, ?, ?, ?, ?)", row)


def delete_message(database, name, chance):
    database.execute("DELETE FROM message WHERE id = ?", (name,))


def add_message_between(database, name, chance):
    (time,) = database.execute("SELECT time_created FROM message WHERE id = ?", (name,)).fetchone()
    row = (f"msg_y{chance.random()}", "s", time, 1, json.dumps({"role": "user"}))
    database.execute("INSERT INTO message VALUES(?, ?, ?, ?, ?)", row)


def add_summary(database, name, chance):
    query = "UPDATE message SET data = json_set(data, '$.summary', json('{}')) WHERE id = ?"
    database.execute(query, (name,))


def change_title(database, name, chance):
    database.execute("UPDATE session SET title = ? WHERE id = 's'", (f"title {chance.random()}",))


def change_time(database, name, chance):
    query = "UPDATE message SET time_created = time_created + ? WHERE id = ?"
    database.execute(query, (chance.choice((-9_000, 9_000, 900_000)), name))


def damage_part(database, name, chance):
    database.execute("UPDATE part SET data = '{broken' WHERE message_id = ?", (name,))


def move_part(database, name, chance):
    database.execute("UPDATE part SET session_id = 'other' WHERE message_id = ?", (name,))


def remove_text(database, name, chance):
    database.execute("UPDATE part SET data = NULL WHERE message_id = ?", (name,))


def revert(database, name, chance):
    value = json.dumps({"messageID": name})
    database.execute("UPDATE session SET revert = ? WHERE id = 's'", (value,))


def end_revert(database, name, chance):
    database.execute("UPDATE session SET revert = NULL WHERE id = 's'")


CHANGES = (
    change_text,
    clear_result,
    delete_parts,
    add_part,
    delete_message,
    add_message_between,
    add_summary,
    change_title,
    change_time,
    damage_part,
    move_part,
    remove_text,
    revert,
    end_revert,
)


class Both:
    """One database, imported into a store that reads only the newest rows, and into a store that
    reads all rows.
    """

    def __init__(self, patch, path, store, target):
        self._patch = patch
        self.path = path
        self.store = store
        self.target = target
        self.numbers = count(1)
        self.by_mark = 0
        """How many imports have read only the newest rows."""
        self.read_by_mark = []
        """The number of records that each import by a mark has read."""
        read_newest = _InTables.read_newest

        def counted(reader, mark):
            marked = read_newest(reader, mark)
            if marked is not None:
                self.by_mark += 1
                self.read_by_mark.append(len(marked.records))
            return marked

        self._readings = (counted, lambda reader, mark: None)

    def add(self, messages):
        add_messages(self.path, [next(self.numbers) for _ in range(messages)])

    def change(self, act, name, chance=None):
        with database_at(self.path) as database:
            act(database, name, chance or random.Random(1))

    def grow(self, *, is_used=True):
        """Import into both stores, and compare what the imports said and what the stores have. If
        ``is_used`` is false, nothing is read from the stores, so the last record has no events.
        """
        shown = []
        for store, reading in zip((self.store, self.target), self._readings, strict=True):
            self._patch.setattr(_InTables, "read_newest", reading)
            outcomes = [*Import(store, [self.path])]
            shown.append(([*map(said, outcomes)], contents(store) if is_used else None))
        assert shown[0] == shown[1]
        return shown[0][0]


class Said(NamedTuple):
    """What an import said of a session."""

    conversation: str
    added: int
    records: int
    forked_at: int | None
    is_older: bool
    findings: list[str]


def said(outcome):
    """Return what an import said of a session, or the text of its refusal."""
    if isinstance(outcome, Failed):
        return str(outcome.error)
    assert isinstance(outcome, Imported)
    return Said(
        outcome.conversation,
        outcome.added,
        outcome.records,
        outcome.forked_at,
        outcome.is_older,
        [str(finding) for finding in outcome.findings],
    )


def contents(store):
    histories = Histories(store)
    return {
        name: {
            "events": [without_time(event) for event in events_of(store, name) if event.origin],
            "view": [*map(without_time, histories[name].view().events)],
            "attributes": histories[name].attributes(),
            "bytes": bytes_of(store, name),
            "figures": figures_of(store, name),
            "head": source_of(store, name).head,
        }
        for name in sorted(histories)
    }


def without_time(event):
    """Return an event whose redaction has no time, because the stores redact it one after the
    other.
    """
    return event if event.redacted is None else replace(event, redacted=None)


def mark_in(store, name):
    key = source_of(store, name).conversation
    places = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).places_of(key)
    )
    (digest,) = {place.digest for _, place in places if place.digest}
    return digest[:-DIGEST_BYTES]


@pytest.fixture
def both(tmp_path, store, target, monkeypatch):
    return Both(monkeypatch, tmp_path / "opencode.db", store, target)


@pytest.mark.parametrize("seed", some(range(16), 2))
def test_any_row_may_change(both, seed):
    chance = random.Random(seed)
    for _ in range(24):
        both.add(chance.choice((0, 1, 1, 2, 50)))
        if chance.random() < 0.6:
            with database_at(both.path) as database:
                names = message_ids(database)
                if names:
                    name = chance.choice([*names, *names[-3:] * 5])
                    chance.choice(CHANGES)(database, name, chance)
        if both.path.exists():
            both.grow(is_used=chance.random() < 0.5)
        if chance.random() < 0.05:
            with closing(sqlite3.connect(both.path)) as database:
                database.execute("VACUUM")
    both.grow()
    if seed == 0:  # other rounds may change rows too often to go on from a mark
        assert both.by_mark > 0
    assert_sound(both.store)


def pending_in(store):
    return store.conversation("s", as_stored=True).unmade


def test_last_message_may_change_before_the_first_use(both):
    both.add(40)
    both.grow(is_used=False)
    assert pending_in(both.store) == 1
    for number in range(41, 60):
        both.change(change_text, f"msg_s{number - 1:06}", random.Random(number))
        both.add(number % 2)
        (outcome,) = both.grow(is_used=False)
        assert (outcome.conversation, outcome.forked_at) == ("s", None)
        if number % 2 == 0:
            both.add(1)
    both.grow()
    assert pending_in(both.store) == 0


def lengthen_text(database, name, chance):
    query = "UPDATE part SET data = json_set(data, '$.text', ?) WHERE message_id = ?"
    database.execute(query, ("plank " * 500, name))


def test_the_only_record_of_the_last_block_may_become_long(both):
    """Then its block is joined with the block before it."""
    both.add(3)
    both.grow(is_used=False)
    both.add(1)
    both.grow(is_used=False)
    both.change(lengthen_text, "msg_s000004")
    both.grow(is_used=False)
    assert_sound(both.store)
    both.change(change_text, "msg_s000004")
    both.grow()
    assert_sound(both.store)


def test_session_is_decoded_once(both, monkeypatch):
    calls = []
    original = decoding.events_of

    def counted_events_of(*values):
        calls.append(values)
        return original(*values)

    monkeypatch.setattr(decoding, "events_of", counted_events_of)
    monkeypatch.setattr(record_decoding, "events_of", lambda *_: pytest.fail("decoded without use"))
    both.add(200)
    imported(both.store, both.path)
    assert len(calls) == 201
    events_of(both.store, "s")
    assert len(calls) <= 201 + WINDOW_MAX + 1


def test_title_stays_with_a_message_that_is_left(both):
    both.add(5)
    both.grow(is_used=False)
    both.add(5)
    both.grow(is_used=False)
    both.grow()
    assert Histories(both.store)["s"].attributes()["title"] == "a title"


@pytest.mark.parametrize("messages", [0, 1, 2])
def test_finding_in_any_message_is_reported(messages, both):
    both.add(messages)
    number = next(both.numbers)
    add_messages(both.path, [number])
    query = "UPDATE part SET data = json_set(data, '$.stdout', 'some words') WHERE message_id = ?"
    both.change(lambda database, name, _: database.execute(query, (name,)), f"msg_s{number:06}")
    (outcome,) = Import(both.store, [both.path])
    assert any("stdout" in str(finding) for finding in outcome.findings)


def test_growth_reads_the_newest_rows(both):
    both.add(300)
    both.grow()
    for _ in range(4):
        both.add(1)
        (outcome,) = both.grow()
        assert outcome.added == 1
    assert outcome.records == 305
    assert both.read_by_mark == [1, 1, 1, 1]


def test_changed_newest_message_is_compared(both):
    both.add(100)
    both.grow()
    both.change(add_part, "msg_s000098")
    (outcome,) = both.grow()
    assert (outcome.conversation, outcome.forked_at) == ("s@98", 98)
    both.add(1)
    both.grow()
    assert both.read_by_mark == [32, 1]


def test_changed_text_of_equal_length_is_seen(both):
    """Neither the number nor the lengths nor the times of the rows change."""
    both.add(100)
    both.grow()
    query = "UPDATE part SET data = replace(data, 'plank', 'PLANK') WHERE message_id = ?"
    for name, record in (("msg_s000010", 10), ("msg_s000090", 90)):
        both.change(lambda database, name, _: database.execute(query, (name,)), name)
        (outcome,) = both.grow()
        assert outcome.forked_at == record


def test_messages_of_one_time_are_in_the_order_of_their_ids(both):
    both.add(50)
    both.grow()
    row = ("msg_r", "s", START + 50_000, 1, json.dumps({"role": "user"}))
    query = "INSERT INTO message VALUES(?, ?, ?, ?, ?)"
    both.change(lambda database, *_: database.execute(query, row), "")
    (outcome,) = both.grow()
    assert outcome.forked_at == 50


def test_format_of_a_known_database_is_not_searched_again(both, monkeypatch):
    both.add(3)
    both.grow()
    monkeypatch.setattr(_InTables, "__iter__", lambda reader: pytest.fail("read for its format"))
    both.add(1)
    both.grow()
    assert both.by_mark == 1


def test_file_of_another_format_at_a_known_path_is_read(both):
    both.add(3)
    both.grow()
    both.path.write_text('{"role": "user", "content": "hello"}\n' * 3)
    (outcome,) = Import(both.store, [both.path])
    assert (outcome.format, outcome.added) == ("openai-chat", 3)


def test_mark_follows_the_growth(both):
    both.add(10)
    both.grow()
    marks = set()
    for _ in range(5):
        both.add(20)
        both.grow()
        marks.add(mark_in(both.store, "s"))
    assert both.by_mark == 5
    assert len(marks) == 5


def test_many_new_messages_are_compared_with_all(both):
    both.add(2)
    both.grow()
    both.add(1_001)
    (outcome,) = both.grow()
    assert (outcome.added, both.by_mark) == (1_001, 0)


@pytest.mark.parametrize("act", [change_text, delete_parts, add_part, damage_part, clear_result])
def test_change_of_the_newest_message_is_followed(act, both):
    both.add(100)
    both.grow()
    both.change(act, "msg_s000100")
    both.grow()
    both.add(1)
    both.grow()


def test_older_message_changes_and_begins_a_fork(both):
    both.add(100)
    both.grow()
    both.change(change_text, "msg_s000030")
    (outcome,) = both.grow()
    assert both.by_mark == 0
    assert (outcome.conversation, outcome.forked_at) == ("s@30", 30)
    both.add(1)
    (outcome,) = both.grow()
    assert (outcome.conversation, outcome.added, both.by_mark) == ("s@30", 1, 1)


def test_revert_and_its_end_are_followed(both):
    both.add(80)
    both.grow()
    both.change(revert, "msg_s000060")
    both.grow()
    both.change(end_revert, "")
    both.grow()
    both.add(2)
    both.grow()


def added_by(outcomes):
    return {outcome.conversation: outcome.added for outcome in outcomes}


def test_session_that_grows_beside_is_read_by_its_own_mark(both):
    both.add(80)
    both.grow()
    add_messages(both.path, range(1, 60), session="other")
    both.add(1)
    assert added_by(both.grow()) == {"other": 60, "s": 1}
    add_messages(both.path, range(60, 62), session="other")
    assert added_by(both.grow()) == {"other": 2, "s": 0}
    assert both.by_mark == 3


def test_redacted_record_stays_redacted(both):
    both.add(80)
    both.grow()
    word = "plank00030"
    (event_id,) = [event.id for event in events_of(both.store, "s") if word in str(event)]
    for store in (both.store, both.target):
        redact_event(store, "s", event_id)
    both.add(1)
    both.grow()
    assert both.by_mark == 1
    text = str(contents(both.store))
    assert "plank00081" in text
    assert word not in text
    both.change(change_text, "msg_s000020")
    (refusal,) = both.grow()
    assert "was redacted" in refusal


def test_erased_session_is_refused(both):
    both.add(80)
    both.grow()
    for store in (both.store, both.target):
        Histories(store).erase("s", reason="asked for")
    both.add(1)
    (refusal,) = both.grow()
    assert "was erased" in refusal
    assert both.by_mark == 0


def test_a_growth_made_by_another_version_is_decoded_again(both, monkeypatch):
    both.add(80)
    both.grow()
    with monkeypatch.context() as patch:
        patch.setattr(making_events, "VERSION", "another")
        both.add(1)
        both.grow()
    both.add(1)
    both.grow()
    assert both.by_mark == 2


def test_mark_of_another_version_is_not_read(both, monkeypatch):
    both.add(80)
    with monkeypatch.context() as patch:
        patch.setattr("foldlog.formats.opencode_rows.Mark.encode", lambda mark: b"other")
        both.grow()
    both.add(1)
    both.grow()
    assert both.by_mark == 0
    both.add(1)
    both.grow()
    assert both.by_mark == 1


def test_mark_has_no_text(both):
    both.add(120)
    both.grow()
    mark = mark_in(both.store, "s")
    for text in (b"plank", b"board", b"msg_", b"prt_", b"title", b"assistant"):
        assert text not in mark
    assert 2 * 32 < len(mark) < 110


@pytest.mark.parametrize("method", ["query", "transact"])
@pytest.mark.parametrize("is_used", [True, False])
def test_two_hooks_import_a_session_at_once(method, is_used, both, monkeypatch):
    both.add(40)
    both.grow(is_used=is_used)
    recorder = both.store.database.recorder
    for _ in range(4):
        both.add(1)
        before_next_call(monkeypatch, recorder, method, lambda: [*Import(both.store, [both.path])])
        assert not any(isinstance(outcome, Failed) for outcome in Import(both.store, [both.path]))
    imported(both.target, both.path)
    assert contents(both.store) == contents(both.target)
    assert_sound(both.store)


def test_a_crash_before_the_events_loses_none(both, monkeypatch):
    both.add(40)
    with monkeypatch.context() as patch:
        patch.setattr("foldlog._imports.writing.make_events", lambda *_, **__: None)
        imported(both.store, both.path)
        both.add(1)
        imported(both.store, both.path)
    assert pending_in(both.store) == 42
    both.add(1)
    imported(both.store, both.path)
    assert pending_in(both.store) == 1
    imported(both.target, both.path)
    assert contents(both.store) == contents(both.target)
