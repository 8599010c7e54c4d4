"""The baseline: for one question, the fastest known program, written by hand with sqlite3.

The baseline has a minimal table of four columns, WAL, ``synchronous=FULL``, prepared statements,
and msgspec for the bodies. It does not check ids, has no versions, and supports one process. Where
foldlog hashes or checks what it reads or writes, ``with_proofs`` and ``with_checks`` do the same by
hand, and ``identity`` shows whether the file still has its name.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
    summary_id,
)

__all__ = [
    "DECODE",
    "RawStore",
    "body_of",
    "fold",
    "identity",
    "timeless",
    "with_checks",
    "with_proofs",
]

_ENCODER = msgspec.json.Encoder()
DECODE = msgspec.json.Decoder(
    SystemMessage | Message | Action | Observation | CondensationAction
).decode


def body_of(event: Event) -> bytes:
    return _ENCODER.encode(event)


def timeless(events: Iterable[Event]) -> list[Event]:
    """Return the events without their times, because the baseline does not store the time of
    recording.
    """
    return [replace(event, timestamp=None) for event in events]


def with_proofs(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Append to each body a salt, the head of a hash chain, and a checksum: two hashes and two
    checksums for each body.
    """
    head = b""
    for body in bodies:
        salt = os.urandom(16)
        head = sha256(head + sha256(salt + body).digest()).digest()
        proof = salt + head + crc32(body).to_bytes(4)
        yield body + proof + crc32(proof).to_bytes(4)


def with_checks(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Compute two checksums of each body, of its bytes and of the fields beside it."""
    for body in bodies:
        crc32(body[:70], crc32(body))
        yield body


def identity(path: str | Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_nlink


def fold(events: Iterable[Event]) -> list[Event]:
    """Fold these histories, which have no batches, loops or dialects."""
    items: list[Event] = []
    for event in events:
        if type(event) is not CondensationAction:
            items.append(event)
            continue
        forgotten = set(event.forgotten_event_ids or ())
        items = [item for item in items if item.id not in forgotten]
        summary = CondensationSummary(
            id=summary_id(event.id), content=event.summary or "", summary_of=event.id
        )
        items.insert(event.summary_offset or 0, summary)
    return items


class RawStore:
    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.text_factory = bytes
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS events "
            "(conversation TEXT, id INTEGER, kind TEXT, body BLOB, PRIMARY KEY (conversation, id))"
        )

    def append(self, conversation: str, event_id: int, body: bytes) -> None:
        self.db.execute(
            "INSERT INTO events VALUES (?, ?, 'event', ?)", (conversation, event_id, body)
        )

    def append_batch(self, conversation: str, first: int, bodies: Iterable[bytes]) -> None:
        rows = (
            (conversation, event_id, "event", body) for event_id, body in enumerate(bodies, first)
        )
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        self.db.execute("COMMIT")

    def bodies(self, conversation: str, stop: int) -> Iterator[bytes]:
        rows = self.db.execute(
            "SELECT id, body FROM events WHERE conversation = ? AND id < ? ORDER BY id",
            (conversation, stop),
        )
        return (body for _, body in rows)

    def close(self) -> None:
        self.db.close()
