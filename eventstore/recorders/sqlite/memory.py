"""A store in memory, for tests and short-lived histories: a SQLite database without a file, gone when it is closed.

Why it has no tables of its own: docs/decisions/0091-memory-is-sqlite.md.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.errors import NOTHING_WRITTEN, InterfaceError
from eventstore.recorders.nesting import INSIDE, mark_of, nested, note_committed
from eventstore.recorders.sqlite import schema
from eventstore.recorders.sqlite.errors import is_ours, translate, translated
from eventstore.recorders.sqlite.reader import SQLiteReader
from eventstore.recorders.sqlite.transaction import SQLiteTransaction
from eventstore.recorders.types import new_store_uuid
from eventstore.values.outcome import Outcome

T = TypeVar("T")

_NAME = "memory:"


class MemoryRecorder:
    """A recorder on one connection, with one lock for all: a reader sees the store as it is while it holds the lock."""

    writable = True
    on_server = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = _connect()
        _empty_store().backup(self._connection)
        self._transaction = SQLiteTransaction(self._connection)
        self._uuid = new_store_uuid()
        self._commits = 0

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        mark = mark_of(self._uuid)
        if mark in INSIDE:
            raise nested(_NAME)
        committed = False
        try:
            try:
                INSIDE.add(mark)
                with self._lock:
                    connection = self._open()
                    self._roll_back(connection)  # where that was interrupted
                    try:
                        connection.execute("BEGIN")
                        result = work(self._transaction)
                        self._commits += 1
                        committed = True  # if the transaction has ended
                        connection.execute("COMMIT")
                    except BaseException:
                        committed = committed and not connection.in_transaction
                        self._roll_back(connection)
                        raise
                    return result
            finally:
                INSIDE.discard(mark)
        except BaseException as error:
            if committed:
                note_committed(error)
            elif is_ours(error):
                raise translate(error, f"write to {_NAME}", NOTHING_WRITTEN) from error
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            self._transaction.forget()
            connection.rollback()

    def transact_all(self, works: Sequence[tuple[Callable[[Transaction], T], bool]]) -> list[Outcome[T]]:
        if mark_of(self._uuid) in INSIDE:
            raise nested(_NAME)
        return [Outcome.of(partial(self.transact, work)) for work, _ in works]

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self._lock, translated(f"read {_NAME}"):
            yield self._reader()

    def query(self, work: Callable[[Reader], T]) -> T:
        with self.read() as reader:
            return work(reader)

    def value(self, name: str) -> str:
        with self._lock:
            self._open()
            facts = {"uuid": self._uuid, "data_version": str(self._commits), "bytes_pending": ""}  # none is on a disk
            return facts[name] if name in facts else self._reader().value(name)

    def era(self) -> int | None:
        with self._lock:
            return None if self._open().in_transaction else self._transaction.era

    def purge(self) -> bool:
        return True  # none is on a disk

    def check(self) -> Iterator[str]:
        return iter(())  # nor are there files

    def close(self) -> None:
        if mark_of(self._uuid) in INSIDE:
            raise nested(_NAME)
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _reader(self) -> SQLiteReader:
        return SQLiteReader(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise InterfaceError("this store in memory was closed, and its histories are gone with it")
        return self._connection


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.text_factory = bytes
    return connection


@cache
def _empty_store() -> sqlite3.Connection:
    """Return an empty store to copy: to copy it takes a twentieth of the time of the migrations."""
    connection = _connect()
    schema.migrate(connection, _NAME, 0)
    return connection
