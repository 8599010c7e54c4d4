"""What a process has checked in a file, it checks again once the file may have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.counts import traced
from eventstore import CorruptEvent, Message, open_store
from eventstore.recorders.sqlite import checked


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checked, "_by_state", {})
    path = tmp_path / "history.db"
    with open_store(path) as store:
        store.append("c1", [Message(source="user", content=f"message {n}") for n in range(40)], expected_version=0)
    return path


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have files trusted however young they are: to make one old takes seconds."""
    return lambda: monkeypatch.setattr(checked, "_AT_REST_NS", -1)


def questions(path: Path) -> int:
    """Open the store, read the conversation; return how often it was asked for with the check."""
    statements: list[str] = []
    with traced(statements), open_store(path) as store:
        assert len(list(store.events("c1"))) == store.version("c1")
    return sum("NOT INDEXED" in statement for statement in statements)


def test_a_file_at_rest_is_checked_once(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert [questions(path) for _ in range(3)] == [1, 0, 0]


def test_a_file_that_changed_a_moment_ago_is_checked(path: Path):
    assert [questions(path) for _ in range(2)] == [1, 1]


def test_a_file_with_something_in_its_log_is_checked(path: Path, at_rest: Callable[[], None]):
    at_rest()
    with open_store(path) as other:
        other.append("c2", Message(source="user", content="in the log"), expected_version=0)
        assert [questions(path) for _ in range(2)] == [1, 1]


def test_an_index_that_was_damaged_since_is_found(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert questions(path) == 1
    hide_the_newest_event(path)
    with open_store(path) as store, pytest.raises(CorruptEvent):
        store.version("c1")


def hide_the_newest_event(path: Path) -> None:
    """Take the last entry out of the index of ids, which is one page, and leave the row that it leads to."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events_by_id'").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    entries = slice((page - 1) * page_bytes + 3, (page - 1) * page_bytes + 5)
    content[entries] = (int.from_bytes(content[entries]) - 1).to_bytes(2)
    path.write_bytes(content)
