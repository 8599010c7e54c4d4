"""Group commit: who shares a transaction with whom, what becomes of errors and of interruptions."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eventstore.recorders.commit_queue import CommitQueue, Job

PATIENCE_S = 20


def finish(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [thread.name for thread in threads if thread.is_alive()] == [], "somebody waits for ever"


class Groups:
    """Runs groups as a recorder would, and holds the first of them until it is told to go on."""

    def __init__(self) -> None:
        self.run: list[list[Any]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, collect: Callable[[], list[Job[Any]]]) -> None:
        jobs = collect()
        self.run.append([job.work(None) for job in jobs])
        self.begun.set()
        self.go_on.wait(PATIENCE_S)
        for job, result in zip(jobs, self.run[-1], strict=True):
            job.succeed(result)


@contextmanager
def a_held_group(queue: CommitQueue, groups: Groups) -> Iterator[threading.Thread]:
    """A thread leads a group of its own, which goes on at the end of the block."""
    leader = threading.Thread(target=queue.run, args=(lambda _: "first",), daemon=True)
    leader.start()
    assert groups.begun.wait(PATIENCE_S)
    yield leader
    groups.go_on.set()
    finish([leader])


def in_threads(queue: CommitQueue, works: list[Callable[[Any], Any]]) -> list[threading.Thread]:
    """Threads that wait in the queue, in this order."""
    threads = []
    for n, work in enumerate(works, start=1):
        threads.append(threading.Thread(target=queue.run, args=(work,), daemon=True))
        threads[-1].start()
        deadline = time.monotonic() + PATIENCE_S
        while len(queue._waiting) < n and time.monotonic() < deadline:
            time.sleep(0.001)
    return threads


def test_a_lone_job_runs_by_itself_and_gives_its_result():
    groups = Groups()
    groups.go_on.set()
    queue = CommitQueue(groups)
    assert queue.run(lambda _: "result") == "result"
    assert queue.run(lambda _: "another") == "another"
    assert groups.run == [["result"], ["another"]]


def test_jobs_that_come_while_a_group_runs_share_the_next_one_in_their_order():
    groups = Groups()
    queue = CommitQueue(groups)
    with a_held_group(queue, groups):
        threads = in_threads(queue, [lambda _, n=n: n for n in range(5)])
    finish(threads)
    assert groups.run == [["first"], [0, 1, 2, 3, 4]]


def test_who_comes_while_the_leader_waits_for_its_turn_goes_with_it():
    turn = threading.Event()
    run: list[list[Any]] = []

    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        turn.wait(PATIENCE_S)
        jobs = collect()
        run.append([job.work(None) for job in jobs])
        for job in jobs:
            job.succeed(None)

    queue = CommitQueue(run_group)
    threads = in_threads(queue, [lambda _, n=n: n for n in range(3)])
    turn.set()
    finish(threads)
    assert run == [[0, 1, 2]]


def test_what_is_raised_before_a_group_is_collected_is_the_leaders_alone():
    failing = threading.Event()
    failing.set()

    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        if failing.is_set():
            while len(queue._waiting) < 2:
                time.sleep(0.001)
            failing.clear()
            raise ValueError("no turn")
        for job in collect():
            job.succeed("done")

    queue = CommitQueue(run_group)
    follower = threading.Thread(target=queue.run, args=(lambda _: None,), daemon=True)
    behind = threading.Timer(0.05, follower.start)
    behind.start()
    with pytest.raises(ValueError, match="no turn"):
        queue.run(lambda _: None)
    finish([behind, follower])


def test_an_error_goes_to_its_caller_alone():
    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        for job in collect():
            try:
                job.succeed(job.work(None))
            except ValueError as error:
                job.fail(error)

    queue = CommitQueue(run_group)

    def fails(_: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        queue.run(fails)
    assert queue.run(lambda _: 1) == 1


def test_an_error_that_was_raised_is_not_kept_alive():
    class Large:
        """Something in a frame of the work that failed."""

    kept: list[weakref.ref[Large]] = []

    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        for job in collect():
            try:
                job.work(None)
            except ValueError as error:
                job.fail(error)

    def fails(_: Any) -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise ValueError(large.__doc__)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="frame"):
            CommitQueue(run_group).run(fails)
        assert kept[0]() is None
    finally:
        gc.enable()


def test_an_interrupted_leader_hands_on_what_it_did_not_do():
    groups = Groups()
    interrupt = threading.Event()

    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        if interrupt.is_set():
            interrupt.clear()
            jobs = collect()
            jobs[1].succeed("done before the interruption")
            raise KeyboardInterrupt
        groups(collect)

    queue = CommitQueue(run_group)
    outcomes: dict[str, Any] = {}

    def work_as(name: str) -> Callable[[], None]:
        def run() -> None:
            try:
                outcomes[name] = queue.run(lambda _: name)
            except KeyboardInterrupt:
                outcomes[name] = "interrupted"

        return run

    with a_held_group(queue, groups):
        threads = []
        for n, name in enumerate(("a", "b", "c", "d"), start=1):
            threads.append(threading.Thread(target=work_as(name), daemon=True))
            threads[-1].start()
            while len(queue._waiting) < n:
                time.sleep(0.001)
        interrupt.set()
    finish(threads)
    assert outcomes == {"a": "interrupted", "b": "done before the interruption", "c": "c", "d": "d"}
    assert groups.run == [["first"], ["c", "d"]]


def test_an_interrupted_waiter_leaves_and_the_others_go_on():
    """The main thread, the only one that Python interrupts, waits in the queue when Ctrl-C comes."""
    groups = Groups()
    queue = CommitQueue(groups)
    with a_held_group(queue, groups):
        others: list[threading.Thread] = []

        def press() -> None:
            while not queue._waiting:
                time.sleep(0.001)
            others.extend(in_threads_behind_one(queue))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        pressing = threading.Thread(target=press, daemon=True)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            queue.run(lambda _: "never")
        finish([pressing])
    finish(others)
    assert groups.run == [["first"], ["behind"]]


def in_threads_behind_one(queue: CommitQueue) -> list[threading.Thread]:
    thread = threading.Thread(target=queue.run, args=(lambda _: "behind",), daemon=True)
    thread.start()
    while len(queue._waiting) < 2:
        time.sleep(0.001)
    return [thread]


@pytest.mark.parametrize("seed", range(3))
def test_interruptions_at_any_step_leave_nobody_waiting_and_nothing_done_twice(seed: int):
    """Threads are interrupted between any two of their steps. Each run ends; a job that gave its result ran once, one
    that was interrupted at most once.
    """
    ran: list[int] = []

    def run_group(collect: Callable[[], list[Job[Any]]]) -> None:
        # What it does takes effect at once at its end, as a commit does.
        results = [(job, job.work(None)) for job in collect()]
        outcome = None
        try:
            outcome = ran.extend(n for _, n in results)
        finally:
            if outcome is None and ran and results and results[-1][1] in ran[-1:]:
                for job, n in results:
                    job.succeed(n)

    queue = CommitQueue(run_group)
    at = random.Random(seed)
    succeeded: list[int] = []
    running: dict[int, bool] = {}
    numbers = iter(range(10**9))
    until = time.monotonic() + 1.5

    def work() -> None:
        me = threading.get_ident()
        while time.monotonic() < until:
            with contextlib.suppress(KeyboardInterrupt):
                while time.monotonic() < until:
                    n = next(numbers)
                    running[me] = True
                    result = queue.run(lambda _, n=n: n)
                    running[me] = False
                    succeeded.append(result)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        target = at.choice(threads).ident or 0
        if running.get(target):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(KeyboardInterrupt))
        time.sleep(at.random() * 0.001)
    finish(threads)
    assert len(ran) == len(set(ran))
    assert set(succeeded) <= set(ran)
    assert len(succeeded) > 100
