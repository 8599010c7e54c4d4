"""Group commit: threads that write at the same time share one transaction and its fsync.

One thread at a time leads: it alone uses the connection. The first thread to come takes the write lock, then its job
and all that wait by then become its group. A job runs in the thread of its own caller, so that a guard finds its
caller's context, and so that what a signal handler raises reaches the caller whose thread it interrupted: the leader
runs its own job, then passes leadership to the thread of the next. The last of the group commits for all.

Jobs that run no code but foldlog's, which are most, the leader runs itself, since waking a thread takes as long as an
append. The main thread does not: it is the one that Python interrupts for signals.

A thread that is alone leads itself and waits for no other, so it loses nothing. Each waiter has a lock of its own: one
plain lock for all would be unfair, and make some thread wait for seconds under load.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from threading import Lock, get_ident
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from msgspec import Struct

from eventstore.recorders.errors import OperationalError
from eventstore.recorders.nesting import INSIDE, Mark, mark_of, nested, note_committed
from eventstore.values.outcome import Outcome

T = TypeVar("T")

_ATTEMPTS: Final = 1_000
"""How often a thread begins again to leave the queue when further exceptions of signal handlers interrupt it."""


class Fault(enum.Enum):
    """Whose trouble an exception is, and what becomes of the transaction."""

    OF_JOB = enum.auto()
    """The job's, which wrote nothing: the transaction goes on without it."""
    OF_JOB_THAT_WROTE = enum.auto()
    """The job's, which wrote something: the transaction is rolled back and the other jobs run again."""
    OF_DATABASE = enum.auto()
    """The database's: every job of the group fails."""


class Writing(Protocol):
    """What the queue needs of a database. Only the thread that leads calls it."""

    def take(self, job: Job[Any]) -> None:
        """Take the write lock, or wait for it until ``job.deadline``. What this raises reaches the leader alone."""

    def begin(self) -> None:
        """Begin a transaction."""

    def run(self, work: Callable[[Any], T]) -> T:
        """Run one job in the transaction."""

    def judge(self, error: BaseException) -> Fault | None:
        """Say whose trouble an exception of ``begin``, ``run`` or ``commit`` is; None where it interrupted ``begin`` or
        ``commit`` from outside.
        """

    def is_of_job(self, error: BaseException) -> bool:
        """Whether a job raised this itself, for certain: it did not interrupt the thread from outside."""

    def for_caller(self, error: BaseException) -> BaseException:
        """Return what the caller of a job gets for its exception: a driver's error translated, any other as it is."""

    def commit(self) -> None:
        """Make the transaction durable."""

    def settle(self) -> bool:
        """Roll back whatever is open. Return whether the transaction was committed. Calling it again changes nothing,
        and it raises nothing of its own.
        """

    def fail(self, error: BaseException) -> Callable[[], BaseException]:
        """Close what the database's trouble has made useless. Return what makes each caller's error: raising one writes
        a traceback into it.
        """

    def release(self) -> None:
        """Release the write lock, if it is held."""

    def waited(self, leader: int | None) -> OperationalError:
        """Return the error of a caller who waited too long while the thread ``leader`` of this process led."""


class Job(Struct, Generic[T], eq=False):
    """A piece of work on its way through the queue, and then its outcome."""

    work: Callable[[Any], T] | None
    mark: Mark
    patience_s: float
    any_thread: bool = False
    ran: bool = False
    """Whether the job ran in the transaction that is open."""
    done: bool = False
    written: bool = False
    """Whether it is done because its transaction was committed."""
    left: bool = False
    """Whether its thread has left the queue."""
    attempts_to_leave: int = 0
    wake: Lock | None = None
    late: BaseException | None = None
    """What interrupted this thread while it ran another's job, to be raised at the end."""
    suspect: tuple[Job[Any], BaseException] | None = None
    """Who ran this job before, and what came then: of the job, or from outside?"""
    until: float | None = None
    result: T | None = None
    error: BaseException | None = None

    @property
    def deadline(self) -> float:
        """Until when the caller waits; reckoned from when it first had to."""
        if self.until is None:
            self.until = time.monotonic() + self.patience_s
        return self.until

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self.error = error
            self.done = True

    def raise_error(self) -> NoReturn:
        error, self.error = self.error, None
        assert error is not None  # the caller has seen it
        try:
            raise error
        finally:
            del error  # else it would hold this frame, which holds it, and with it all that the work held


