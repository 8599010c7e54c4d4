"""Group commit: threads that write at the same time share one transaction and its fsync.

One thread at a time is the leader, and only the leader uses the connection. The leader takes the
write lock, runs its own job and the waiting jobs, and commits once for all these jobs. After the
commit of a leader, the first thread that still waits becomes the leader.

A leader runs the job of another thread only if the job calls nothing but foldlog's code. A guard or
a projection needs the context of its own caller, and may be slow. A job that calls other code gets
a transaction of its own. A job of the main thread also gets its own transaction, because Python
runs signal handlers in the main thread. An exception of a signal handler therefore cannot end
another thread's job.

Each waiting thread has its own lock. With one lock for all threads, some threads would wait for
seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any, Generic, NoReturn, TypeVar

from msgspec import Struct

from foldlog._base.telemetry import waits
from foldlog.eventstore.recorders.base import AT_ONCE_S
from foldlog.eventstore.recorders.sqlite.writing import SQLiteWriting
from foldlog.eventstore.recorders.types import Outcome
from foldlog.eventstore.recorders.writers import INSIDE, Writer, check_not_writing, note_committed

T = TypeVar("T")

_is_durable = attrgetter("durable")


class Job(Struct, Generic[T], eq=False):
    """The work of one caller, and its outcome. Without ``work``, the caller writes alone. A job
    that ``shares`` may run in the thread of another caller. ``wake`` is locked while the caller
    waits. A job is ``done`` as soon as its outcome is known, and ``written`` if it was committed.
    """

    work: Callable[[Any], T] | None
    writer: Writer
    deadline: float
    """The moment, by ``time.monotonic``, until which the caller waits."""
    shares: bool = False
    durable: bool = True
    wake: Lock | None = None
    done: bool = False
    written: bool = False
    result: T | None = None
    error: BaseException | None = None

    def raise_error(self) -> NoReturn:
        error = self.error
        self.error = None
        assert error is not None  # the caller has seen the error
        try:
            raise error
        finally:
            # Break the reference cycle between the error and this frame. The cycle would keep the
            # values of the work in memory.
            del error


class CommitQueue:
    """Runs the waiting jobs of threads in groups, one group in each transaction.

    A signal handler may raise an exception between any two steps of a thread. ``_leave`` can
    continue after an exception at any step. ``_leader`` is the job of the leading thread. Until a
    leader has set the next leader, it may repeat any of its steps.
    """

    def __init__(self, writing: SQLiteWriting, path: str, patience_s: float) -> None:
        self._writing = writing
        self._path = path
        self._patience_s = patience_s
        self._main_thread = threading.main_thread().ident
        self._mutex = threading.Lock()
        self._leader: Job[Any] | None = None
        self._group: list[Job[Any]] = []
        self._waiting: list[Job[Any]] = []

    def run(
        self,
        work: Callable[[Any], T],
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        """Run ``work`` in a transaction. Return the result of ``work`` after the commit, or raise
        the error of ``work``.

        If ``any_thread`` is true, ``work`` calls only foldlog's code, so another thread may run it.
        Raises ``StoreRefused`` if this thread is already inside a write. Raises
        ``StoreUnavailable`` (from ``SQLiteWriting.waited``) if other writers block the call for
        longer than the patience. With ``at_once``, the patience is only ``AT_ONCE_S`` seconds.
        Nothing is written if the thread is already inside a write, or if the wait is too long.
        """
        writer = get_ident(), self._path
        if writer in INSIDE:
            check_not_writing(self._path, self._path)  # raises the error
        deadline = time.monotonic() + (AT_ONCE_S if at_once else self._patience_s)
        shares = any_thread and writer[0] != self._main_thread
        job = Job(work, writer, deadline, shares, durable)
        self._commit((job,))
        if job.error is not None:
            job.raise_error()
        return job.result  # type: ignore[return-value]  # done without an error: a result was set

    def run_all(self, works: Sequence[tuple[Callable[[Any], T], bool]]) -> list[Outcome[T]]:
        """Run several works in as few transactions as possible, and return their outcomes in order.
        The second element of each pair is true if any thread may run the work.
        """
        writer = check_not_writing(self._path, self._path)
        deadline = time.monotonic() + self._patience_s
        jobs = [
            Job(work, writer, deadline, any_thread and writer[0] != self._main_thread)
            for work, any_thread in works
        ]
        if jobs:
            self._commit(jobs)
        return [
            Outcome(job.result) if job.error is None else Outcome(error=job.error) for job in jobs
        ]

    @contextlib.contextmanager
    def alone(self) -> Iterator[float]:
        """Let only this thread write during the block. The yielded moment is the deadline for
        taking the write lock. Raises the errors of ``run``.
        """
        job = self.begin_alone(self._patience_s)
        try:
            yield job.deadline
        finally:
            self.end_alone(job)

    def begin_alone(self, patience_s: float) -> Job[None]:
        """Wait until only this thread may write. The caller must pass the returned job to
        ``end_alone``.
        """
        job: Job[None] = Job(
            None, check_not_writing(self._path, self._path), time.monotonic() + patience_s
        )
        try:
            INSIDE.add(job.writer)
            self._enter_queue((job,))
            self._wait(job)
            if job.done:
                job.raise_error()
        except BaseException:
            self.end_alone(job)
            raise
        return job

    def end_alone(self, job: Job[None]) -> None:
        self._leave((job,))
        INSIDE.discard(job.writer)

    # -- entering and leaving the queue ---------------------------------------------------------

    def _commit(self, jobs: Sequence[Job[Any]]) -> None:
        """Put jobs into the queue, and return when all are done."""
        # Any exception that this method raises came from outside, such as from a signal handler.
        writer = jobs[0].writer
        try:
            try:
                INSIDE.add(writer)
                self._enter_queue(jobs)
                # The queue keeps its order, so the first job that is not done leads first.
                for job in jobs:
                    if not job.done and self._leader is not job:
                        self._wait(job)
                    if not job.done:
                        self._lead(job)
            except BaseException:
                try:
                    self._leave(jobs)
                finally:
                    # again, because a further exception may have interrupted the first call
                    self._leave(jobs)
                raise
            finally:
                INSIDE.discard(writer)
        except BaseException as error:
            if any(job.written for job in jobs):
                note_committed(error)
            raise

    def _enter_queue(self, jobs: Sequence[Job[Any]]) -> None:
        """Add jobs to the end of the queue. The first one leads if there is no leader."""
        with self._mutex:
            if self._leader is None and len(jobs) == 1:
                self._leader = jobs[0]
                return
            wake = Lock()
            wake.acquire()
            for job in jobs:
                # a thread waits for one job at a time, so one lock is enough for all its jobs
                job.wake = wake
            leader, *others = [self._leader, *jobs] if self._leader is not None else jobs
            self._waiting = self._waiting + others
            self._leader = leader

    @waits
    def _wait(self, job: Job[Any]) -> None:
        """Wait until a job is done or leads. A job that waits too long fails, unless it is in the
        group of a leader.
        """
        while not job.done and self._leader is not job:
            assert job.wake is not None  # the lock was made before the job waited
            in_time = job.wake.acquire(timeout=max(job.deadline - time.monotonic(), 0.0))
            # A leader that wakes this thread holds the mutex until the next leader is set.
            with self._mutex:
                leader = self._leader
                gives_up = not in_time and job in self._waiting
                if gives_up:
                    self._waiting.remove(job)
            if gives_up:
                job.error = self._writing.waited(None if leader is None else leader.writer[0])
                job.done = True
            elif not in_time:
                job.wake.acquire()

    def _leave(self, jobs: Sequence[Job[Any]]) -> None:
        """Take jobs out of the queue after an interruption. If another leader is running a job,
        wait until the leader has set the outcome of the job.
        """
        for job in jobs:
            while True:
                with self._mutex:
                    if job in self._waiting:
                        self._waiting.remove(job)
                    leads = self._leader is job
                    is_led = job in self._group and not job.done
                if leads:
                    self._end(self._writing.settle(), interrupted=job)
                elif is_led:
                    assert job.wake is not None  # the lock was made before the job waited
                    job.wake.acquire()
                else:
                    break

    # -- leading
    # ----------------------------------------------------------------------------------------------

    def _lead(self, leader: Job[Any]) -> None:
        """Run the group of a leader in one transaction, without the jobs that fail, and pass the
        lead on.
        """
        writing = self._writing
        committed = False
        try:
            # comes first, because until then ``settle`` describes the previous group
            writing.take(leader.deadline)
            self._group = [leader]
            if leader.shares and self._waiting:
                self._collect(leader)
            remaining = self._group
            while remaining and not committed:
                writing.begin(durable=any(map(_is_durable, remaining)))
                failed = self._run_jobs(remaining, leader)
                if failed is None:
                    writing.commit()
                    committed = True
                else:
                    writing.settle()
                    remaining = [job for job in remaining if job is not failed]
        except BaseException as error:
            make_error = writing.fail(error)
            if make_error is None:
                raise
            self._group = self._group or [leader]
            for job in self._group:
                job.error = make_error()
        self._end(committed)

    def _collect(self, leader: Job[Any]) -> None:
        """Take the first waiting jobs into the leader's group, up to a job that does not share."""
        with self._mutex:
            waiting = self._waiting
            end = next((place for place, job in enumerate(waiting) if not job.shares), len(waiting))
            self._group = [leader, *waiting[:end]]
            self._waiting = waiting[end:]

    def _run_jobs(self, jobs: Sequence[Job[Any]], leader: Job[Any]) -> Job[Any] | None:
        """Run the jobs of a group in the leader's transaction. If a job fails before it writes,
        only this job fails. If a job fails after a write, return the job. The caller has to roll
        back, and to run the remaining jobs again.
        """
        for job in jobs:
            job.error = None
            try:
                # Jobs without work have no group.
                job.result = self._writing.run(job.work)  # type: ignore[arg-type]
            except BaseException as error:
                if job is not leader and not isinstance(error, Exception):
                    raise  # the exception interrupts this thread
                job.error = self._writing.error_of_job(error)
                if job.error is None:
                    raise
                if self._writing.wrote():
                    return job
        return None

    def _end(self, committed: bool, interrupted: Job[Any] | None = None) -> None:
        """End the group, and make the first waiting job the next leader. If the leader was
        ``interrupted`` before the commit, the remaining jobs of the group wait again.
        """
        self._writing.release()
        with self._mutex:
            again = []
            for job in self._group:
                if committed or interrupted is None:
                    job.written = committed and job.error is None
                    job.done = True
                    if job.wake is not None:
                        _wake(job)
                elif not job.done and job is not interrupted:
                    again.append(job)
            waiting = again + self._waiting
            if waiting:
                _wake(waiting[0])
            self._group = []
            self._waiting = waiting[1:]
            self._leader = waiting[0] if waiting else None


def _wake(job: Job[Any]) -> None:
    # The caller must hold the mutex.
    if job.wake is not None and job.wake.locked():
        job.wake.release()
