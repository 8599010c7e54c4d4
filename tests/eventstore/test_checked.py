"""What a process has checked in a file, it checks again once the file may have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import foldlog
from benchmarks.counts import traced
from eventstore import CorruptEvent, KeyRing, Message, StoreUnusable, open_store
from eventstore.maintenance.erase import erase
from eventstore.recorders.sqlite import checked
from eventstore.recorders.sqlite.reader import SQLiteReader
from eventstore.stored.moment import Moment, query_all


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checked, "_by_state", {})
    path = tmp_path / "history.db"
    with open_store(path) as store:
        store.append("c1", [Message(source="user", content=f"message {n}") for n in range(40)], expected_version=0)
    return path


@pytest.fixture
def forked(path: Path) -> Path:
    """A fork of a fork."""
    with open_store(path) as store:
        store.fork("c1", 30, "c2")
        store.append("c2", Message(source="user", content="its own"), expected_version=30)
        store.fork("c2", 31, "c3")
        store.append("c3", Message(source="user", content="its own"), expected_version=31)
    return path


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have files trusted however young they are: to make one old takes seconds."""

    def trust() -> None:
        for name in ("_COARSE_NS", "_FINE_NS"):
            monkeypatch.setattr(checked, name, -1)

    return trust


def questions(path: Path) -> int:
    """Open the store, read the conversation; return how often it was asked for with the check."""
    statements: list[str] = []
    with traced(statements), open_store(path) as store:
        assert len(list(store.events("c1"))) == store.version("c1")
    return sum("NOT INDEXED" in statement for statement in statements)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
def test_the_short_question_finds_what_the_long_one_finds(tmp_path: Path, sealed: bool):
    path = tmp_path / "history.db"
    said = Message(source="user", content="its own")
    with open_store(path, keys=KeyRing("11" * 32) if sealed else None) as store:
        store.append("c1", [said] * 3, expected_version=0)
        store.fork("c1", 2, "c2")
        store.append("c2", said, expected_version=2)
    statements: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        connection.set_trace_callback(statements.append)
        for name in ("c1", "c2"):
            long = SQLiteReader(connection).conversation(name)
            del statements[:]
            short = SQLiteReader(connection, None, checked.Checked(str(path), None)).conversation(name)
            assert short == long
            assert (short.sealed_key is not None) is sealed
            assert sum("NOT INDEXED" in statement for statement in statements) == 1


