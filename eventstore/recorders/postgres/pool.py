"""A bounded pool of connections. Who waits for one gets it in the order of coming."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from eventstore.recorders.errors import InterfaceError, OperationalError
from eventstore.recorders.postgres.wire import Wire

__all__ = ["Pool"]


class Pool:
    """At most ``size`` connections, each made when it is first needed, the one that rested shortest used next."""

    def __init__(self, connect: Callable[[], Wire], size: int, *, server: str, wait_s: float) -> None:
        self._connect = connect
        self._size = size
        self._server = server
        self._wait_s = wait_s
        self._mutex = threading.Lock()
        self._idle: list[Wire] = []
        self._free = size
        self._waiting: deque[threading.Lock] = deque()
        self._closed = False

    @contextlib.contextmanager
    def wire(self) -> Iterator[Wire]:
        """Give a connection for one transaction, which is rolled back if it is open at the end. A connection that still
        works returns to the pool.

        Raises ``OperationalError`` where all are in use for too long, or none can be made.
        """
        self._take_place()
        try:
            wire = self._idle_one() or self._connect()
            try:
                yield wire
            finally:
                wire.abandon()
                if self._closed or not wire.usable:
                    wire.close()
                else:
                    self._idle.append(wire)
        finally:
            self._leave_place()

    def forget_idle(self) -> None:
        """Close what rests: one connection was found broken, so the others may be too."""
        while (wire := self._idle_one()) is not None:
            wire.close()

    def close(self) -> None:
        """Close what rests; what is in use is closed when it comes back. Nothing is given out any more."""
        self._closed = True
        self.forget_idle()

    def _idle_one(self) -> Wire | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _take_place(self) -> None:
        with self._mutex:
            if self._closed:
                raise InterfaceError(f"{self._server} is closed; open it again")
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        began = time.monotonic()
        try:
            if turn.acquire(timeout=self._wait_s):
                return
        except BaseException:
            if self._give_up(turn):
                self._leave_place()
            raise
        if not self._give_up(turn):
            raise OperationalError(
                f"{self._server}: all {self._size} connections were in use for {time.monotonic() - began:.0f} s; "
                f"raise connections_max in the URL, or write from fewer threads"
            )

    def _give_up(self, turn: threading.Lock) -> bool:
        """Leave the queue. True if a place came at the last moment: it is ours."""
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True

    def _leave_place(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
