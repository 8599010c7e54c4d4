"""Group commit: who shares a transaction with whom, in which thread, what becomes of errors and of interruptions."""

from __future__ import annotations

import contextvars
import ctypes
import gc
import random
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eventstore.recorders.commit_queue import CommitQueue, Fault, Job
from eventstore.recorders.errors import InterfaceError, OperationalError

PATIENCE_S = 60


def finish(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [thread.name for thread in threads if thread.is_alive()] == [], "a thread waits for ever"


class DatabaseFault(Exception):
    """What a database says when it fails."""


class Groups:
    """A database that knows which jobs it committed together. Jobs write by ``write`` of what they are given."""

    def __init__(self) -> None:
        self.committed: list[list[Any]] = []
        self.lock_is_free = True
        self.open: list[Any] | None = None
        self.commits_fail = False
        self._running = False
        self._written_before = 0
        self._stands = False

    def take(self, job: Job[Any]) -> None:
        self._stands = False
        while not self.lock_is_free:  # with no lock of Python's, which an exception may leave locked
            time.sleep(0.001)

    def begin(self) -> None:
        assert self.open is None, "a transaction was left open"
        self._running, self._stands, self.open = False, False, []

    def run(self, work: Callable[[Any], Any]) -> Any:
        assert self.open is not None
        self._written_before, self._running = len(self.open), True
        return work(self)

    def write(self, what: Any) -> Any:
        assert self.open is not None
        self.open.append(what)
        return what

    def judge(self, error: BaseException) -> Fault | None:
        if isinstance(error, DatabaseFault):
            return Fault.OF_DATABASE
        if not self._running:
            return None
        assert self.open is not None
        return Fault.OF_JOB if len(self.open) == self._written_before else Fault.OF_JOB_THAT_WROTE

    def is_of_job(self, error: BaseException) -> bool:
        return isinstance(error, LookupError)

    def for_caller(self, error: BaseException) -> BaseException:
        return error

    def commit(self) -> None:
        assert self.open is not None
        if self.commits_fail:
            raise DatabaseFault
        self._running, self._stands, self.open, self.committed = False, True, None, [*self.committed, self.open]

    def settle(self) -> bool:
        self.open = None
        return self._stands

    def fail(self, error: BaseException) -> Callable[[], BaseException]:
        return lambda: type(error)(*error.args)

    def release(self) -> None:
        """No other process wants it."""

    def waited(self, leader: int | None) -> OperationalError:
        return OperationalError(f"waited for thread {leader}")


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def queue(groups: Groups) -> CommitQueue:
    return CommitQueue(groups, database="a test", name="a test", patience_s=PATIENCE_S)


def writes(what: Any) -> Callable[[Groups], Any]:
    return lambda groups: groups.write(what)


def until(condition: Callable[[], object]) -> None:
    """Wait for other threads."""
    patience = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.001)


@contextmanager
def a_held_transaction(queue: CommitQueue) -> Iterator[threading.Thread]:
    """A thread leads a group of its own, which goes on at the end of the block."""
    begun, go_on = threading.Event(), threading.Event()

    def hold(groups: Groups) -> None:
        groups.write("first")
        begun.set()
        go_on.wait(PATIENCE_S)

    leader = threading.Thread(target=queue.run, args=(hold,), daemon=True)
    leader.start()
    assert begun.wait(PATIENCE_S)
    yield leader
    go_on.set()
    finish([leader])


def jobs_inside(queue: CommitQueue) -> int:
    """Return how many jobs wait, and the one that leads."""
    return len(queue._waiting) + (queue._leader is not None and queue._leader not in queue._waiting)


class Callers:
    """Threads that wait in the queue in the order of ``add``, and what each of them got."""

    def __init__(self, queue: CommitQueue) -> None:
        self.queue = queue
        self.outcomes: list[Any] = []
        self.threads: list[threading.Thread] = []

    def add(self, *works: Callable[[Any], Any], any_thread: bool = False) -> None:
        for work in works:
            place = len(self.threads)
            self.outcomes.append(None)
            self.threads.append(threading.Thread(target=self._run, args=(place, work, any_thread), daemon=True))
            inside = jobs_inside(self.queue)
            self.threads[-1].start()
            until(lambda inside=inside: jobs_inside(self.queue) > inside)

    def _run(self, place: int, work: Callable[[Any], Any], any_thread: bool) -> None:
        try:
            self.outcomes[place] = self.queue.run(work, any_thread=any_thread)
        except BaseException as error:  # noqa: BLE001  it is the outcome
            self.outcomes[place] = error

    def finish(self) -> list[Any]:
        finish(self.threads)
        return self.outcomes


