"""Who follows a store around a damaged page meets all that stands between its rows."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eventstore import Message, open_store
from eventstore.maintenance.erase import erase
from eventstore.recorders.base import RecorderOfFile
from eventstore.recorders.sqlite.recorder import SQLiteRecorder
from eventstore.stored.database import Database
from eventstore.stored.row_codec import DAMAGED


def damage(path: Path, content: bytes) -> None:
    """Overwrite the page that has this content."""
    file = bytearray(path.read_bytes())
    for page in range(0, len(file), 4_096):
        if content in file[page : page + 4_096]:
            file[page : page + 4_096] = b"\xff" * 4_096
    path.write_bytes(file)


def test_an_erasure_between_unreadable_rows_is_met(tmp_path: Path):
    path = tmp_path / "store.db"
    live = [Message(source="user", content=f"live {n:04} " + "x" * 300) for n in range(100)]
    with open_store(path) as store:
        store.append("gone", live[:1], expected_version=0)
        store.append("stays", live[:50], expected_version=0)
        erase(store, "gone", reason="asked")
        store.append("stays", live[50:], expected_version=50)
    damage(path, b"live 0049 ")
    met, more = [], True
    with open_store(path) as store:
        while more:
            rows, more = store.database.readable_places(met[-1].position if met else 0, 100)
            met += rows
    assert [placed.position for placed in met] == list(range(2, 103))
    assert met[50].conversation == "gone"
    assert met[49].row.encoding == DAMAGED


def test_places_of_one_moment_are_not_taken_for_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        events = [Message(source="user", content=f"live {n:04} " + "x" * 300) for n in range(100)]
        store.append("c", events, expected_version=0)
    damage(path, b"live 0049 ")
    asked = []
    from_index, next_places = SQLiteRecorder.places_after, Database._places_after

    def counted(recorder: SQLiteRecorder, position: int, limit: int) -> Sequence[tuple[int, str, int]]:
        asked.append(position)
        return from_index(recorder, position, limit)

    def and_then_another_thread_reads(database: Database, recorder: RecorderOfFile, position: int) -> object:
        found = next_places(database, recorder, position)
        monkeypatch.undo()
        monkeypatch.setattr(SQLiteRecorder, "places_after", counted)
        with open_store(path) as other:
            other.append("new", Message(source="user", content="commits"), expected_version=0)
        database.readable_places(50, 1)
        return found

    monkeypatch.setattr(Database, "_places_after", and_then_another_thread_reads)
    with open_store(path) as store:
        database = store.database
        ((met,), _) = database.readable_places(49, 1)
        assert (met.position, met.row.encoding, asked) == (50, DAMAGED, [50])
        database.readable_places(50, 1)
        assert asked == [50, 50]
