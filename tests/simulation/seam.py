"""Where faults come in: a recorder that stands before the real one, and stops at every transaction
and every statement.

A process that is killed here is dead: whatever it still asks, in a ``finally`` or a handler, it is
killed again, so it writes nothing more. What the real recorder has committed by then stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN
from foldlog.eventstore.recorders.types import Outcome

T = TypeVar("T")


class Killed(BaseException):
    """The process was killed here."""


class Seam:
    """A recorder in front of another one. ``at_transaction`` is called before each transaction and
    each question.
    """

    def __init__(self, recorder: Recorder, *, shared: bool) -> None:
        self.inner = recorder
        self.path, self.on_server = recorder.path, recorder.on_server
        self.writable = recorder.writable
        self._shared = shared
        self.dead = False
        self.arm()

    @property
    def __class__(self) -> Any:
        """Pass for a recorder of the kind that stands behind."""
        return self.inner.__class__

    def arm(
        self,
        kill_at: int = 0,
        refuse_at: int = 0,
        at_transaction: Callable[[], object] | None = None,
    ) -> None:
        """From now on, count. Kill before the ``kill_at``-th statement or commit's end, refuse the
        ``refuse_at``-th transaction; 0 is never.
        """
        self.kill_at, self.refuse_at, self.at_transaction = kill_at, refuse_at, at_transaction
        self.statements = self.transactions = self.commits = 0

    def statement(self) -> None:
        if self.dead:
            raise Killed
        self.statements += 1
        if self.statements == self.kill_at:
            self.dead = True
            raise Killed

    def _boundary(self) -> None:
        if self.dead:
            raise Killed
        if self.at_transaction is not None:
            self.at_transaction()

    def transact(
        self, work: Callable[[Transaction], T], *, any_thread: bool = False, at_once: bool = False
    ) -> T:
        self._boundary()
        self.transactions += 1
        if self.transactions == self.refuse_at:
            raise StoreUnavailable(
                f"the disk of the simulation is full{NOTHING_WRITTEN}", kind="full"
            )
        if not self.kill_at:
            result = self.inner.transact(work, any_thread=any_thread)
            self.commits += 1
            return result
        self.statement()
        result = self.inner.transact(lambda transaction: work(_Statements(transaction, self)))  # type: ignore[arg-type]
        self.commits += 1
        self.statement()
        return result

    def offer(self, work: Callable[[Transaction], object], *, at_once: bool = True) -> bool:
        return Recorder.offer(self, work, at_once=at_once)  # type: ignore[arg-type]

    def transact_all(
        self, works: Sequence[tuple[Callable[[Transaction], T], bool]]
    ) -> Sequence[Outcome[T]]:
        self._boundary()
        outcomes = self.inner.transact_all(works)
        self.commits += 1
        return outcomes

    @contextmanager
    def read(self) -> Iterator[Reader]:
        self._boundary()
        with self.inner.read() as reader:
            yield reader

    def query(self, work: Callable[[Reader], T]) -> T:
        self._boundary()
        return self.inner.query(work)

    def value(self, name: str) -> str:
        if self.dead:
            raise Killed
        return self.inner.value(name)

    def compact(self, patience_s: float, *on_progress: Callable[[int, int], object]) -> bool:
        self._boundary()
        return self.inner.compact(patience_s, *on_progress)

    @property
    def on_copy(self) -> Callable[[Transaction, int], None]:
        return self.inner.on_copy

    @on_copy.setter
    def on_copy(self, call: Callable[[Transaction, int], None]) -> None:
        self.inner.on_copy = call

    def close(self) -> None:
        if not self._shared:
            self.inner.close()

    def __getattr__(self, name: str) -> Any:
        if self.__dict__.get("dead"):
            raise Killed
        return getattr(self.__dict__["inner"], name)


class _Statements:
    """A transaction that may be killed before each of its statements."""

    def __init__(self, transaction: Transaction, seam: Seam) -> None:
        self._transaction, self._seam = transaction, seam

    def __getattr__(self, name: str) -> Any:
        self._seam.statement()
        return getattr(self._transaction, name)
