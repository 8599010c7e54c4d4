"""A bounded pool of connections. Waiting threads get one in the order of their arrival."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from foldlog.eventstore.recorders.errors import InterfaceError, OperationalError
from foldlog.eventstore.recorders.postgres.wire import Wire


class Pool:
    """At most ``size`` connections, each made when it is needed; the one that was returned last is used next."""

    def __init__(self, connect: Callable[[], Wire], size: int, *, server: str, wait_s: float) -> None:
        self._connect = connect
        self._size = size
        self._server = server
        self._wait_s = wait_s
        self._mutex = threading.Lock()
        self._idle: list[Wire] = []
        self._taken: set[_Place] = set()
        self._waiting: deque[_Place] = deque()
        self.closed = False

    @contextlib.contextmanager
    def wire(self) -> Iterator[Wire]:
        """Give a connection for one transaction, which is rolled back if it is open at the end. A connection that still
        works returns to the pool.

        Raises ``OperationalError`` where all are in use for too long, or none can be made.
        """
        place = _Place()
        try:
            self._take(place)
            if place.wire is None:
                place.wire = self._connect()
            yield place.wire
        finally:
            self._give_back(place)

    def forget_idle(self) -> None:
        """Close all connections that are not in use: one connection was found broken, so these may be broken too."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def close(self) -> None:
        """Close each connection, at once or when it is returned. Give out no more connections."""
        self.closed = True
        self.forget_idle()

    def check_open(self) -> None:
        if self.closed:
            raise InterfaceError(f"{self._server} is closed; open it again")

    def _take(self, place: _Place) -> None:
        with self._mutex:
            self.check_open()
            if len(self._taken) < self._size:
                self._taken.add(place)
            else:
                place.turn.acquire()
                self._waiting.append(place)
        if place not in self._taken:
            began = time.monotonic()
            if not place.turn.acquire(timeout=self._wait_s) and place not in self._taken:
                raise OperationalError(
                    f"{self._server}: all {self._size} connections were in use for {time.monotonic() - began:.0f} s; "
                    f"raise connections_max in the URL, or write from fewer threads"
                )
        with self._mutex:
            if self._idle:
                place.wire = self._idle[-1]
                self._idle.pop()

    def _give_back(self, place: _Place) -> None:
        """Leave a place, or the queue for one, from any state: an exception of a signal handler may come between any
        two steps, and must not lose a place.
        """
        try:
            self._leave(place)
        except BaseException:
            if place.wire is not None:
                place.wire.close()  # how far its last message was sent is not known
            self._leave(place)
            raise

    def _leave(self, place: _Place) -> None:
        """Leave the pool. Calling it twice does no harm."""
        wire = place.wire
        if wire is not None:
            wire.abandon()
        with self._mutex:
            if wire in self._idle:
                self._idle.remove(wire)
            keeps = wire is not None and wire.usable and not self.closed
            if wire is not None and keeps:
                self._idle.append(wire)
            self._taken.discard(place)
            if place in self._waiting:
                self._waiting.remove(place)
            while self._waiting and len(self._taken) < self._size:
                first = self._waiting[0]
                self._taken.add(first)
                if first.turn.locked():
                    first.turn.release()
                self._waiting.popleft()
        if wire is not None and not keeps:
            wire.close()


class _Place:
    """One of the connections that may be in use, or a place in the queue for one."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.wire: Wire | None = None
