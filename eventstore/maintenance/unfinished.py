"""Finish operations of several transactions that were interrupted.

The progress of an operation is a row of the store, which each transaction of the operation writes.
Each step reads this row, so it does not matter whether the operation was killed or still runs in
another process. An operation first finishes any other operation on its conversation:

    erase     rows of an erased conversation are deleted
    import    rows that no reader sees yet (of an import or a copy) are discarded: run it again
    detach    copies of the past of a fork are discarded: the fork still shares it, and can be
              detached again
    rekey     goes on, with the settings of its beginning
    backup    the file of a backup that was killed is removed
    archive   the object is deleted: the rows are in the store (discard: deletion has begun)
    archived  is complete, and names the object; what would change old events restores them first
    restored  is complete too; what changes old events, or archives them again, deletes the object
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from foldlog.eventstore.errors import KeyUnavailable
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.importing import (
    ARCHIVE,
    ARCHIVED,
    BACKUP,
    DISCARD,
    ERASE,
    REKEY,
    RESTORED,
    delete_rows,
)
from foldlog.eventstore.maintenance.archived import delete_object, discard, restore
from foldlog.eventstore.maintenance.rekey_steps import change_all
from foldlog.eventstore.recorders.base import PATIENCE_S, Recorder, Transaction
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN, Failure
from foldlog.eventstore.recorders.sqlite.replacing import PART, is_abandoned
from foldlog.eventstore.recorders.types import Unfinished

T = TypeVar("T")

_PURGES_MAX: Final = 10
_PURGES_S: Final = 60.0
_purges: Final = WeakKeyDictionary[Recorder, deque[float]]()
"""The moments at which each recorder vacuumed a store last."""


class OperationUnfinished(Exception):
    """A transaction needs an ``Unfinished`` operation to be finished first. No caller of the store
    gets this error.
    """


def check_finished(transaction: Transaction, key: int) -> None:
    """Raise ``OperationUnfinished`` if an operation on the conversation with this key is not
    complete.
    """
    for operation in transaction.unfinished(key):
        raise OperationUnfinished(operation)


def on_finished(database: Database, work: Callable[[Transaction], T]) -> T:
    """Run ``work`` in a write transaction. If ``work`` raises ``OperationUnfinished``, the
    unfinished operation is finished, and ``work`` is run again.
    """
    while True:
        try:
            return database.recorder.transact(work)
        except OperationUnfinished as error:
            finish(database, *error.args)


def finish(database: Database, interrupted: Unfinished) -> None:
    """Finish an operation. Raises ``KeyUnavailable`` if the operation's key is missing. Cost:
    running the remaining transactions of the operation.
    """
    key, name, operation, state = interrupted
    if operation == REKEY:
        try:
            change_all(database, key)
        except KeyUnavailable as error:
            raise KeyUnavailable(
                f"a 'foldlog store rekey' of conversation {name!r} is not complete: {error}"
            ) from error
    elif operation == BACKUP:
        if os.path.exists(state) and not (state.endswith(PART) and is_abandoned(state)):
            return  # it still runs
        for file in (state, f"{state}-journal"):
            Path(file).unlink(missing_ok=True)
        database.recorder.transact(lambda transaction: transaction.finish(key))
    elif operation == ARCHIVED:
        restore(database, name)
    elif operation in (ARCHIVE, RESTORED, DISCARD):
        discard(database.recorder, interrupted)
    else:
        if operation == ERASE and state:
            delete_object(state)
        delete_rows(database.recorder, key)


def purge(recorder: Recorder, what_is_done: str) -> None:
    """Remove the bytes of deleted and replaced rows, on PostgreSQL, at most ten times a minute. In
    a SQLite file, and if this role may not remove the bytes, ``bytes_pending`` stays true.

    The call waits for open transactions for a minute, then raises ``StoreUnavailable``. If the disk
    fails, the call raises ``StoreUnavailable`` too. The attribute ``unfinished`` of the error is
    true.
    """
    try:
        if recorder.on_server and _is_due(recorder):
            _note_purge(recorder, 1)
            stores: list[int] = []
            recorder.compact(PATIENCE_S, lambda done, of: stores.append(done))
            _note_purge(recorder, len(stores) - 1)
    except FAILURES as error:
        raise mark_unfinished(
            f"{what_is_done}, but the deleted bytes are still in the files", error
        ) from error


def _is_due(recorder: Recorder) -> bool:
    """Return whether this recorder may be vacuumed now. A vacuum reads whole tables, so after many
    erasures only some are followed by a vacuum.
    """
    purges = _purges.setdefault(recorder, deque(maxlen=_PURGES_MAX))
    return len(purges) < _PURGES_MAX or time.monotonic() - purges[0] >= _PURGES_S


def _note_purge(recorder: Recorder, stores: int) -> None:
    _purges[recorder].extend([time.monotonic()] * stores)


def mark_unfinished(done: str, error: Failure) -> Failure:
    """Return the error for work that the disk or the server interrupted. ``done`` says which part
    of the work is done.
    """
    cause = str(error).removesuffix(NOTHING_WRITTEN)
    error.args = (f"{done} ({cause}); run the same command again to finish it",)
    error.unfinished = True
    return error
