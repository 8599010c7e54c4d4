"""Forks in a SQLite file that was damaged or changed behind foldlog's back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from benchmarks.counts import traced
from foldlog.eventstore import (
    CondensationRequest,
    CorruptEvent,
    DocumentChanges,
    Message,
    ReadTransaction,
    Store,
    open_store,
)
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.writing import Record
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views

KEYS = KeyRing([SecretStr("6b" * 32)])


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with a conversation, its fork with one event of its own, and another conversation."""
    path = tmp_path / "forks.db"
    with open_store(f"sqlite:///{path}", keys=request.param) as store:
        for name in "cd":
            store.append(name, [Message(source="user", content=f"{name}{n}") for n in range(4)], expected_version=0)
        store.fork("c", 2, "f")
        store.append("f", Message(source="user", content="own"), expected_version=2)
    return path


def changed(path: Path, statement: str) -> Store:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    return open_store(f"sqlite:///{path}", keys=KEYS)


def test_a_fork_that_lost_its_own_events_is_damaged_and_not_short(path: Path):
    delete = "DELETE FROM events WHERE conversation = (SELECT key FROM conversations WHERE id = 'f')"
    with changed(path, delete) as store:
        with pytest.raises(CorruptEvent):
            store.version("f")
        (verdict,) = verify(store, "f")
        assert verdict.findings != ()


def test_a_fork_that_was_given_another_past_is_found(path: Path):
    other = "UPDATE conversations SET parent = (SELECT key FROM conversations WHERE id = 'd') WHERE id = 'f'"
    with changed(path, other) as store:
        (verdict,) = verify(store, "f")
        assert verdict.findings != ()


def test_a_damaged_event_in_the_past_of_a_fork_is_found_and_named(path: Path):
    spoil = "UPDATE events SET recorded_at = recorded_at + 1 WHERE id = 1"
    with changed(path, spoil) as store:
        with pytest.raises(CorruptEvent, match="event 1"):
            list(store.events("f"))
        (verdict,) = verify(store, "f")
        assert [(finding.first, finding.last) for finding in verdict.findings] == [(1, 1)]


@pytest.mark.parametrize("event_id", [1, 2], ids=["of the past", "of its own"])
def test_a_damaged_event_of_a_fork_is_not_shown(path: Path, event_id: int):
    with (
        changed(path, f"UPDATE events SET recorded_at = recorded_at + 1 WHERE id = {event_id}") as store,
        pytest.raises(CorruptEvent, match=f"event {event_id}"),
    ):
        store.query("f", lambda reading: reading.shown_events([(0, 2)]))


def test_a_missing_ancestor_is_damage(path: Path):
    with changed(path, "DELETE FROM conversations WHERE id = 'c'") as store:
        with pytest.raises(CorruptEvent):
            list(store.events("f"))
        (verdict,) = verify(store, "f")
        assert verdict.findings != ()


def test_ancestors_that_lead_in_a_circle_are_damage(path: Path):
    circle = "UPDATE conversations SET parent_version = 2, parent = (SELECT key FROM conversations WHERE id = 'f')"
    with changed(path, f"{circle} WHERE id = 'c'") as store, pytest.raises(CorruptEvent, match="missing"):
        list(store.events("f"))


@pytest.mark.parametrize("detached_by", ["the same process", "another process"])
def test_a_writer_forks_at_the_copy_of_a_past_that_was_detached(tmp_path: Path, detached_by: str):
    url = f"sqlite:///{tmp_path / 'forks.db'}"
    with open_store(url) as store, open_store(url) as other:
        store.append("c", [Message(source="user", content=f"c{n}") for n in range(4)], expected_version=0)
        store.fork("c", 3, "f")
        store.append("f", Message(source="user", content="own"), expected_version=3)
        store.fork("f", 4, "g")
        store.append("g", Message(source="user", content="its own"), expected_version=4)
        store.fork("g", 5, "h")  # the writer knows the ancestors of g
        erase(store if detached_by == "the same process" else other, "c", reason="asked for", detach_forks=True)
        assert store.fork("g", 2, "j").parent == "f"
        assert [event.content for event in store.events("j")] == ["c0", "c1"]


