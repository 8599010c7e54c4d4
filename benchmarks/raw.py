"""The baseline: for one question, the fastest known program, written by hand with sqlite3.

The baseline has a minimal table of four columns, WAL, ``synchronous=FULL``, prepared statements,
and msgspec for the bodies. The baseline does not check ids, has no versions and no hash chain, and
supports one process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from foldlog.eventstore import Event

__all__ = ["RawStore", "body_of", "timeless"]

_ENCODER = msgspec.json.Encoder()


def body_of(event: Event) -> bytes:
    return _ENCODER.encode(event)


def timeless(events: Iterable[Event]) -> list[Event]:
    """Return the events without their times, because the baseline does not store the time of
    recording.
    """
    return [replace(event, timestamp=None) for event in events]


class RawStore:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.text_factory = bytes
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS events "
            "(conversation TEXT, id INTEGER, kind TEXT, body BLOB, PRIMARY KEY (conversation, id))"
        )

    def append(self, conversation: str, event_id: int, kind: str, body: bytes) -> None:
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)", (conversation, event_id, kind, body)
        )

    def append_batch(self, rows: Iterable[tuple[str, int, str, bytes]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def bodies(self, conversation: str, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        return self._db.execute(
            "SELECT id, body FROM events WHERE conversation = ? AND id >= ? AND id < ? ORDER BY id",
            (conversation, start, stop),
        )

    def checkpoint(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._db.close()
