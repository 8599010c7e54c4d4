"""List the erased conversations."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.types import as_text


class Tombstone(NamedTuple):
    """An erased conversation. ``events`` is the number of events that it had."""

    id: str
    events: int
    erased_at: datetime
    reason: str


def list_tombstones(database: Database, after: str, limit: int) -> list[Tombstone]:
    """Return up to ``limit`` tombstones with ids after ``after``, sorted by the UTF-8 bytes of
    their ids.

    Cost: SQLite looks at the conversations with entries in the ledger, and PostgreSQL at the
    tombstones.
    """
    rows = database.recorder.query(lambda reader: reader.ask_all("tombstones", after, limit))
    tombstones = [
        Tombstone(as_text(name), events, from_microseconds(erased_at), as_text(reason))
        for name, events, erased_at, reason in rows
    ]
    # Joined stores answer one after another.
    return sorted(tombstones)[:limit]
