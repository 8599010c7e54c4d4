"""Threads that run blocking calls for asyncio and trio, and finish the calls that have begun.

A call costs one hand-over to a thread and one back. Threads are made when they are needed, up to a limit, and are
daemons of their pool: closing it waits for the running calls.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, NoReturn, TypeVar

__all__ = ["Outcome", "ThreadPool", "pause"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The outcome of a call: its value, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def unwrap(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class _Call(Generic[T]):
    """One call of a task, from its submission to its outcome."""

    __slots__ = ("_unclaimed", "notify", "outcome", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.outcome: Outcome[T] | None = None
        self.notify: Callable[[], object] = _nothing
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return whether the caller of this method is the first: a thread that begins, or a caller that withdraws."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def run(self) -> None:
        try:
            self.outcome = Outcome(self.work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the call came from
            self.outcome = Outcome(error=error)
        self.notify()


class ThreadPool:
    """A pool of at most ``threads_max`` threads, for the calls of any number of tasks and loops."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name, self._threads_max = name, threads_max
        self._closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        """Have no threads and no calls: also in a child process, which has none of the threads of its parent."""
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    async def run(self, work: Callable[[], T], *, finish: bool) -> T:
        """Return what ``work`` returns in a thread, or raise what it raises.

        A call that is cancelled before it begins is withdrawn. Afterwards a call that must ``finish`` is waited for and
        the cancellation is raised with its ``outcome``; another call is left to its thread.
        """
        call = _Call(work)
        run = _run_in_trio if _in_trio() else _run_in_asyncio
        return (await run(self, call, finish)).unwrap()

    def submit(self, call: _Call[Any]) -> None:
        """Run the call in a thread as soon as one is free."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads for {self._name} are closed; open the store again")
            if self._idle <= 0 and len(self._threads) < self._threads_max:
                number = len(self._threads) + 1
                thread = threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._idle -= 1
        self._calls.put(call)

    def close(self) -> None:
        """End the threads once they have run what was submitted. Blocks until then."""
        with self._lock:
            self._closed = True
            threads = tuple(self._threads)
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.claim():
                call.run()
            del call
            with self._lock:
                self._idle += 1


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def _begin_in_child() -> None:
    for pool in _pools:
        pool._begin()


os.register_at_fork(after_in_child=_begin_in_child)


async def pause(seconds: float) -> None:
    """Sleep, in asyncio or trio."""
    if _in_trio():
        import trio

        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def _in_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()


async def _run_in_asyncio(pool: ThreadPool, call: _Call[T], finish: bool) -> Outcome[T]:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiting.done():
            waiting.set_result(None)

    def notify() -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            return  # the loop is closed: no task waits any more

    call.notify = notify
    pool.submit(call)
    cancelled: asyncio.CancelledError | None = None
    while call.outcome is None:
        try:
            await waiting
        except asyncio.CancelledError as error:
            if not finish or call.claim():
                raise
            cancelled = error
            waiting = loop.create_future()
            if call.outcome is not None:  # it came between the cancellation and the new future
                break
    if cancelled is not None:
        _raise(cancelled, call)
    assert call.outcome is not None
    return call.outcome


async def _run_in_trio(pool: ThreadPool, call: _Call[T], finish: bool) -> Outcome[T]:
    import trio

    token, done = trio.lowlevel.current_trio_token(), trio.Event()

    def notify() -> None:
        try:
            token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            return  # no task is waiting

    call.notify = notify
    pool.submit(call)
    try:
        await done.wait()
    except trio.Cancelled as cancelled:
        if not finish or call.claim():
            raise
        with trio.CancelScope(shield=True):
            await done.wait()
        _raise(cancelled, call)
    assert call.outcome is not None
    return call.outcome


def _raise(cancelled: BaseException, call: _Call[Any]) -> NoReturn:
    """Raise the cancellation with the outcome of the call."""
    cancelled.outcome = call.outcome  # type: ignore[attr-defined]
    raise cancelled


def _nothing() -> None:
    """Do nothing."""
