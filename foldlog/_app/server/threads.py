"""Threads in which the server answers requests.

A function in the standard executor costs about 95 µs of CPU beside its own work, because the thread
and the event loop wait for each other's locks. Here it costs 30 µs (``python -m benchmarks.service
cpu``). The thread that was used last is used first, because its connection to the store is warm.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from msgspec import Struct

T = TypeVar("T")
_THREADS_MAX: Final = 40
"""The number of requests whose appends can wait for the disk together."""
LONG_READS_MAX: Final = 2
"""The number of reads that may take seconds at once. More would not end sooner, and each makes
appends wait for the interpreter's lock.
"""


class HandlerCall(Struct):
    """A function that waits for a thread, and the future of its caller."""

    function: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Threads:
    """Runs functions in at most ``most`` threads. Every method must be called in an event loop."""

    def __init__(self, most: int = _THREADS_MAX) -> None:
        self._most = most
        self._threads: list[tuple[threading.Thread, SimpleQueue[HandlerCall | None]]] = []
        self._idle: list[SimpleQueue[HandlerCall | None]] = []
        """The queues of the threads that wait. Each thread has its own queue."""
        self._waiting: deque[HandlerCall] = deque()

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a function, or raise its error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = HandlerCall(function, future, loop)
        if self._idle:
            self._idle.pop().put(job)
        elif len(self._threads) < self._most:
            jobs: SimpleQueue[HandlerCall | None] = SimpleQueue()
            jobs.put(job)
            thread = threading.Thread(target=self._work, args=(jobs,), daemon=True)
            self._threads.append((thread, jobs))
            thread.start()
        else:
            self._waiting.append(job)
        return await future

    def close(self) -> None:
        """Wait until the running functions have ended."""
        for _, jobs in self._threads:
            jobs.put(None)
        for thread, _ in self._threads:
            thread.join()

    def _work(self, jobs: SimpleQueue[HandlerCall | None]) -> None:
        """Run the functions of a queue until None comes. Each thread runs this."""
        while (job := jobs.get()) is not None:
            result = None
            error: BaseException | None = None
            try:
                result = job.function()
            except StopIteration as raised:
                # A future refuses this error, so its caller would wait forever.
                error = RuntimeError(f"the function raised {raised!r}")
            except BaseException as raised:  # noqa: BLE001 - the caller raises it
                error = raised
            try:
                job.loop.call_soon_threadsafe(self._end, jobs, job.future, result, error)
            except RuntimeError:  # the loop was closed, so nobody waits for the result
                self._idle.append(jobs)
            del job, result, error  # an idle thread keeps nothing in memory

    def _end(
        self,
        jobs: SimpleQueue[HandlerCall | None],
        future: asyncio.Future[T],
        result: T,
        error: BaseException | None,
    ) -> None:
        """Give the thread its next function, and the caller its result. The event loop calls
        this.
        """
        if self._waiting:
            jobs.put(self._waiting.popleft())
        else:
            self._idle.append(jobs)
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