def test_a_file_at_rest_is_checked_once(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert [questions(path) for _ in range(3)] == [1, 0, 0]


def test_a_conversation_of_a_file_at_rest_is_not_asked_for_again(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert [len(conversation_questions(path)) for _ in range(3)] == [1, 0, 0]


def test_nor_are_the_ancestors_of_a_fork(forked: Path, at_rest: Callable[[], None]):
    at_rest()
    assert [len(conversation_questions(forked, "c3")) for _ in range(3)] == [3, 0, 0]


def test_nor_are_ids_that_begin_with_a_text(forked: Path, at_rest: Callable[[], None]):
    """By these, forks are found. The first store finds the conversation, the second one trusts what it found."""
    at_rest()
    for count, begins in ((0, []), (1, ["c1/a"])):
        if count:
            with open_store(forked) as store:
                store.fork("c1", 30, "c1/a")
        found = [beginning_with_c1(forked) for _ in range(4)]
        assert [ids for ids, _ in found] == [begins] * 4
        assert [asked for _, asked in found] == [1, 1, 0, 0]


def test_a_transaction_reads_the_state_that_it_began_with(path: Path, at_rest: Callable[[], None]):
    at_rest()
    with open_store(path) as store:
        store.append("c2", Message(source="user", content="another"), expected_version=0)
    for _ in range(2):
        with open_store(path) as store:
            assert [store.version(name) for name in ("c1", "c2")] == [40, 1]

    def read(moment: Moment) -> list[int]:
        versions = [moment.conversation("c1").version]
        with open_store(path) as other:
            other.append("c2", Message(source="user", content="one more"), expected_version=1)
            other.fork("c1", 30, "c1/a")
        assert [fork.id for fork in moment.beginning_with("c1/")] == []
        return [*versions, moment.conversation("c2").version]

    with open_store(path) as store:
        assert query_all(store.database, read) == [40, 1]
        assert query_all(store.database, lambda moment: moment.conversation("c2").version) == 2
        assert query_all(store.database, lambda moment: [fork.id for fork in moment.beginning_with("c1/")]) == ["c1/a"]


def test_a_conversation_that_grew_while_the_store_was_open_is_asked_for(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert questions(path) == 1
    with open_store(path) as store, open_store(path) as other:
        assert store.version("c1") == 40
        other.append("c1", Message(source="user", content="one more"), expected_version=40)
        assert store.version("c1") == 41
        assert len(list(store.events("c1"))) == 41


def test_a_conversation_that_grew_is_asked_for_once_the_log_is_written_back(path: Path, at_rest: Callable[[], None]):
    """Then only the file shows the change."""
    at_rest()
    assert questions(path) == 1
    with open_store(path) as store:
        assert store.version("c1") == 40
        with open_store(path) as other:
            other.append("c1", Message(source="user", content="one more"), expected_version=40)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert store.version("c1") == 41


def test_a_conversation_that_grew_before_it_was_found_is_not_taken_for_that_of_the_file(
    path: Path, at_rest: Callable[[], None]
):
    at_rest()
    with open_store(path) as store, open_store(path) as other:
        other.append("c1", Message(source="user", content="one more"), expected_version=40)
        assert store.version("c1") == 41
        assert [each.conversations.get("c1") for each in checked._by_state.values()] == [None]


def test_a_fork_whose_past_is_copied_while_the_store_is_open_is_asked_for(forked: Path, at_rest: Callable[[], None]):
    at_rest()
    conversation_questions(forked, "c3")
    with open_store(forked) as store, open_store(forked) as other:
        before = list(store.events("c3"))
        erase(other, "c1", reason="asked for", detach_forks=True)
        assert list(store.events("c3")) == before
        assert store.query("c3", lambda read: [border.parent for border in read.lineage]) == ["c2"]


def test_a_file_that_changed_a_moment_ago_is_checked(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checked, "_FINE_NS", 600 * 10**9)
    monkeypatch.setattr(checked, "_COARSE_NS", 600 * 10**9)
    assert [questions(path) for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    "changed_ns, rests_after_ns",
    [(10**18, 2 * 10**9), (10**18 + 5_000_000, 2 * 10**9), (10**18 + 5_123_456, 10**8)],
    ids=["whole seconds", "whole milliseconds", "finer"],
)
def test_a_moment_is_as_long_as_the_times_of_files_are_coarse(
    monkeypatch: pytest.MonkeyPatch, changed_ns: int, rests_after_ns: int
):
    for age_ns, is_young in ((0, True), (rests_after_ns - 1, True), (rests_after_ns, False), (-1, True)):
        monkeypatch.setattr(checked.time, "time_ns", lambda age_ns=age_ns: changed_ns + age_ns)
        assert checked._is_young(changed_ns) is is_young


def test_a_long_view_of_a_file_at_rest_is_made_without_a_question(path: Path, at_rest: Callable[[], None]):
    at_rest()
    with foldlog.open(path) as histories:
        histories["c1"].append([Message(source="user", content=f"message {n}") for n in range(3_000)])
    with foldlog.open(path) as histories:
        assert histories["c1"].view.version == 3_040
    statements: list[str] = []
    with traced(statements), foldlog.open(path) as histories:
        opened = len(statements)
        view = histories["c1"].view
        assert len(statements) == opened
        with open_store(path) as other:
            other.append("c1", Message(source="user", content="one more"), expected_version=3_040)
        assert [event.id for event in view.tail(2)] == [3_038, 3_039]
        assert [event.id for event in histories["c1"].view.tail(2)] == [3_039, 3_040]
    with pytest.raises(StoreUnusable, match="closed"):
        _ = histories["c1"].view


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


@pytest.mark.parametrize("change", ["CREATE TRIGGER t BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END", None])
def test_a_schema_is_compared_again_once_the_file_has_changed(
    path: Path, at_rest: Callable[[], None], change: str | None
):
    at_rest()
    assert [schema_questions(path) for _ in range(3)] == [1, 0, 0]
    if change is None:
        with open_store(path) as store:
            store.append("c1", Message(source="user", content="one more"), expected_version=40)
        assert [schema_questions(path) for _ in range(2)] == [1, 0]
        return
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
    with pytest.raises(StoreUnusable, match="a trigger 't' that foldlog did not make"):
        open_store(path)


def test_a_schema_is_compared_again_where_the_change_is_still_in_the_log(path: Path, at_rest: Callable[[], None]):
    at_rest()
    assert [schema_questions(path) for _ in range(2)] == [1, 0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIEW v AS SELECT 1")
        with pytest.raises(StoreUnusable, match="a view 'v' that foldlog did not make"):
            open_store(path)


def beginning_with_c1(path: Path) -> tuple[list[str], int]:
    """Open the store, read a conversation and those below it; return their ids, and how often they were looked for."""
    statements: list[str] = []

    def read(moment: Moment) -> list[str]:
        assert moment.conversation("c1").version == 40
        return [each.id for each in moment.beginning_with("c1/")]

    with traced(statements), open_store(path) as store:
        ids = query_all(store.database, read)
    return ids, sum("SELECT id FROM conversations" in statement for statement in statements)


def conversation_questions(path: Path, name: str = "c1") -> list[str]:
    """Open the store, read a conversation; return the questions for it and for its ancestors."""
    statements: list[str] = []
    with traced(statements), open_store(path) as store:
        assert len(list(store.events(name))) == store.version(name)
    return [statement for statement in statements if "FROM conversations c" in statement]


def schema_questions(path: Path) -> int:
    """Open the store; return how often its schema was asked for."""
    statements: list[str] = []
    with traced(statements):
        open_store(path).close()
    return sum("sqlite_schema" in statement for statement in statements)


def hide_the_newest_event(path: Path) -> None:
    """Take the last entry out of the index of ids, which is one page, and leave the row that it leads to."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events_by_id'").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    entries = slice((page - 1) * page_bytes + 3, (page - 1) * page_bytes + 5)
    content[entries] = (int.from_bytes(content[entries]) - 1).to_bytes(2)
    path.write_bytes(content)
