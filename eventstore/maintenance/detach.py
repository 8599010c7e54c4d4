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
from foldlog.eventstore.log.staging import DETACH, REST_S
from foldlog.eventstore.log.writing import WriteTransaction, forget_records
from foldlog.eventstore.maintenance.unfinished import Met, on_finished
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.changes import Finished, Left

_CHUNK = 1_000


def detach(database: Database, fork: str) -> None:
    """Copy the events that a fork shares under its own key, in small transactions, then leave the parent.

    No reader sees the copies before that. A detachment that was stopped goes on when it is run again; another operation
    that meets it discards the copies. Raises ``CorruptEvent`` where a shared event is damaged. Cost: the shared events.
    """
    while on_finished(database, partial(_copy_on, database=database, fork=fork)):
        time.sleep(REST_S)


def _copy_on(transaction: Transaction, database: Database, fork: str) -> bool:
    """Copy the next events. Return False once the fork has left its parent."""
    found = not_erased(database.find(transaction, fork))
    if found is None or found.parent is None:
        return False
    left = transaction.unfinished(found.key)
    if left and left[0].operation != DETACH:
        raise Met(left[0])
    start, begins = int(left[0].state) if left else 0, found.begins
    stop = min(start + _CHUNK, begins)
    writing = WriteTransaction(transaction, found, database)
    if start < stop:
        rows = writing.rows(start, stop, stop - start)
        if [row.id for row in rows] != list(range(start, stop)):
            raise CorruptEvent(fork, start, f"this event, or one up to {stop - 1}, is missing")
        writing.insert_past(with_checksums(checksum_seed(fork), [sound(fork, row) for row in rows]))
        transaction.change(found.key, Left(DETACH, str(stop)))
        writing.end()
        return True
    forget_records(transaction, found.key, but=ATTRIBUTES)  # they build on those of the parent
    writing.keep_past(links_of(database, transaction, found), begins)
    writing.place_past(begins)
    transaction.change(found.key, Finished())
    enter(transaction, found, Detached(parent=found.parent_id or "", version=begins), database.now())
    writing.end()
    return False