# -- groups -----------------------------------------------------------------------------------------------------------


def test_a_lone_job_runs_by_itself_and_gives_its_result(queue: CommitQueue, groups: Groups):
    assert queue.run(writes("one")) == "one"
    assert queue.run(writes("two")) == "two"
    assert groups.committed == [["one"], ["two"]]


@pytest.mark.parametrize("any_thread", [False, True])
def test_jobs_that_come_while_a_group_runs_share_the_next_one_in_their_order(
    queue: CommitQueue, groups: Groups, any_thread: bool
):
    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(*[writes(n) for n in range(5)], any_thread=any_thread)
    assert callers.finish() == [0, 1, 2, 3, 4]
    assert groups.committed == [["first"], [0, 1, 2, 3, 4]]


def test_a_job_that_comes_while_the_leader_waits_for_the_write_lock_goes_with_it(queue: CommitQueue, groups: Groups):
    callers = Callers(queue)
    groups.lock_is_free = False
    callers.add(*[writes(n) for n in range(3)])
    groups.lock_is_free = True
    assert callers.finish() == [0, 1, 2]
    assert groups.committed == [[0, 1, 2]]


def test_each_job_runs_in_the_thread_and_the_context_of_its_caller(queue: CommitQueue):
    local, variable = threading.local(), contextvars.ContextVar("variable", default=-1)
    found: list[tuple[int, int, int]] = []

    def call(n: int) -> None:
        local.number = n
        variable.set(n)
        queue.run(lambda groups: found.append((n, getattr(local, "number", -1), variable.get())))

    with a_held_transaction(queue):
        threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(4)]
        for waiting, thread in enumerate(threads):
            thread.start()
            until(lambda waiting=waiting: len(queue._waiting) > waiting)
    finish(threads)
    assert found == [(n, n, n) for n in range(4)]


def test_a_leader_runs_the_jobs_that_any_thread_may_run_unless_it_is_the_main_thread(queue: CommitQueue):
    ran_in: list[threading.Thread] = []

    def where(groups: Groups) -> None:
        ran_in.append(threading.current_thread())

    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(where, where, where, any_thread=True)
    callers.finish()
    assert ran_in == [callers.threads[0]] * 3

    ran_in.clear()
    queue._main_thread = None  # as if each of them could be interrupted
    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(where, any_thread=True)
        queue._main_thread = callers.threads[0].ident
        callers.add(where, where, any_thread=True)
    callers.finish()
    assert ran_in == [callers.threads[0], callers.threads[1], callers.threads[1]]


def run_all(queue: CommitQueue, *works: Callable[[Any], Any], any_thread: bool = True) -> list[Any]:
    """Run several jobs of this thread; return what each returned or raised."""
    outcomes = queue.run_all([(work, any_thread) for work in works])
    return [outcome.value if outcome.error is None else outcome.error for outcome in outcomes]


@pytest.mark.parametrize("any_thread", [False, True])
def test_several_jobs_of_one_thread_share_a_group(queue: CommitQueue, groups: Groups, any_thread: bool):
    assert run_all(queue, *[writes(n) for n in range(5)], any_thread=any_thread) == [0, 1, 2, 3, 4]
    assert run_all(queue) == []
    assert groups.committed == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("any_thread", [False, True])
def test_several_jobs_of_one_thread_wait_for_a_group_and_share_the_next_one_with_others(
    queue: CommitQueue, groups: Groups, any_thread: bool
):
    callers, found = Callers(queue), []
    several = threading.Thread(
        target=lambda: found.extend(run_all(queue, *[writes(n) for n in range(5)], any_thread=any_thread))
    )
    with a_held_transaction(queue):
        callers.add(writes("before"))
        several.start()
        until(lambda: len(queue._waiting) == 6)
        callers.add(writes("after"))
    finish([several])
    assert callers.finish() == ["before", "after"]
    assert found == [0, 1, 2, 3, 4]
    assert groups.committed == [["first"], ["before", 0, 1, 2, 3, 4, "after"]]


