"""Threads that run blocking calls for asyncio and trio. A call that has begun always runs to its
end.

A call costs two thread switches, to the worker thread and back. Calls that are made together share
these two switches. Threads are started when they are needed, up to a limit, and are daemon threads.
Closing a pool waits for its running calls.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NoReturn, TypeVar

from foldlog.eventstore import StoreRefused
from foldlog.eventstore.inside import Outcome

T = TypeVar("T")
_Work = Callable[[], Any]
_Post = Callable[[Callable[[], object]], object]
"""A function that hands a callback to an event loop, from any thread. Raises ``RuntimeError`` if
the loop has ended.
"""

_PAUSE_S: Final = 0.005
"""The maximum number of seconds to wait until the woken tasks continue."""
_TURNS: Final = 2
"""After two turns of a loop, every woken task has continued. One turn is not enough, because Trio
runs the tasks of a turn in any order.
"""


class _Call(Generic[T]):
    __slots__ = ("_context", "_unclaimed", "may_withdraw", "outcome", "post", "wake", "work")

    def __init__(self, work: Callable[[], T], *, may_withdraw: bool = True) -> None:
        self.work = work
        self.may_withdraw = may_withdraw
        self._context = copy_context()  # the context of the caller, with its trace
        self.outcome: Outcome[T] | None = None
        self.post: _Post
        self.wake: Callable[[], object]
        """Wakes the task that made the call. ``wake`` is called in the task's event loop."""
        self._unclaimed = [True]

    def claim(self) -> bool:
        """Return True only to the first caller: either the thread that begins the call, or the task
        that withdraws it.
        """
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    def withdraw(self) -> bool:
        return self.may_withdraw and self.claim()

    def run(self) -> None:
        self.outcome = Outcome.of(partial(self._context.run, self.work))


class ThreadPool:
    """A pool of at most ``threads_max`` threads, for the calls of many tasks and event loops.

    If ``together`` is set, a thread takes all waiting calls at once, and passes their work to the
    function ``together``, which returns the outcomes. Then the thread wakes the waiting tasks
    together.
    """

    def __init__(
        self,
        name: str,
        threads_max: int,
        together: Callable[[Sequence[_Work]], Sequence[Outcome[Any]]] | None = None,
    ) -> None:
        self._name = name
        self._threads_max = threads_max
        self._together = together
        self._closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        """Start with an empty pool: no threads and no calls. A forked child process calls this
        method too, because it does not have the threads of its parent.
        """
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    async def run(
        self, work: Callable[[], T], *, finish: bool = True, may_withdraw: bool = True
    ) -> T:
        """Run ``work`` in a thread. Return the result of ``work``, or raise its error.

        If the task is cancelled before the call begins, the call is withdrawn, unless
        ``may_withdraw`` is false. If the task is cancelled later, it first waits for the call. When
        the call has ended, the cancellation is raised, and its attribute ``outcome`` is the outcome
        of the call. With ``finish=False``, which is meant for calls that only read, the task does
        not wait.
        """
        call = _Call(work, may_withdraw=may_withdraw)
        run = _run_in_trio if _in_trio() else _run_in_asyncio
        return (await run(self, call, finish)).unwrap()

    def submit(self, call: _Call[Any]) -> None:
        with self._lock:
            if self._closed:
                raise StoreRefused("the store is closed; open the store again", kind="closed")
            if self._idle <= 0 and len(self._threads) < self._threads_max:
                number = len(self._threads) + 1
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{number}", daemon=True
                )
                try:
                    thread.start()
                    self._threads.append(thread)
                except (
                    RuntimeError
                ):  # the system has no more threads: the existing threads make the call
                    if not self._threads:
                        raise
                    self._idle -= 1
            else:
                self._idle -= 1
        self._calls.put(call)

    def close(self, *, wait: bool = True) -> None:
        """End the threads after they have run all submitted calls.

        ``close`` blocks until the threads have ended, unless ``wait`` is False. If a thread of the
        pool calls ``close``, ``close`` does not wait for this thread, which ends after its present
        call.
        """
        with self._lock:
            self._closed = True
            threads = tuple(self._threads)
        for _ in threads:
            self._calls.put(None)
        for thread in threads if wait else ():
            if thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._together is None:
                calls = [call]
            else:
                calls = [call, *self._waiting()]
            begun = [call for call in calls if call.claim()]
            if self._together is None or len(begun) < 2:
                for call in begun:
                    call.run()
                # This comes before the wake: a woken task may submit its next call at once.
                self._be_free_for(len(calls))
                for call in begun:
                    _post(call.post, call.wake)
            else:
                _run_together(self._together, begun)
                self._be_free_for(len(calls))
            del call, calls, begun

    def _be_free_for(self, count: int) -> None:
        with self._lock:
            self._idle += count

    def _waiting(self) -> Iterator[_Call[Any]]:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is None:  # this thread ends after these calls
                self._calls.put(None)
                return
            yield call