def test_forks_of_one_conversation_are_begun_without_asking_for_it_again(tmp_path: Path):
    statements: list[str] = []
    with open_store(tmp_path / "forks.db") as store:
        store.append("c", [Message(source="user", content=f"c{n}") for n in range(4)], expected_version=0)
        store.fork("c", 3, "f")
        store.append("f", Message(source="user", content="own"), expected_version=3)
    with traced(statements), open_store(tmp_path / "forks.db") as store:
        store.fork("f", 4, "g")
        del statements[:]
        store.fork("f", 4, "h")
        # begin, is there another one, the last shared event, are there keys, the new row, commit
        assert len(statements) == 7


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_a_fork_whose_past_another_process_copies_is_read_there(tmp_path: Path, keys: KeyRing | None, depth: int):
    url = f"sqlite:///{tmp_path / 'forks.db'}"
    name = "fg"[depth - 1]
    with open_store(url, keys=keys) as store, open_store(url, keys=keys) as other:
        store.append("c", [Message(source="user", content=f"c{n}") for n in range(4)], expected_version=0)
        store.fork("c", 2, "f")
        store.append("f", Message(source="user", content="own"), expected_version=2)
        store.fork("f", 3, "g")
        store.append("g", Message(source="user", content="its own"), expected_version=3)
        before = list(store.events(name))  # from now on it is known
        erase(other, "c", reason="asked for", detach_forks=True)
        assert list(store.events(name)) == before
        assert store.query(name, lambda read: [border.parent for border in read.lineage]) == ["f"][: depth - 1]


def test_a_fork_is_read_on_after_another_process_gave_its_parent_another_key(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'forks.db'}"
    with open_store(url, keys=KEYS) as store:
        document = DocumentChanges(changed={"plan": {"value": "one"}})
        store.append(
            "c", [Message(source="user", content="shared"), CondensationRequest(), document], expected_version=0
        )
        store.fork("c", 3, "f")

        def read() -> tuple[object, ...]:
            def reads(reading: ReadTransaction) -> tuple[object, ...]:
                return list(reading.structural_events()), reading.documents_before(3), list(reading.events())

            return Views(store).at("f", 3).events, store.query("f", reads)

        before = read()
        with open_store(url, keys=KEYS) as other:
            for changed in (rekey(other, decrypt=True), rekey(other)):
                assert [each.problem for each in changed] == [None, None]
        assert read() == before


def test_a_fork_finds_the_records_of_an_ancestor_that_got_another_key(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'forks.db'}"
    with open_store(url, keys=KEYS) as store, open_store(url, keys=KEYS) as other:
        said = [Message(source="user", content=f"c{n}") for n in range(4)]
        store.append("c", said, expected_version=0)
        store.project("c", lambda writing: writing.put_records("mine", [Record(3, 1, None, b"of version 3")]))
        store.fork("c", 4, "f")
        assert store.query("f", lambda read: read.record_at("mine")) is not None
        list(rekey(other, decrypt=True))
        list(rekey(other))
        assert store.query("f", lambda read: read.record_at("mine")) is None
        other.project("c", lambda writing: writing.put_records("mine", [Record(3, 1, None, b"of version 3")]))
        assert store.query("f", lambda read: read.record_at("mine")) is not None
        assert store.query("f", lambda read: [record.version for record in read.records("mine")]) == [3]
        assert [event.content for event in store.events("f")] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize("name", "cf")
def test_no_head_is_taken_from_a_damaged_event(path: Path, name: str):
    with (
        changed(path, "UPDATE events SET head = zeroblob(length(head)) WHERE id = 1") as store,
        pytest.raises(CorruptEvent, match="event 1"),
    ):
        store.query(name, lambda reading: reading.head_at(2))