def test_each_of_several_jobs_that_call_other_code_runs_in_their_thread(queue: CommitQueue):
    callers, found = Callers(queue), []
    where = lambda _: threading.get_ident()  # noqa: E731
    several = threading.Thread(target=lambda: found.extend(run_all(queue, where, where, any_thread=False)))
    with a_held_transaction(queue):
        callers.add(where)
        several.start()
        until(lambda: len(queue._waiting) == 3)
        callers.add(where)
    finish([several])
    assert callers.finish() == [thread.ident for thread in callers.threads]
    assert found == [several.ident] * 2


# -- errors -----------------------------------------------------------------------------------------------------------


def test_what_is_raised_before_a_group_is_collected_is_the_leaders_alone(queue: CommitQueue, groups: Groups):
    take, failing, both_wait = groups.take, [True], threading.Event()

    def fails_once(job: Job[Any]) -> None:
        if failing and failing.pop():
            assert both_wait.wait(PATIENCE_S)
            raise ValueError("no lock")
        take(job)

    groups.take = fails_once  # type: ignore[method-assign]
    callers = Callers(queue)
    callers.add(writes("one"), writes("two"))
    both_wait.set()
    assert [str(outcome) for outcome in callers.finish()] == ["no lock", "two"]


@pytest.mark.parametrize("any_thread", [False, True])
@pytest.mark.parametrize("wrote", [False, True])
@pytest.mark.parametrize("kind", [LookupError, TimeoutError, OSError, KeyboardInterrupt])
def test_an_error_of_a_job_goes_to_its_caller_alone_and_takes_nothing_of_the_others_with_it(
    queue: CommitQueue, groups: Groups, any_thread: bool, wrote: bool, kind: type[BaseException]
):
    def fails(groups: Groups) -> None:
        if wrote:
            groups.write("never")
        raise kind("mine")

    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(writes(1), fails, writes(2), any_thread=any_thread)
    one, failed, two = callers.finish()
    assert (one, type(failed), two) == (1, kind, 2)
    assert groups.committed == [["first"], [1, 2]]
    assert queue.run(writes(3)) == 3


@pytest.mark.parametrize("any_thread", [False, True])
@pytest.mark.parametrize("wrote", [False, True])
@pytest.mark.parametrize("kind", [LookupError, TimeoutError, OSError, KeyboardInterrupt])
def test_an_error_of_one_of_several_jobs_is_its_own(
    queue: CommitQueue, groups: Groups, any_thread: bool, wrote: bool, kind: type[BaseException]
):
    def fails(groups: Groups) -> None:
        if wrote:
            groups.write("never")
        raise kind("mine")

    first, one, failed, two, last = run_all(queue, fails, writes(1), fails, writes(2), fails, any_thread=any_thread)
    assert (type(first), one, type(failed), two, type(last)) == (kind, 1, kind, 2, kind)
    assert groups.committed == [[1, 2]]
    assert queue.run(writes(3)) == 3


def test_several_jobs_that_do_not_get_the_write_lock_fail_each_for_itself(queue: CommitQueue, groups: Groups):
    def fails(job: Job[Any]) -> None:
        raise ValueError("no lock")

    take, groups.take = groups.take, fails  # type: ignore[method-assign]
    outcomes = run_all(queue, writes(1), writes(2))
    assert [str(outcome) for outcome in outcomes] == ["no lock"] * 2
    groups.take = take  # type: ignore[method-assign]
    assert queue.run(writes(3)) == 3
    assert groups.committed == [[3]]


def test_several_jobs_fail_with_the_database(queue: CommitQueue, groups: Groups):
    groups.commits_fail = True
    outcomes = run_all(queue, writes(1), writes(2))
    assert [type(outcome) for outcome in outcomes] == [DatabaseFault] * 2
    assert outcomes[0] is not outcomes[1]
    assert groups.committed == []


def test_an_interruption_of_several_jobs_after_their_commit_says_so(queue: CommitQueue, groups: Groups):
    commit = groups.commit

    def interrupted() -> None:
        commit()
        raise KeyboardInterrupt

    groups.commit = interrupted  # type: ignore[method-assign]
    first, last = run_all(queue, writes(1), writes(2))  # the last one led when it came
    assert first == 1
    assert isinstance(last, KeyboardInterrupt)
    assert "was committed" in last.__notes__[0]
    assert groups.committed == [[1, 2]]