class CommitQueue:
    """Runs jobs in groups.

    An exception that a signal handler raises may come between any two steps of a thread. So each step leaves the queue
    in a state that ``_leave`` can go on from, and no harm is done by a step that is done twice. Leadership is a field:
    a thread leads if, and only if, ``_leader`` is its job.
    """

    def __init__(self, writing: Writing, *, database: str, name: str, patience_s: float) -> None:
        self._writing = writing
        self._database = database
        self._name = name
        self._patience_s = patience_s
        self._main_thread = threading.main_thread().ident
        self._mutex = threading.Lock()
        self._waiting: list[Job[Any]] = []
        self._group: list[Job[Any]] = []
        self._leader: Job[Any] | None = None
        self._running: Job[Any] | None = None
        self._begun = False
        self._committing = False
        self._spoiled = False
        """A job left the group after it had written, so the transaction must not be committed."""
        self._stopped_by: Job[None] | None = None

    def run(self, work: Callable[[Any], T], any_thread: bool = False) -> T:
        """Run ``work`` in some group and return what it returned, or raise what it raised.

        ``any_thread``: it runs no code but ours, so the thread that leads may run it. Raises ``InterfaceError`` if this
        thread is inside a write already, and what ``Writing.waited`` makes if others took longer than the patience;
        nothing of it is written then.
        """
        mark = get_ident(), self._database
        if mark in INSIDE:
            raise nested(self._name)
        job = Job(work, mark, self._patience_s, any_thread)
        try:
            try:
                INSIDE.add(mark)
                with self._mutex:
                    if self._leader is None:
                        self._leader = job
                    else:
                        _prepare_to_wait(job)
                        self._waiting.append(job)
                while not job.done:
                    if self._leader is job:
                        self._lead(job)
                    else:
                        self._wait(job)
                if job.late is not None:
                    raise job.late
                if job.error is not None:
                    job.raise_error()
                return job.result  # type: ignore[return-value]  # done without an error: a result was set
            except BaseException as error:  # noqa: BLE001  raised at the end
                # Nothing is called outside of ``try``: a handler may run at the beginning of a function. And one may
                # raise again while this thread leaves, and once more at the jump back to the next attempt.
                interruption = error
                while not job.left:
                    try:
                        while not job.left:
                            try:
                                self._leave(job)
                            except BaseException as another:  # noqa: BLE001  raised at the end
                                interruption = another
                    except BaseException as another:  # noqa: BLE001  raised at the end
                        interruption = another
                try:
                    if interruption is error:
                        raise
                    raise interruption
                finally:
                    del interruption  # as in ``outcome``
            finally:
                INSIDE.discard(mark)
        except BaseException as error:
            if job.written:
                note_committed(error)
            raise

    def run_all(self, works: Sequence[tuple[Callable[[Any], T], bool]]) -> list[Outcome[T]]:
        """Run several jobs of this thread, each with its ``any_thread``; return the outcome of each.

        As many as possible share a group. Each has the result, or the error, that ``run`` would have given to it alone.
        """
        mark = get_ident(), self._database
        if mark in INSIDE:
            raise nested(self._name)
        jobs = [Job(work, mark, self._patience_s, any_thread) for work, any_thread in works]
        if not jobs:
            return []
        _prepare_to_wait_together(jobs)
        try:
            INSIDE.add(mark)
            with self._mutex:
                self._waiting += jobs
                if self._leader is None:
                    self._leader = jobs[0]
            for job in jobs:
                while not job.done:
                    self._attend(job)
        finally:
            INSIDE.discard(mark)
        return [_outcome(job) for job in jobs]

    def refuse_nested(self) -> None:
        """Raise ``InterfaceError`` if this thread is inside a write."""
        if mark_of(self._database) in INSIDE:
            raise nested(self._name)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Job[None]]:
        """Lead without a group for as long as the block lasts: no other thread writes. The block may take the lock."""
        self.refuse_nested()
        mark = mark_of(self._database)
        job: Job[None] = Job(None, mark, self._patience_s)
        try:
            INSIDE.add(mark)
            self._come_to_lead(job)
            yield job
        finally:
            self._leave(job)
            INSIDE.discard(mark)

    def stop(self, patience_s: float) -> bool:
        """Let no thread write until ``go_on``, so that the process can be forked. False where the patience ends."""
        mark = mark_of(self._database)
        if mark in INSIDE:
            return False
        job: Job[None] = Job(None, mark, patience_s)
        try:
            self._come_to_lead(job)
        except OperationalError:
            return False
        except BaseException:
            self._leave(job)
            raise
        self._stopped_by = job
        return True

    def go_on(self) -> None:
        """Let threads write again."""
        if self._stopped_by is not None:
            self._leave(self._stopped_by)
            self._stopped_by = None

    # -- coming and waiting -------------------------------------------------------------------------------------------

    def _come_to_lead(self, job: Job[Any]) -> None:
        with self._mutex:
            if self._leader is None:
                self._leader = job
            else:
                _prepare_to_wait(job)
                self._waiting.append(job)
        while self._leader is not job:
            self._wait(job)

    def _wait(self, job: Job[Any]) -> None:
        """Wait until the job leads or is done, or may be either."""
        assert job.wake is not None  # made by the caller that queued the job
        if job.wake.acquire(timeout=max(job.deadline - time.monotonic(), 0.0)):
            return
        with self._mutex:
            if job.done or self._leader is job:
                return
            leader = None if self._leader is None else self._leader.mark[0]
            left = self._take_out(job)
        if left:
            raise self._writing.waited(leader)
        job.wake.acquire()  # the commit has begun, and its outcome comes

    def _attend(self, job: Job[Any]) -> None:
        """Lead with a job of this thread, which has the same lock; or wait until one of them may lead, or is done."""
        leader = self._leader
        attended = job if leader is None or leader.wake is not job.wake else leader
        try:
            if attended is leader:
                self._lead(attended)
            else:
                self._wait(attended)
        except BaseException as error:  # noqa: BLE001  it is the outcome of that job
            self._leave(attended)
            attended.late, attended.done = error, True

    # -- leading ------------------------------------------------------------------------------------------------------

    def _lead(self, leader: Job[Any]) -> None:
        """Run the leader's job, and those of others that it may run; then pass leadership on, or commit."""
        if not self._group:
            self._writing.take(leader)
            if self._waiting:
                self._collect(leader)
            else:
                self._group = [leader]
        job = leader
        while self._attempt(job, leader):
            if self._group == [leader] and not self._spoiled:  # it has run, and no other thread changes this group
                self._committing = True
                break
            with self._mutex:
                if self._spoiled:
                    break
                for following in self._group:
                    if not following.ran:
                        break
                else:
                    self._committing = True
                    break
                if not following.any_thread or leader.mark[0] == self._main_thread or leader.done:
                    self._pass_to(following, leader)
                    return
                self._running = job = following
        else:
            return
        if not self._committing:
            self._restart(leader)
            return
        try:
            self._writing.commit()
        except BaseException as error:
            if self._writing.judge(error) is not Fault.OF_DATABASE:
                raise
            self._fail(error)
        else:
            self._end_group(True)

    def _collect(self, leader: Job[Any]) -> None:
        """Make the leader and those who wait the group, up to the first who leads alone."""
        with self._mutex:
            waiting = [job for job in self._waiting if job is not leader]
            end = next((place for place, job in enumerate(waiting) if job.work is None), len(waiting))
            self._group, self._waiting = [leader, *waiting[:end]], waiting[end:]

    def _attempt(self, job: Job[Any], leader: Job[Any]) -> bool:
        """Run a job in the transaction, which is begun where it is not. False where the whole group has failed."""
        try:
            if not self._begun:
                self._writing.begin()
                self._begun = True
            job.result = self._writing.run(job.work)  # type: ignore[arg-type]  # one without work is in no group
            job.ran = True  # whether its result counts, the commit decides
        except BaseException as error:
            fault = self._writing.judge(error)
            if fault is None:
                raise
            if fault is Fault.OF_DATABASE:
                self._fail(error)
                return False
            with self._mutex:
                self._spoiled = self._spoiled or fault is Fault.OF_JOB_THAT_WROTE
                if job is leader or self._writing.is_of_job(error):
                    self._fail_alone(job, error)
                else:
                    self._suspect(job, leader, error)
        return True

    def _fail_alone(self, job: Job[Any], error: BaseException) -> None:
        """Fail one job; the caller holds the mutex."""
        job.fail(self._writing.for_caller(error))
        if job in self._group:
            self._group.remove(job)
        _wake(job)
        if job.suspect is not None:
            leader, earlier = job.suspect
            if type(earlier) is type(error):
                leader.late = None  # it was the job's after all

    def _suspect(self, job: Job[Any], leader: Job[Any], error: BaseException) -> None:
        """Let the job's own thread tell whether this exception is the job's or from outside. The mutex is held."""
        leader.late = error
        job.any_thread, job.suspect = False, (leader, error)
        self._spoiled = True

    def _restart(self, leader: Job[Any]) -> None:
        """Run the jobs that are left in the group again, in another transaction and under the same lock."""
        self._writing.settle()
        with self._mutex:
            self._begun = self._spoiled = False
            for job in self._group:
                job.ran = False
            if self._group:
                self._pass_to(self._group[0], leader)
                return
        self._end_group(False)

    def _fail(self, error: BaseException) -> None:
        make_error = self._writing.fail(error)
        with self._mutex:
            for job in self._group:
                job.fail(make_error())
        self._end_group(False)

    def _pass_to(self, following: Job[Any], leader: Job[Any]) -> None:
        """Make another thread the leader. The mutex is held."""
        if following is not leader:
            if not leader.done:
                _prepare_to_wait(leader)
            self._running = None
            self._leader = following
            _wake(following)

    def _end_group(self, committed: bool) -> None:
        """End the group after its commit or rollback: tell the callers, and let the next thread lead."""
        if not committed:
            self._writing.settle()
        self._writing.release()
        with self._mutex:
            again = []
            for job in self._group:
                if not job.done:
                    if committed:
                        job.written = job.done = True
                    else:
                        job.ran = False
                        again.append(job)
                if job.wake is not None:
                    _wake(job)
            self._begun = self._committing = self._spoiled = False
            self._running, self._group = None, []
            if again:
                self._waiting = again + self._waiting
            if self._waiting:
                self._leader = self._waiting[0]
                _wake(self._leader)
            else:
                self._leader = None

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _leave(self, job: Job[Any]) -> None:
        """Take the job of this thread out of the queue, and leadership with it. Others are where they were."""
        job.attempts_to_leave += 1
        if job.attempts_to_leave == _ATTEMPTS:
            job.left = True  # after this many it is not a signal handler that raises
        while True:
            with self._mutex:
                leads = self._leader is job
                left = not leads and self._take_out(job)
                if not left:
                    _prepare_to_wait(job)
                _wake(self._leader)  # this thread may have been passing leadership on
            if leads:
                committed = self._writing.settle() and self._committing
                with self._mutex:
                    if not committed:
                        self._take_out(job)
                self._end_group(committed)
                break
            if left or job.done:
                break
            assert job.wake is not None
            job.wake.acquire()  # it is being committed
        job.left = True

    def _take_out(self, job: Job[Any]) -> bool:
        """Take a job out of the queue. False if it is part of a commit that has begun. The mutex is held."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job in self._group:
            if self._committing and self._leader is not job:
                return False
            self._spoiled = self._spoiled or job.ran or job is self._running
            self._group.remove(job)
        return True


def _prepare_to_wait(job: Job[Any]) -> None:
    if job.wake is None:
        job.wake = Lock()
        job.wake.acquire()


def _prepare_to_wait_together(jobs: Sequence[Job[Any]]) -> None:
    """Give the jobs of one thread one lock and one deadline: what wakes one of them wakes their thread."""
    first = jobs[0]
    _prepare_to_wait(first)
    for job in jobs:
        job.wake, job.until = first.wake, first.deadline


def _outcome(job: Job[T]) -> Outcome[T]:
    """Return the outcome of a job that has left the queue."""
    error, job.late, job.error = job.late or job.error, None, None
    if error is None:
        return Outcome(job.result)
    if job.written:
        note_committed(error)
    return Outcome(error=error)


def _wake(job: Job[Any] | None) -> None:
    if job is not None and job.wake is not None:
        with contextlib.suppress(RuntimeError):  # it is awake already
            job.wake.release()
