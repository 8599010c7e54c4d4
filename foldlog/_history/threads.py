"""Threads that run blocking calls for asyncio. A call that has begun always runs to its end.

A call costs two thread switches, to the worker thread and back. Calls that are made together share
the first of these switches. Threads are started when they are needed, up to a limit. Closing a pool
waits for its running calls.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from foldlog.eventstore import StoreRefused
from foldlog.eventstore.recorders.types import Outcome

T = TypeVar("T")
_Work: TypeAlias = Callable[[], T]
_Call: TypeAlias = Future[Outcome[T]]


class ThreadPool:
    """A pool of at most ``threads_max`` threads, for the calls of many tasks and event loops."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        """Start with an empty pool: no threads and no calls."""
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(self._threads_max, self._name)

    async def run(self, work: _Work[T], *, finish: bool = True, may_withdraw: bool = True) -> T:
        """Run ``work`` in a thread. Return the result of ``work``, or raise its error.

        If the task is cancelled before the call begins, the call is withdrawn, unless
        ``may_withdraw`` is false. If the task is cancelled later, it first waits for the call. When
        the call has ended, the cancellation is raised, and its attribute ``outcome`` is the outcome
        of the call. With ``finish=False``, which is meant for calls that only read, the task does
        not wait for a call that has begun.
        """
        call = self.submit(work)
        try:
            await _end_of(call)
        except asyncio.CancelledError as cancelled:
            if (may_withdraw and call.cancel()) or not finish:
                raise
            end = _end_of(call)
            while not call.done():
                with suppress(asyncio.CancelledError):  # the first one is raised at the end
                    await asyncio.wait([end])
            cancelled.outcome = call.result()  # type: ignore[attr-defined]
            raise
        return call.result().unwrap()

    def submit(self, work: _Work[T]) -> _Call[T]:
        """Run ``work`` in a thread, in the context of the caller, with its trace. Raises
        ``StoreRefused`` if the pool is closed, and ``RuntimeError`` if the system has no more
        threads and ``work`` has not begun.
        """
        if self._process != os.getpid():  # a forked process does not have the threads of its parent
            self._begin()
        call: _Call[T] = Future()
        self._start(partial(_run, call, partial(copy_context().run, work)), call)
        return call

    def _start(self, work: _Work[None], call: _Call[Any]) -> None:
        try:
            self._executor.submit(work)
        except RuntimeError:
            if self._is_closed:
                problem = "the store is closed; open the store again"
                raise StoreRefused(problem, kind="closed") from None
            if call.cancel():  # otherwise another thread has begun the call
                raise

    def close(self, *, wait: bool = True) -> None:
        """End the threads after they have run all submitted calls. ``close`` blocks until the
        threads have ended, unless ``wait`` is False. No thread of the pool may wait for this.
        """
        self._is_closed = True
        self._executor.shutdown(wait)


class SharingPool(ThreadPool):
    """One thread that takes all waiting calls at once, and passes their work to the function
    ``together``, which returns the outcomes.
    """

    def __init__(
        self, name: str, together: Callable[[Sequence[_Work[Any]]], Sequence[Outcome[Any]]]
    ) -> None:
        super().__init__(name, 1)
        self._together = together

    def _begin(self) -> None:
        super()._begin()
        self._lock = Lock()
        self._waiting: list[tuple[_Call[Any], _Work[Any]]] = []

    def submit(self, work: _Work[T]) -> _Call[T]:
        """Let the thread take ``work`` with all other waiting calls. Unlike in ``ThreadPool``, the
        work does not run in the context of its caller. Raises the errors of ``ThreadPool.submit``.
        """
        if self._process != os.getpid():
            self._begin()
        call: _Call[T] = Future()
        with self._lock:
            self._waiting.append((call, work))
            if len(self._waiting) == 1:  # the thread takes later calls together with the first
                try:
                    self._start(self._run_waiting, call)
                except BaseException:
                    self._waiting.clear()
                    raise
        return call

    def _run_waiting(self) -> None:
        """Run the works that were submitted until now, several of them together."""
        with self._lock:
            waiting = self._waiting
            self._waiting = []
        begun = [(call, work) for call, work in waiting if call.set_running_or_notify_cancel()]
        outcomes: Sequence[Outcome[Any]]
        if len(begun) == 1:
            outcomes = [Outcome.of(work) for _, work in begun]
        else:
            try:
                outcomes = self._together([work for _, work in begun])
            except BaseException as error:  # noqa: BLE001 - it is raised where the calls came from
                outcomes = [Outcome(error=error)] * len(begun)
        for (call, _), outcome in zip(begun, outcomes, strict=True):
            call.set_result(outcome)


def _run(call: _Call[T], work: _Work[T]) -> None:
    if call.set_running_or_notify_cancel():
        call.set_result(Outcome.of(work))


def _end_of(call: _Call[Any]) -> asyncio.Future[None]:
    """Return a future of the running event loop that ends with the call. Cancelling the future does
    not withdraw the call, as it does with ``asyncio.wrap_future``.
    """
    loop = asyncio.get_running_loop()
    end = loop.create_future()

    def wake(_: _Call[Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended, so no task of the loop waits any more
            loop.call_soon_threadsafe(_end, end)

    call.add_done_callback(wake)
    return end


def _end(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