def test_an_error_of_the_database_is_that_of_the_whole_group_and_each_gets_its_own(queue: CommitQueue, groups: Groups):
    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(*[writes(n) for n in range(3)])
        until(lambda: len(queue._waiting) == 3)
        begin = groups.begin

        def begin_to_fail() -> None:
            groups.commits_fail = True
            begin()

        groups.begin = begin_to_fail  # type: ignore[method-assign]
    outcomes = callers.finish()
    assert [type(outcome) for outcome in outcomes] == [DatabaseFault] * 3
    assert len(set(map(id, outcomes))) == 3
    assert groups.committed == [["first"]]


def test_an_error_that_was_raised_is_not_kept_alive(queue: CommitQueue):
    class Large:
        """Something in a frame of the work that failed."""

    kept: list[weakref.ref[Large]] = []

    def fails(_: Any) -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise ValueError(large.__doc__)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="frame"):
            queue.run(fails)
        assert kept[0]() is None
    finally:
        gc.enable()


# -- a write inside a write -------------------------------------------------------------------------------------------


def test_a_write_inside_a_write_is_refused_and_the_outer_one_goes_on(queue: CommitQueue, groups: Groups):
    refused: list[str] = []

    def outer(groups: Groups) -> Any:
        write, several = writes("inner"), [(writes("inner"), True)]
        for inner in (lambda: queue.run(write), lambda: queue.run_all(several), lambda: queue.alone().__enter__()):
            with pytest.raises(InterfaceError, match="this thread is inside a write to this store") as raised:
                inner()
            refused.append(str(raised.value))
        assert not queue.stop(PATIENCE_S)
        return groups.write("outer")

    assert queue.run(outer) == "outer"
    assert len(refused) == 3
    assert queue.run(writes("after")) == "after"
    assert groups.committed == [["outer"], ["after"]]


