"""Group commit: who shares a transaction with whom, in which thread, what becomes of errors and of
interruptions.

The main thread leads alone, so the callers that share a transaction are other threads.
"""

import contextvars
import gc
import signal
import sqlite3
import threading
import time
import weakref
from contextlib import contextmanager

import pytest

from foldlog.eventstore.errors import StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.group_commit import CommitQueue
from foldlog.eventstore.recorders.types import Conversation
from tests.waiting import until

PATIENCE_S = 60


def finish(threads):
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [thread.name for thread in threads if thread.is_alive()] == [], "a thread waits for ever"


class DatabaseFault(Exception):
    """The error of a database that fails."""


class Groups:
    """A database that knows which jobs it committed together. Each job gets the database, and calls
    ``write``. ``committed`` contains a list for each transaction, with what its jobs wrote.
    """

    def __init__(self):
        self.committed = []
        self.lock_is_free = True
        self.open = None
        self.commits_fail = False
        self._written_before = 0
        self._stands = False
        """Whether the last transaction was committed."""

    def take(self, deadline):
        self._stands = False
        while not self.lock_is_free:
            time.sleep(0.001)

    def begin(self, *, durable):
        assert self.open is None, "a transaction was left open"
        self._stands = False
        self.open = []

    def run(self, work):
        self._written_before = len(self.open)
        return work(self)

    def write(self, what):
        self.open.append(what)
        return what

    def wrote(self):
        return len(self.open) > self._written_before

    def error_of_job(self, error):
        return None if isinstance(error, DatabaseFault) else error

    def commit(self):
        if self.commits_fail:
            raise DatabaseFault
        self.committed.append(self.open)
        self.open = None
        self._stands = True

    def settle(self):
        self.open = None
        return self._stands

    def fail(self, error):
        if not isinstance(error, DatabaseFault):
            return None
        self.open = None
        return lambda: type(error)(*error.args)

    def release(self):
        """Release nothing: no other process wants the lock."""

    def waited(self, leader):
        return StoreUnavailable(f"waited for thread {leader}", kind="busy")


@pytest.fixture
def groups():
    return Groups()


@pytest.fixture
def queue(groups):
    return CommitQueue(groups, "a test", PATIENCE_S)


def writes(what):
    return lambda groups: groups.write(what)


def write_first(groups):
    groups.write("first")


@contextmanager
def a_held_transaction(queue, work=write_first):
    """Let a thread lead a group, which continues at the end of the block."""
    begun = threading.Event()
    go_on = threading.Event()

    def hold(transaction):
        work(transaction)
        begun.set()
        go_on.wait(PATIENCE_S)

    leader = threading.Thread(target=queue.run, args=(hold,), daemon=True)
    leader.start()
    assert begun.wait(PATIENCE_S)
    try:
        yield leader
    finally:
        go_on.set()
        finish([leader])


@contextmanager
def released_when(queue, waited):
    """Hold a transaction until a job of the main thread waits. Then call ``waited``, and let the
    transaction go on.
    """

    held = threading.Event()
    failed = threading.Event()

    def release():
        with a_held_transaction(queue):
            held.set()
            until(lambda: queue._waiting or failed.is_set())
            if not failed.is_set():
                waited()

    holding = threading.Thread(target=release, daemon=True)
    holding.start()
    assert held.wait(PATIENCE_S)
    try:
        yield
    except BaseException:
        failed.set()
        raise
    finally:
        finish([holding])


def jobs_inside(queue):
    """Return how many jobs wait or lead."""
    return len(queue._waiting) + (queue._leader is not None and queue._leader not in queue._waiting)


class Callers:
    """Threads that wait in the queue in the order of ``add``. ``outcomes`` contains what each of
    them got.
    """

    def __init__(self, queue):
        self.queue = queue
        self.outcomes = []
        self.threads = []

    def add(self, *works, any_thread=True):
        for work in works:
            place = len(self.threads)
            self.outcomes.append(None)
            self.threads.append(
                threading.Thread(target=self._run, args=(place, work, any_thread), daemon=True)
            )
            inside = jobs_inside(self.queue)
            self.threads[-1].start()
            until(lambda inside=inside: jobs_inside(self.queue) > inside)

    def _run(self, place, work, any_thread):
        try:
            self.outcomes[place] = self.queue.run(work, any_thread=any_thread)
        except BaseException as error:  # noqa: BLE001  it is the outcome
            self.outcomes[place] = error

    def finish(self):
        finish(self.threads)
        return self.outcomes


