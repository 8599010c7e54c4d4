"""Finish what operations of several transactions left, and say what remains to be done.

The state of such an operation is a row of the store, written in the transaction that it describes.
Each step reads it, so it does not matter whether the operation was killed or still runs in another
process, which then goes on from there. What an operation finds unfinished on its conversation, it
finishes first:

    erase     rows of an erased conversation are deleted
    import    rows that no reader sees yet (of an import or a copy) are discarded: run it again
    detach    copies of the past of a fork are discarded: the fork still shares it, and can be
              detached again
    rekey     goes on, with the settings that it was begun with
    backup    the file of a backup that was killed is removed
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
from foldlog.eventstore.log.importing import BACKUP, REKEY, delete_rows
from foldlog.eventstore.maintenance.rekey_steps import reform
from foldlog.eventstore.recorders.base import PATIENCE_S, Recorder, Transaction
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN, Failure
from foldlog.eventstore.recorders.sqlite.replacing import PART, is_abandoned
from foldlog.eventstore.recorders.types import Unfinished

T = TypeVar("T")

_PURGES_MAX: Final = 10
_PURGES_S: Final = 60.0
_purges: Final = WeakKeyDictionary[Recorder, deque[float]]()
"""The moments at which each recorder vacuumed a store last."""


class Met(Exception):
    """A transaction has met an ``Unfinished`` operation. No caller of the store gets this error."""


def check_finished(transaction: Transaction, key: int) -> None:
    """Raise ``Met`` where an operation on the conversation with this key is not complete."""
    for each in transaction.unfinished(key):
        raise Met(each)


def on_finished(database: Database, work: Callable[[Transaction], T]) -> T:
    """Run ``work`` in a write transaction. Each operation that it meets (``check_finished``) is
    finished first, then it is run again.
    """
    while True:
        try:
            return database.recorder.transact(work)
        except Met as met:
            finish(database, *met.args)


def finish(database: Database, left: Unfinished) -> None:
    """Finish an operation. Raises ``KeyUnavailable`` where its key is not given. Cost: what is left
    of it.
    """
    key, name, operation, state = left
    if operation == REKEY:
        try:
            reform(database, key)
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
    else:
        delete_rows(database.recorder, key)


def purge(recorder: Recorder, what_is_done: str) -> None:
    """Remove the bytes of deleted and replaced rows, on PostgreSQL, ten times a minute at most;
    else, in a SQLite file, and where this role may not, they stay ``bytes_pending``.

    The call waits for open transactions for a minute, then raises ``StoreUnavailable``, as it does
    where the disk refuses. The error is ``unfinished``.
    """
    try:
        if recorder.on_server and _is_due(recorder):
            _note_purge(recorder, 1)
            stores: list[int] = []
            recorder.compact(PATIENCE_S, lambda done, of: stores.append(done))
            _note_purge(recorder, len(stores) - 1)
    except FAILURES as error:
        raise unfinished(
            f"{what_is_done}, but the deleted bytes are still in the files", error
        ) from error


def _is_due(recorder: Recorder) -> bool:
    """Return whether this recorder may be purged: a vacuum looks at whole tables, and an erasure at
    a few rows.
    """
    purges = _purges.setdefault(recorder, deque(maxlen=_PURGES_MAX))
    return len(purges) < _PURGES_MAX or time.monotonic() - purges[0] >= _PURGES_S


def _note_purge(recorder: Recorder, stores: int) -> None:
    _purges[recorder].extend([time.monotonic()] * stores)


def unfinished(done: str, error: Failure) -> Failure:
    """Return the error for work that the disk or the server ended after a part of it was done."""
    cause = str(error).removesuffix(NOTHING_WRITTEN)
    error.args = (f"{done} ({cause}); run the same command again to finish it",)
    error.unfinished = True
    return error
