"""Ask about a store as a whole: who holds its followers back, and what a restored backup has lost."""

from __future__ import annotations

from eventstore.errors import InvalidOption
from eventstore.recorders.base import RecorderOfFile
from eventstore.recorders.server import RecorderOnServer, Status
from eventstore.store import Store
from eventstore.stored.database import translated
from eventstore.values.arguments import whole

__all__ = ["follower_status", "lost_after"]


def follower_status(store: Store) -> Status:
    """Return which session holds the followers of a store on a server back, and how far behind they are.

    Raises ``InvalidOption`` where the store is not on a server; there, nothing holds followers back.
    """
    recorder = store.database.recorder
    if not isinstance(recorder, RecorderOnServer):
        raise InvalidOption("follower status exists only for PostgreSQL stores")
    with translated():
        return recorder.status()


def lost_after(store: Store, position: int) -> int | None:
    """Return the last position at or before ``position`` that the store still has, where the store was restored from a
    backup that was made before ``position`` was given; None where no event up to it was lost.

    A follower that gets a number has read events that are no longer in the store. It drops what it derived from them,
    and resumes after its own position: no position is given twice. On a PostgreSQL server: None.
    """
    whole("position", position)
    recorder = store.database.recorder
    if not isinstance(recorder, RecorderOfFile):
        return None
    with translated():
        return recorder.lost_after(position)