@pytest.fixture
def together(queue):
    """Run jobs that came, in this order, while a transaction was held. Return what each caller
    got.
    """

    def run(*works, any_thread=True):
        callers = Callers(queue)
        with a_held_transaction(queue):
            callers.add(*works, any_thread=any_thread)
        return callers.finish()

    return run


def test_failed_block_ends_the_held_transaction(queue):
    with pytest.raises(LookupError), a_held_transaction(queue) as leader:
        raise LookupError
    assert not leader.is_alive()


# -- groups
# --------------------------------------------------------------------------------------------------


def test_waiting_jobs_share_the_next_group(together, groups):
    assert together(*[writes(n) for n in range(5)]) == [0, 1, 2, 3, 4]
    assert groups.committed == [["first"], [0, 1, 2, 3, 4]]


def test_job_joins_a_leader_without_the_lock(queue, groups):
    callers = Callers(queue)
    groups.lock_is_free = False
    callers.add(*[writes(n) for n in range(3)])
    groups.lock_is_free = True
    assert callers.finish() == [0, 1, 2]
    assert groups.committed == [[0, 1, 2]]


def test_job_with_foreign_code_leads_alone(queue, groups):
    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(writes(1), writes(2))
        callers.add(writes("other"), any_thread=False)
        callers.add(writes(3), writes(4))
    assert callers.finish() == [1, 2, "other", 3, 4]
    assert groups.committed == [["first"], [1, 2], ["other"], [3, 4]]


def test_foreign_code_runs_in_its_callers_thread(queue):
    variable = contextvars.ContextVar("variable", default=None)
    ran_in = []

    def call():
        variable.set(threading.current_thread())
        queue.run(lambda _: ran_in.append((threading.current_thread(), variable.get())))

    with a_held_transaction(queue):
        threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for waiting, thread in enumerate(threads):
            thread.start()
            until(lambda waiting=waiting: len(queue._waiting) > waiting)
    finish(threads)
    assert ran_in == [(thread, thread) for thread in threads]


def test_main_thread_leads_alone(queue, groups):
    """Otherwise an error of a signal handler, which runs in the main thread, would end the jobs of
    other threads.
    """
    ran_in = []

    def where(groups):
        groups.write(len(ran_in))
        ran_in.append(threading.current_thread())

    callers = Callers(queue)
    with released_when(queue, lambda: callers.add(where, where)):
        queue.run(where, any_thread=True)
    callers.finish()
    assert ran_in == [threading.main_thread(), callers.threads[0], callers.threads[0]]
    assert groups.committed == [["first"], [0], [1, 2]]


def run_all(queue, *works):
    """Run several jobs of one thread, which is not the main one; return what each returned."""
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.extend(queue.run_all(works)), daemon=True)
    thread.start()
    finish([thread])
    return [outcome.value for outcome in outcomes]


def test_jobs_of_one_thread_share_a_group(queue, groups):
    assert run_all(queue, *[(writes(n), True) for n in range(5)]) == [0, 1, 2, 3, 4]
    assert run_all(queue) == []
    assert groups.committed == [[0, 1, 2, 3, 4]]


def test_jobs_of_one_thread_keep_their_order(queue, groups):
    works = [(writes(n), n not in (2, 5)) for n in range(1, 6)]
    assert run_all(queue, *works) == [1, 2, 3, 4, 5]
    assert groups.committed == [[1], [2], [3, 4], [5]]


def test_jobs_of_the_main_thread_do_not_join_others(queue, groups):
    callers = Callers(queue)
    with released_when(queue, lambda: callers.add(writes("other"))):
        queue.run_all([(writes("main"), True)])
    assert callers.finish() == ["other"]
    assert groups.committed == [["first"], ["main"], ["other"]]


# -- errors
# --------------------------------------------------------------------------------------------------


def test_database_that_fails_in_a_job_fails_the_group(together, groups):
    def fails(groups):
        raise DatabaseFault

    outcomes = together(writes("leader"), fails, writes("last"))
    assert [type(outcome) for outcome in outcomes] == [DatabaseFault] * 3
    assert groups.committed == [["first"]]