def test_a_signal_handler_that_writes_while_its_thread_waits_in_the_queue_is_refused(
    queue: CommitQueue, groups: Groups
):
    refused: list[BaseException] = []

    def handle(*_: object) -> None:
        try:
            queue.run(writes("never"))
        except InterfaceError as error:
            refused.append(error)

    def press() -> None:
        until(lambda: len(queue._waiting) == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        until(lambda: refused)
        go_on.set()

    begun, go_on = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        holder = threading.Thread(target=queue.run, args=(lambda _: (begun.set(), go_on.wait(PATIENCE_S)),))
        holder.start()
        begun.wait(PATIENCE_S)
        pressing = threading.Thread(target=press)
        pressing.start()
        assert queue.run(writes("main")) == "main"
        finish([holder, pressing])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1
    assert groups.committed[-1] == ["main"]


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_who_waits_too_long_is_told_who_leads_and_nothing_of_it_is_written(groups: Groups):
    queue = CommitQueue(groups, database="a test", name="a test", patience_s=PATIENCE_S)
    with a_held_transaction(queue) as leader:
        queue._patience_s = 0.0
        with pytest.raises(OperationalError, match=f"waited for thread {leader.ident}"):
            queue.run(writes("never"))
    assert groups.committed == [["first"]]


def test_several_jobs_that_wait_too_long_wait_together_and_nothing_of_them_is_written(groups: Groups):
    queue = CommitQueue(groups, database="a test", name="a test", patience_s=PATIENCE_S)
    with a_held_transaction(queue) as leader:
        queue._patience_s = 0.1
        begun = time.monotonic()
        outcomes = run_all(queue, *[writes("never")] * 100)
        assert time.monotonic() - begun < 100 * 0.1
    assert [str(outcome) for outcome in outcomes] == [f"waited for thread {leader.ident}"] * 100
    assert groups.committed == [["first"]]


def test_who_waits_too_long_for_another_job_of_its_group_is_taken_out_of_it(queue: CommitQueue, groups: Groups):
    """It has run, and is not yet committed: the others run again without it."""
    waited, runs = threading.Event(), []

    def slow(groups: Groups) -> Any:
        runs.append(len(runs))
        waited.wait(PATIENCE_S)
        return groups.write("slow")

    callers = Callers(queue)
    with a_held_transaction(queue):
        queue._patience_s = 0.5
        callers.add(writes("impatient"))
        queue._patience_s = PATIENCE_S
        callers.add(slow)
    finish(callers.threads[:1])
    waited.set()
    impatient, outcome = callers.finish()
    assert isinstance(impatient, OperationalError)
    assert (outcome, len(runs)) == ("slow", 2)
    assert groups.committed == [["first"], ["slow"]]


# -- interruptions ----------------------------------------------------------------------------------------------------


def test_an_interrupted_leader_leaves_the_others_as_they_were(queue: CommitQueue, groups: Groups):
    commit = groups.commit

    def interrupted_once() -> None:
        groups.commit = commit  # type: ignore[method-assign]
        raise KeyboardInterrupt

    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(*[writes(name) for name in "abcd"])
        begin = groups.begin

        def begin_to_interrupt() -> None:
            groups.begin, groups.commit = begin, interrupted_once  # type: ignore[method-assign]
            begin()

        groups.begin = begin_to_interrupt  # type: ignore[method-assign]
    outcomes = callers.finish()
    assert outcomes[:3] == ["a", "b", "c"]
    assert isinstance(outcomes[3], KeyboardInterrupt)
    assert groups.committed == [["first"], ["a", "b", "c"]]


def test_an_interruption_after_the_commit_says_so_and_the_others_have_their_results(queue: CommitQueue, groups: Groups):
    commit = groups.commit

    def interrupted_after() -> None:
        commit()
        raise TimeoutError("the time is over")

    groups.commit = interrupted_after  # type: ignore[method-assign]
    with pytest.raises(TimeoutError) as raised:
        queue.run(writes("one"))
    assert ["was committed" in note for note in raised.value.__notes__] == [True]
    assert groups.committed == [["one"]]


def test_what_interrupts_a_leader_in_the_job_of_another_reaches_the_leader(queue: CommitQueue, groups: Groups):
    interruptions = [TimeoutError("of the leader")]

    def interrupted_once(groups: Groups) -> Any:
        groups.write(2)
        if interruptions:
            raise interruptions.pop()
        return 2

    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(writes(1), interrupted_once, any_thread=True)
    leader, other = callers.finish()
    assert other == 2
    assert isinstance(leader, TimeoutError)
    assert ["was committed" in note for note in leader.__notes__] == [True]
    assert groups.committed == [["first"], [1, 2]]


def test_an_interrupted_waiter_leaves_and_the_others_go_on(queue: CommitQueue, groups: Groups):
    """The main thread, the only one that Python interrupts, waits in the queue when Ctrl-C comes."""
    callers = Callers(queue)
    with a_held_transaction(queue):

        def press() -> None:
            until(lambda: queue._waiting)
            callers.add(writes("after"))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        pressing = threading.Thread(target=press, daemon=True)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            queue.run(writes("never"))
        finish([pressing])
    assert callers.finish() == ["after"]
    assert groups.committed == [["first"], ["after"]]


INTERRUPTIONS = 1_000


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def reports_that_nothing_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption may come inside a callback of Python's own, such as one of a WeakSet: Python reports it to
    ``sys.unraisablehook`` and goes on. The hook of pytest is Python code, so it can be interrupted itself; this is not.
    """
    monkeypatch.setattr(sys, "unraisablehook", deque[Any](maxlen=0).append)


@pytest.mark.usefixtures("threads_that_switch_often", "reports_that_nothing_interrupts")
@pytest.mark.parametrize("any_thread", [False, True])
def test_interruptions_at_any_step_leave_no_thread_waiting_and_nothing_done_twice(any_thread: bool):
    """Threads are interrupted between any two of their steps, and again while they leave. Each run ends; a job that
    gave its result ran once, one that was interrupted at most once.
    """
    groups = Groups()
    queue = CommitQueue(groups, database="a test", name="a test", patience_s=PATIENCE_S)
    at = random.Random(7)
    succeeded: list[int] = []
    running: dict[int, bool] = {}
    numbers = iter(range(10**9))
    stop = threading.Event()

    def work(shields: int = 6) -> None:
        """An exception may come late, after ``run``, and while another one is handled: so there are several shields."""
        me = threading.get_ident()
        while True:
            try:
                if stop.is_set():
                    return
                if shields:
                    work(shields - 1)
                    continue
                n = next(numbers)
                running[me] = True
                result = queue.run(writes(n), any_thread=any_thread)
                running[me] = False
                succeeded.append(result)
            except KeyboardInterrupt:
                pass

    threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    interruptions = 0
    while interruptions < INTERRUPTIONS:
        target = at.choice(threads).ident or 0
        if running.get(target):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(KeyboardInterrupt))
            interruptions += 1
        time.sleep(at.random() * 0.001)
    stop.set()
    finish(threads)
    committed = [n for group in groups.committed for n in group]
    assert len(committed) == len(set(committed))
    assert set(succeeded) <= set(committed)
    assert len(succeeded) > 100
