"""Group commit: threads that write at the same time share one transaction and its fsync.

The first thread to come leads: when it is its process's turn it takes all that wait by then, runs them in one
transaction and hands leadership to the next waiter. A thread that is alone leads itself and waits for nobody, so it
loses nothing. Each waiter has a lock of its own: one plain lock for all would be unfair, and make somebody wait for
seconds under load.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["CommitQueue", "Job"]

T = TypeVar("T")


class Job(Generic[T]):
    """A piece of work on its way through the queue, and then its outcome."""

    __slots__ = ("_error", "_result", "abandoned", "done", "wake", "work")

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.done = False
        self.abandoned = False
        self.wake: threading.Lock | None = None
        self._result: T | None = None
        self._error: BaseException | None = None

    def succeed(self, result: T) -> None:
        self._result = result
        self.done = True

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.done = True

    def outcome(self) -> T:
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # else it would hold this frame, which holds it, and with it all that the work held
        return self._result  # type: ignore[return-value]  # done without an error: a result was set


class CommitQueue:
    """Runs jobs in groups. ``run_group`` is given a function that it calls, once, when it can begin: it returns all
    jobs that wait by then, and each of them is to be ended, by success or failure. Only an interruption (Ctrl-C) may
    leave some undone, and then none of what they wrote may be kept. What is raised before that is the leader's alone.

    An interruption may come between any two steps of the thread that leads. So each step leaves the queue in a state
    that ``_abandon`` can go on from, and nothing is harmed by a step that is done twice.
    """

    def __init__(self, run_group: Callable[[Callable[[], list[Job[Any]]]], None]) -> None:
        self._run_group = run_group
        self._mutex = threading.Lock()
        self._waiting: list[Job[Any]] = []
        self._group: list[Job[Any]] = []
        self._leader: Job[Any] | None = None

    def run(self, work: Callable[[Any], T]) -> T:
        """Run ``work`` in some group and return what it returned, or raise what it raised."""
        job = Job(work)
        try:
            with self._mutex:
                self._waiting.append(job)
                if self._leader is None:
                    self._leader = job
                else:
                    job.wake = threading.Lock()
                    job.wake.acquire()
            if job.wake is not None:
                job.wake.acquire()
            if not job.done:
                self._run_group(self._collect)
                with self._mutex:
                    self._hand_on()
        except BaseException:
            while not job.abandoned:
                with contextlib.suppress(KeyboardInterrupt):  # a second one, which says nothing new
                    self._abandon(job)
            raise
        return job.outcome()

    def _collect(self) -> list[Job[Any]]:
        with self._mutex:
            self._group, self._waiting = self._waiting, []
            return self._group

    def _hand_on(self) -> None:
        """Wake those who are done and make the first waiter the leader. The mutex is held."""
        for job in self._group:
            if job.done:
                _wake(job)
        self._group, self._leader = [], self._waiting[0] if self._waiting else None
        _wake(self._leader)

    def _abandon(self, job: Job[Any]) -> None:
        """The thread of ``job`` was interrupted: its job leaves the queue if it has not begun, and leadership stays."""
        with self._mutex:
            if job in self._waiting:
                self._waiting.remove(job)
            if self._leader is job:
                left = [other for other in self._group if other is not job and not (other.done or other.abandoned)]
                self._group, self._waiting = [o for o in self._group if o.done], left + self._waiting
                self._hand_on()
            else:
                _wake(self._leader)  # this thread may have been handing on to it
            job.abandoned = True


def _wake(job: Job[Any] | None) -> None:
    if job is not None and job.wake is not None:
        with contextlib.suppress(RuntimeError):  # it is awake already
            job.wake.release()