def test_leader_without_the_lock_fails_alone(queue, groups):
    take = groups.take
    failing = [True]
    both_wait = threading.Event()

    def fails_once(deadline):
        if failing and failing.pop():
            assert both_wait.wait(PATIENCE_S)
            raise DatabaseFault("no lock")
        take(deadline)

    groups.take = fails_once
    callers = Callers(queue)
    callers.add(writes("one"), writes("two"))
    both_wait.set()
    assert [str(outcome) for outcome in callers.finish()] == ["no lock", "two"]


@pytest.mark.parametrize("any_thread", [False, True])
@pytest.mark.parametrize("wrote", [False, True])
def test_error_reaches_only_its_caller(together, queue, groups, any_thread, wrote):
    def fails(groups):
        if wrote:
            groups.write("never")
        raise OSError("mine")

    first, failed, two = together(writes(1), fails, writes(2), any_thread=any_thread)
    assert (first, type(failed), two) == (1, OSError, 2)
    assert [written for group in groups.committed for written in group] == ["first", 1, 2]
    assert queue.run(writes(3)) == 3


def test_refused_job_is_run_again(together, groups):
    """The write because of which it was refused may have been rolled back."""

    def fails(groups):
        groups.write("never")
        raise LookupError

    def refused_behind(groups):
        if "never" in (groups.open or []):
            raise LookupError("it is taken")
        return groups.write("taken")

    failed, result = together(fails, refused_behind)
    assert (type(failed), result) == (LookupError, "taken")
    assert groups.committed == [["first"], ["taken"]]


def test_each_caller_gets_its_own_error(queue, groups):
    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(*[writes(n) for n in range(3)])
        until(lambda: len(queue._waiting) == 3)
        begin = groups.begin

        def begin_to_fail(*, durable):
            groups.commits_fail = True
            begin(durable=durable)

        groups.begin = begin_to_fail
    outcomes = callers.finish()
    assert [type(outcome) for outcome in outcomes] == [DatabaseFault] * 3
    assert len(set(map(id, outcomes))) == 3
    assert groups.committed == [["first"]]


def test_raised_error_holds_no_frame(queue):
    class Large:
        """Something in a frame of the work that failed."""

    references = []

    def fails(_):
        large = Large()
        references.append(weakref.ref(large))
        raise ValueError(large.__doc__)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="frame"):
            queue.run(fails)
        assert references[0]() is None
    finally:
        gc.enable()


# -- a write inside a write
# -------------------------------------------------------------------------------------------


def test_write_inside_a_write_is_refused(queue, groups):
    refused = []

    def outer(groups):
        write = writes("inner")
        several = [(writes("inner"), True)]
        for inner in (
            lambda: queue.run(write),
            lambda: queue.run_all(several),
            lambda: queue.alone().__enter__(),
        ):
            with pytest.raises(
                StoreRefused, match="this thread is already inside a write to this store"
            ) as raised:
                inner()
            refused.append(str(raised.value))
        return groups.write("outer")

    assert queue.run(outer) == "outer"
    assert len(refused) == 3
    assert queue.run(writes("after")) == "after"
    assert groups.committed == [["outer"], ["after"]]


def test_write_in_a_signal_handler_is_refused(queue, groups):
    refused = []

    def handle(*_):
        try:
            queue.run(writes("never"))
        except StoreRefused as error:
            refused.append(error)

    def press():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        until(lambda: refused)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with released_when(queue, press):
            assert queue.run(writes("main")) == "main"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1
    assert groups.committed[-1] == ["main"]


# -- waiting
# --------------------------------------------------------------------------------------------------


def test_late_waiter_learns_who_leads(queue, groups):
    with a_held_transaction(queue) as leader:
        queue._patience_s = 0.0
        with pytest.raises(StoreUnavailable, match=f"waited for thread {leader.ident}"):
            queue.run(writes("never"))
    assert groups.committed == [["first"]]


