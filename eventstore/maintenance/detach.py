"""Detach a fork from its parent: give it a copy of the events that it shares, so that the parent can be erased.

The events keep their ids and heads. When all are copied, they get positions: a follower reads them as events of the
fork, before it reads that the parent is erased.
"""

from __future__ import annotations

import time
from functools import partial

from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.events import ATTRIBUTES, Detached
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import links_of
from foldlog.eventstore.log.row import checksum_seed, not_erased, sound, with_checksums
from foldlog.eventstore.log.staging import REST_S
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction

_CHUNK = 1_000
_PROJECTIONS_MAX = 1_000


def detach(database: Database, fork: str) -> None:
    """Copy the events that a fork shares under its own key, in small transactions, then leave the parent.

    A detachment that was stopped resumes when it is run again. Raises ``CorruptEvent`` where a shared event is damaged.
    Cost: the shared events.
    """
    copied: int | None = 0
    while copied is not None:
        copied = database.recorder.transact(partial(_copy_on, database=database, fork=fork, start=copied))
        time.sleep(REST_S)


def _copy_on(transaction: Transaction, database: Database, fork: str, start: int) -> int | None:
    """Copy the next events from ``start`` on. Return the next id to copy; None once the fork has left its parent."""
    found = not_erased(database.find(transaction, fork))
    if found is None or found.parent is None:
        return None
    begins = found.begins
    stop = min(start + _CHUNK, begins)
    there = {row.id for row in transaction.rows(found.key, start, stop, _CHUNK)}
    writing = WriteTransaction(transaction, found, database)
    if start < stop:
        rows = writing.rows(start, stop, stop - start)
        if [row.id for row in rows] != list(range(start, stop)):
            raise CorruptEvent(fork, start, f"this event, or one up to {stop - 1}, is missing")
        missing = [sound(fork, row) for row in rows if row.id not in there]
        if missing:
            writing.insert_past(with_checksums(checksum_seed(fork), missing))
        writing.end()
        return stop
    for part in writing.past:
        for newest in transaction.records(part.key, None, 0, _PROJECTIONS_MAX):
            if newest.projection == ATTRIBUTES:
                continue  # lists keep one record, that of the fork
            shared = [record for record in writing.records(newest.projection) if record.version <= begins]
            writing.put_records(newest.projection, shared)
    writing.keep_past(links_of(database, transaction, found), begins)
    writing.place_past(begins)
    parent = found.parent_id or ""
    enter(transaction, found, Detached(parent=parent, version=begins), database.now())
    writing.end()
    return None
