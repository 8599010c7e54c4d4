"""The seam: a store in memory behind one lock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from eventstore.recorders.base import Transaction
from eventstore.recorders.errors import InterfaceError
from eventstore.recorders.memory.reader import MemoryReader
from eventstore.recorders.memory.tables import Tables
from eventstore.recorders.memory.transaction import MemoryTransaction
from eventstore.recorders.nesting import INSIDE, mark_of, nested, note_committed
from eventstore.recorders.types import new_store_uuid
from eventstore.values.outcome import Outcome

T = TypeVar("T")


class MemoryRecorder:
    """A recorder on dicts and lists, one lock for all. A reader sees the store as it is while it holds the lock."""

    writable = True
    polls_cheaply = True

    def __init__(self) -> None:
        self._tables: Tables | None = Tables()
        self._lock = threading.RLock()
        self._uuid = new_store_uuid()
        self._commits = 0

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        mark = mark_of(self._uuid)
        if mark in INSIDE:
            raise nested("memory:")
        committed = False
        try:
            try:
                INSIDE.add(mark)
                with self._lock:
                    tables = self._open_tables()
                    try:
                        result = work(MemoryTransaction(tables))
                        tables.undo, committed = [], True
                    except BaseException:
                        tables.roll_back()
                        raise
                    self._commits += 1
                    return result
            finally:
                INSIDE.discard(mark)
        except BaseException as error:
            if committed:
                note_committed(error)
            raise

    def transact_all(self, works: Sequence[tuple[Callable[[Transaction], T], bool]]) -> list[Outcome[T]]:
        if mark_of(self._uuid) in INSIDE:
            raise nested("memory:")
        return [self._outcome(work) for work, _ in works]

    def _outcome(self, work: Callable[[Transaction], T]) -> Outcome[T]:
        try:
            return Outcome(self.transact(work))
        except BaseException as error:  # noqa: BLE001  it is raised where the call came from
            return Outcome(error=error)

    @contextlib.contextmanager
    def read(self) -> Iterator[MemoryReader]:
        with self._lock:
            yield MemoryReader(self._open_tables())

    def query(self, work: Callable[[MemoryReader], T]) -> T:
        with self.read() as reader:
            return work(reader)

    def value(self, name: str) -> str:
        with self._lock:
            tables = self._open_tables()
            if name == "data_version":
                return str(self._commits)
            if name == "last_position":
                return str(tables.last_position)
            return self._uuid if name == "uuid" else tables.facts.get(name, "")

    def close(self) -> None:
        if mark_of(self._uuid) in INSIDE:
            raise nested("memory:")
        with self._lock:
            self._tables = None

    def _open_tables(self) -> Tables:
        if self._tables is None:
            raise InterfaceError("this store in memory was closed, and its histories are gone with it")
        return self._tables
