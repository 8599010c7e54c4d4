"""Finish interrupted operations that need several transactions.

Each operation keeps its progress in a row of the store. Each transaction of the operation updates
this row, and each step reads the row. Another process can therefore continue an operation, even
while the first process still works on it. Before an operation begins, any unfinished operation on
its conversation is finished:

``erase``: delete the remaining rows of the erased conversation.
``import``: discard the invisible rows of an import or a copy. The import has to be run again.
``detach``: discard the fork's copies of shared events. The fork still shares the events, and can be
detached again.
``rekey``: continue with the settings with which the rekey began.
``backup``: remove the file of a killed backup.
``archive``: delete the object, because the rows are still in the store.
``discard``: continue to delete the object.
``archived``: restore the events, if the operation will change them. The archiving itself is
complete.
``restored``: delete the object, if the operation will change old events or archive them again. The
restoring itself is complete.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from foldlog.eventstore.errors import KeyUnavailable, StoreUnavailable
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.importing import (
    ARCHIVE,
    ARCHIVED,
    BACKUP,
    DELETE_OBJECT,
    ERASE,
    REKEY,
    REMINDER,
    RESTORED,
    delete_rows,
)
from foldlog.eventstore.maintenance.archive_objects import (
    delete_owned,
    delete_reminded_objects,
    delete_unneeded_object,
    restore,
)
from foldlog.eventstore.maintenance.rekey_steps import change_all
from foldlog.eventstore.recorders.base import Recorder, Transaction
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN, Failure
from foldlog.eventstore.recorders.sqlite.replacing import PART, is_abandoned
from foldlog.eventstore.recorders.types import Unfinished

T = TypeVar("T")

_PURGES_MAX: Final = 10
_PURGES_S: Final = 60.0
PURGE_PATIENCE_S: Final = 1.0
"""An erasure waits for older transactions for at most this time. Most transactions are shorter."""
_purges: Final = WeakKeyDictionary[Recorder, deque[float]]()
"""The times of the last vacuums, by ``time.monotonic``."""


class OperationUnfinished(Exception):
    """Another operation must be finished before a transaction can run. No caller of the store gets
    ``OperationUnfinished``.
    """


def check_finished(transaction: Transaction, key: int) -> None:
    """Raise ``OperationUnfinished`` if an operation on the conversation is not complete."""
    for operation in transaction.unfinished(key):
        raise OperationUnfinished(operation)


def on_finished(database: Database, work: Callable[[Transaction], T]) -> T:
    """Run ``work`` in a write transaction. If it raises ``OperationUnfinished``, finish the other
    operation, and run the work again.
    """
    while True:
        try:
            return database.recorder.transact(work)
        except OperationUnfinished as error:
            finish(database, *error.args)


def finish(database: Database, interrupted: Unfinished, *, copied_objects: bool = False) -> None:
    """Finish an interrupted operation, as the beginning of this file describes. ``copied_objects``
    is true if objects may be deleted that another copy of the store may need.
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
        if os.path.exists(state) and not (state.endswith(PART) and _is_left(state)):
            return  # the backup still runs
        for file in (state, f"{state}-journal"):
            _remove(file)
        database.recorder.transact(lambda transaction: transaction.finish(key))
    elif operation == ARCHIVED:
        restore(database, name)
    elif operation == REMINDER and key < 0:
        delete_reminded_objects(database.recorder, interrupted, copied_objects=copied_objects)
    elif operation in (ARCHIVE, RESTORED, DELETE_OBJECT):
        delete_unneeded_object(database.recorder, interrupted)
    else:  # an erasure, an import or a detachment
        if operation == ERASE and state:
            delete_owned(database.recorder, interrupted)
        delete_rows(database.recorder, key)


def _is_left(file: str) -> bool:
    """Return whether a killed backup left the file. Raises ``StoreUnavailable`` if this user cannot
    know, because the system refuses to open the file.
    """
    is_left = is_abandoned(file)
    if is_left is None:
        raise StoreUnavailable(
            f"cannot open {file}, which a running or a killed backup writes; run"
            " 'foldlog store vacuum' as a user who may read it",
            kind="denied",
        )
    return is_left


def _remove(file: str) -> None:
    """Remove a file that a killed backup left, if it exists. Raises ``StoreUnavailable`` if the
    system refuses.
    """
    try:
        os.unlink(file)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StoreUnavailable(
            f"cannot remove {file}, which a killed backup left: {error.strerror}; remove it as a"
            " user who may",
            kind="denied",
        ) from error


def purge(recorder: Recorder, what_is_done: str) -> None:
    """On PostgreSQL, remove the bytes of deleted and replaced rows, at most ten times a minute. No
    reader sees the rows before this call either. If an older transaction may still read the rows,
    or if this role may not vacuum the tables, ``bytes_pending`` stays true, as for a SQLite file. A
    later vacuum or erasure then removes the bytes.
    """
    if not recorder.on_server:
        return
    # A vacuum reads whole tables, so it must not follow every erasure.
    purges = _purges.setdefault(recorder, deque(maxlen=_PURGES_MAX))
    if len(purges) == _PURGES_MAX and time.monotonic() - purges[0] < _PURGES_S:
        return
    purges.append(time.monotonic())
    try:
        recorder.compact(PURGE_PATIENCE_S)
    except FAILURES as error:
        if error.kind != "read":
            raise mark_unfinished(
                f"{what_is_done}, but the deleted bytes are still in the files", error
            ) from error


def mark_unfinished(sentence: str, error: Failure) -> Failure:
    """Return ``error`` with a message that says that ``sentence`` is true, and that the same call
    finishes the operation.
    """
    cause = str(error).removesuffix(NOTHING_WRITTEN)
    error.args = (f"{sentence} ({cause}); run the same command again to finish it",)
    error.unfinished = True
    return error