def _run_together(
    together: Callable[[Sequence[_Work]], Sequence[Outcome[Any]]], calls: Sequence[_Call[Any]]
) -> None:
    """Run several calls, and wake all waiting tasks of an event loop together.

    After that, wait until the woken tasks have made their next calls, so that these calls run
    together too. Without this wait, the tasks would split into two groups, and fewer calls would
    run together.
    """
    try:
        outcomes = together([call.work for call in calls])
    except BaseException as error:  # noqa: BLE001 - it is raised where the calls came from
        outcomes = [Outcome(error=error)] * len(calls)
    wakes: dict[_Post, list[Callable[[], object]]] = {}
    for call, outcome in zip(calls, outcomes, strict=True):
        call.outcome = outcome
        wakes.setdefault(call.post, []).append(call.wake)
    gone_on = threading.Lock()
    gone_on.acquire()
    for post, of_loop in wakes.items():
        _post(
            post, partial(_wake_all, of_loop, partial(_after_turns, _TURNS, post, gone_on.release))
        )
    if len(wakes) == 1:
        gone_on.acquire(timeout=_PAUSE_S)


def _wake_all(wakes: Sequence[Callable[[], object]], then: Callable[[], object]) -> None:
    for wake in wakes:
        wake()
    then()


def _after_turns(turns: int, post: _Post, work: Callable[[], object]) -> None:
    if turns == 0:
        work()
    else:
        _post(post, partial(_after_turns, turns - 1, post, work))


def _post(post: _Post, work: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended, so no task of the loop waits any more
        post(work)


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def _begin_in_child() -> None:
    for pool in _pools:
        pool._begin()


os.register_at_fork(after_in_child=_begin_in_child)


async def pause(seconds: float) -> None:
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

    call.post = loop.call_soon_threadsafe
    call.wake = wake
    pool.submit(call)
    cancelled: asyncio.CancelledError | None = None
    while call.outcome is None:
        try:
            await waiting
        except asyncio.CancelledError as error:
            if not finish or call.withdraw():
                raise
            cancelled = error
            waiting = loop.create_future()
            if (
                call.outcome is not None
            ):  # the outcome came between the cancellation and the new future
                break
    if cancelled is not None:
        _raise(cancelled, call)
    assert call.outcome is not None
    return call.outcome


async def _run_in_trio(pool: ThreadPool, call: _Call[T], finish: bool) -> Outcome[T]:
    import trio

    token = trio.lowlevel.current_trio_token()
    finished = trio.Event()

    call.post = token.run_sync_soon
    call.wake = finished.set
    pool.submit(call)
    try:
        await finished.wait()
    except trio.Cancelled as cancelled:
        if not finish or call.withdraw():
            raise
        with trio.CancelScope(shield=True):
            await finished.wait()
        _raise(cancelled, call)
    assert call.outcome is not None
    return call.outcome


def _raise(cancelled: BaseException, call: _Call[Any]) -> NoReturn:
    cancelled.outcome = call.outcome  # type: ignore[attr-defined]
    raise cancelled