def test_job_of_a_group_waits_for_its_outcome(queue, groups):
    impatient_is_late = threading.Event()

    def slow(groups):
        impatient_is_late.wait(PATIENCE_S)
        return groups.write("slow")

    callers = Callers(queue)
    with a_held_transaction(queue):
        callers.add(slow)
        callers.add(writes("impatient"))
    until(lambda: len(queue._group) == 2)
    impatient = queue._group[1]
    impatient.deadline = time.monotonic()  # has passed, once the job is in the group
    impatient.wake.release()  # The job looks whether it is done, and waits until its deadline.
    until(impatient.wake.locked)
    impatient_is_late.set()
    assert callers.finish() == ["slow", "impatient"]
    assert groups.committed == [["first"], ["slow", "impatient"]]


# -- interruptions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step, committed",
    [("run", ["b", "c"]), ("commit", ["b", "c"]), ("release", ["leader", "b", "c"])],
)
def test_interrupted_leader_loses_no_other_job(together, groups, step, committed):
    goes_on = getattr(groups, step)

    def interrupted_once(*_):
        setattr(groups, step, goes_on)
        raise KeyboardInterrupt

    def leads(groups):
        setattr(groups, step, interrupted_once)
        return groups.write("leader")

    leader, *others = together(leads, writes("b"), writes("c"))
    assert others == ["b", "c"]
    assert isinstance(leader, KeyboardInterrupt)
    # If the leader's own job was committed, a note tells it.
    assert hasattr(leader, "__notes__") == ("leader" in committed)
    assert groups.committed == [["first"], committed]


def test_interrupted_leader_leaves_in_spite_of_a_second_interruption(queue, groups):
    commit = groups.commit
    settle = groups.settle

    def interrupted_again():
        groups.settle = settle
        raise KeyboardInterrupt

    def interrupted():
        groups.commit = commit
        groups.settle = interrupted_again
        raise KeyboardInterrupt

    groups.commit = interrupted
    with pytest.raises(KeyboardInterrupt):
        queue.run(writes("never"))
    queue._patience_s = 0  # nobody leads, so nobody waits
    assert queue.run(writes("after")) == "after"
    assert groups.committed == [["after"]]


def test_interruption_in_anothers_job_reaches_the_leader(together, groups):
    interruptions = [KeyboardInterrupt()]

    def interrupted_once(groups):
        groups.write(2)
        if interruptions:
            raise interruptions.pop()
        return 2

    leader, other, last = together(writes(1), interrupted_once, writes(3))
    assert (other, last) == (2, 3)
    assert isinstance(leader, KeyboardInterrupt)
    assert not hasattr(leader, "__notes__")
    assert groups.committed == [["first"], [2, 3]]


@pytest.mark.parametrize(
    "wait",
    [lambda queue: queue.run(writes("never")), lambda queue: queue.begin_alone(PATIENCE_S)],
    ids=["together", "alone"],
)
def test_interrupted_waiter_leaves(queue, groups, wait):
    """The main thread, the only one that Python interrupts, waits in the queue when Ctrl-C
    comes.
    """
    callers = Callers(queue)
    with a_held_transaction(queue):

        def press():
            until(lambda: queue._waiting)
            callers.add(writes("after"))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        pressing = threading.Thread(target=press, daemon=True)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            wait(queue)
        finish([pressing])
    assert callers.finish() == ["after"]
    assert groups.committed == [["first"], ["after"]]


def test_a_taken_name_is_an_error_of_its_job_and_a_database_that_cannot_write_is_not(tmp_path):
    recorder = SQLiteRecorder(str(tmp_path / "store.db"))
    errors = []

    def note(action):
        try:
            action()
        except sqlite3.Error as error:
            errors.append(error)

    def work(transaction):
        name = Conversation(0, "c", 5, bytes(16))
        transaction.begin(name)
        note(lambda: transaction.begin(name))
        connection = recorder._writing.connection
        connection.execute("PRAGMA query_only = 1")
        note(lambda: transaction.set_value("name", "value"))
        connection.execute("PRAGMA query_only = 0")

    try:
        recorder.transact(work)
        taken, read_only = errors
        assert isinstance(taken, sqlite3.IntegrityError)
        refusal = recorder._writing.error_of_job(taken)
        assert isinstance(refusal, StoreUnavailable)
        assert str(refusal).endswith("failed: conversations.id; nothing was written")
        assert isinstance(read_only, sqlite3.OperationalError)
        assert recorder._writing.error_of_job(read_only) is None
        foreign = sqlite3.OperationalError("of a program")
        assert recorder._writing.error_of_job(foreign) is foreign
    finally:
        recorder.close()
