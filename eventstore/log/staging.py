"""Staged conversations, and the deletion of rows in small transactions.

A staged conversation is one that an import or a copy writes. It is invisible until it is published.
"""

from __future__ import annotations

import time

from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.changes import Finished
from foldlog.eventstore.recorders.errors import IntegrityError

CHUNK = 1_000
"""The number of rows that one transaction deletes."""
REST_S = 0.005
"""The pause between two transactions, in which other writers get the write lock."""
IMPORT = "import"
BACKUP = "backup"
ERASE = "erase"
DETACH = "detach"
REKEY = "rekey"
"""The operations that may be left unfinished."""


def staged(transaction: Transaction, database: Database, key: int) -> WriteTransaction:
    """Return the staged conversation with this key. Raises ``IntegrityError`` where it was discarded."""
    found = database.find_key(transaction, key)
    if found is None:
        raise IntegrityError(f"conversation number {key} is not staged any more: its import was discarded")
    return WriteTransaction(transaction, found, database)


def staged_keys(reader: Reader, conversation: str) -> list[int]:
    """Return the keys of the staged conversations with an id: imports that are running, or were killed."""
    return [each.key for each in reader.unfinished() if each[1:3] == (conversation, IMPORT)]


def discard_staged(recorder: Recorder, conversation: str) -> None:
    """Discard imports of this conversation that are running or were killed. A running import then fails at its end."""
    for key in recorder.query(lambda reader: staged_keys(reader, conversation)):
        delete_rows(recorder, key)


def delete_rows(recorder: Recorder, key: int) -> None:
    """Delete a staged conversation, or the rows of an erased one. Cost: the rows, in small transactions."""
    while not recorder.transact(lambda transaction: transaction.delete(key, CHUNK)):
        time.sleep(REST_S)


def discard_copies(recorder: Recorder, key: int) -> None:
    """Discard what a detachment that is not complete has copied to a fork. Cost: the copied rows."""

    def some(transaction: Transaction) -> bool:
        transaction.conversation(key)  # on a server, other writers wait from here on
        if all(each.operation != DETACH for each in transaction.unfinished(key)):
            return True
        is_done = transaction.delete(key, CHUNK)
        if is_done:
            transaction.change(key, Finished())
        return is_done

    while not recorder.transact(some):
        time.sleep(REST_S)
