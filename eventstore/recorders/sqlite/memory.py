"""A store in memory, for tests and short histories. A store in memory is a SQLite database without
a file, so closing the store deletes it.

docs/internals/decisions/0091-memory-is-sqlite.md explains why a store in memory has no tables of
its own.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from foldlog.eventstore.errors import StoreRefused
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction, makes_missing_events
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN
from foldlog.eventstore.recorders.sqlite import schema
from foldlog.eventstore.recorders.sqlite.errors import is_ours, translate, translate_errors
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.eventstore.recorders.sqlite.transaction import SQLiteTransaction
from foldlog.eventstore.recorders.types import Outcome, new_store_uuid
from foldlog.eventstore.recorders.writers import INSIDE, check_not_writing, note_committed

T = TypeVar("T")

_NAME = "memory:"


class MemoryRecorder(Recorder):
    """A recorder on one connection, with one lock for readers and writers. The store in memory does
    not change while a reader holds the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = _connect()
        _empty_store().backup(self._connection)
        self._transaction = SQLiteTransaction(self._connection)
        self._uuid = new_store_uuid()
        self._commits = 0

    @makes_missing_events
    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        writer = check_not_writing(self._uuid, _NAME)
        committed = False
        try:
            try:
                INSIDE.add(writer)
                with self._lock:
                    connection = self._open()
                    if connection.in_transaction:  # left by an interruption
                        self._roll_back(connection)
                    try:
                        connection.execute("BEGIN")
                        result = work(self._transaction)
                        self._commits += 1
                        committed = True  # valid once the transaction has ended
                        connection.execute("COMMIT")
                    except BaseException:
                        committed = committed and not connection.in_transaction
                        if not committed:
                            self._roll_back(connection)
                        raise
                    return result
            finally:
                INSIDE.discard(writer)
        except BaseException as error:
            if committed:
                note_committed(error)
            elif is_ours(error):
                raise translate(error, f"write to {_NAME}", NOTHING_WRITTEN) from error
            raise

    def transact_all(
        self, works: Sequence[tuple[Callable[[Transaction], T], bool]]
    ) -> Sequence[Outcome[T]]:
        check_not_writing(self._uuid, _NAME)
        return super().transact_all(works)

    def set_next_key(self, key: int) -> None:
        with self._lock:
            self._open().execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('conversations', ?)", (key - 1,)
            )

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._transaction.forget()  # forget even if SQLite has already rolled the transaction back
        connection.rollback()

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self._lock, translate_errors(f"read {_NAME}"):
            yield self._reader()

    def value(self, name: str) -> str:
        with self._lock:
            match name:
                case "uuid":
                    return self._uuid
                case "data_version":
                    return str(self._commits)
            return self._reader().value(name)

    @property
    def last_conversation(self) -> Any:
        with self._lock:
            if self._open().in_transaction:
                return None
            return self._transaction.last_conversation

    def compact(self, patience_s: float) -> bool:
        return True  # no bytes are on a disk

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        return iter(())  # there is no file to check

    def close(self) -> None:
        check_not_writing(self._uuid, _NAME)
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _reader(self) -> SQLiteReader:
        return _MemoryReader(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreRefused(
                "this store in memory was closed, which deleted its histories; open another store",
                kind="closed",
            )
        return self._connection


class _MemoryReader(SQLiteReader):
    """A reader of a database in memory, which never waits for bytes on a disk."""

    def value(self, name: str) -> str:
        # No bytes are on a disk.
        if name == "bytes_pending":
            return ""
        return super().value(name)


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.text_factory = bytes
    return connection


@cache
def _empty_store() -> sqlite3.Connection:
    # A copy takes a twentieth of the time of the migrations.
    connection = _connect()
    schema.migrate(connection, _NAME, 0)
    return connection
