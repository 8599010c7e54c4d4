"""A plugin of pytest for ``tests.mutants``: judges many mutants in one process that has collected the
tests once.

The project is a copy in which each drawn place is written twice, as it is and changed, behind a
switch (``foldlog/_switch.py``). The process forks for each run, so that no run sees what another one
left in memory. First all tests run without a change, and each place writes down the tests that reach
it. Then for each mutant the tests that reached it run until one fails, the quick ones first.

What a run writes has its final name only after the run has ended, and ``--seconds`` ends a process
between two tests. Another process with the same folder then goes on with the tests that are missing.
"""

import contextlib
import faulthandler
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIMIT_S = 60
LIMIT_FACTOR = 20
"""A test did not end if it takes so many seconds, and so many times its usual time: the machine may be
busy.
"""
REACHED = "reached"
"""A folder with a file for each mutant, in which each line names a test that reached it."""
BATCH = 100
"""The number of tests in a run without a change."""
UNFINISHED = 3
"""The exit status of a process whose time was over."""


class Run(NamedTuple):
    """Tests that run one after another in a process, and the file for their outcomes."""

    tests: Sequence[pytest.Item]
    results: Path
    mutant: int | None = None
    limits: Mapping[str, float] | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", type=Path, help="a folder for the results of mutants 0 to N - 1")
    parser.addoption("--mutant-count", type=int)
    parser.addoption("--jobs", type=int, default=2)
    parser.addoption("--seconds", type=float, help="start no test after so many seconds")


def pytest_runtestloop(session: pytest.Session) -> object:
    folder: Path | None = session.config.getoption("--mutants")
    if folder is None:
        return None
    if session.testsfailed:
        raise session.Interrupted("a file of tests cannot be collected")
    jobs: int = session.config.getoption("--jobs")
    seconds_left: float | None = session.config.getoption("--seconds")
    deadline = None if seconds_left is None else time.monotonic() + seconds_left
    stages = (_unchanged_runs, _mutant_runs, _repeated_runs)
    if not all(_in_children(session, stage(session, folder), jobs, deadline) for stage in stages):
        pytest.exit("the time is over", UNFINISHED)
    return True


def _unchanged_runs(session: pytest.Session, folder: Path) -> list[Run]:
    """Return the runs of all tests without a change. Neighbours share fixtures of their file."""
    batches = range(0, len(session.items), BATCH)
    return [
        Run(session.items[begin : begin + BATCH], folder / f"unchanged.{begin // BATCH}")
        for begin in batches
    ]


def _mutant_runs(session: pytest.Session, folder: Path) -> list[Run]:
    """Return a run for each mutant, of the tests that reached it."""
    seconds = read_seconds([run.results for run in _unchanged_runs(session, folder)])
    reached = read_reached(folder / REACHED)
    items = {item.nodeid: item for item in session.items}
    runs = []
    for mutant in range(session.config.getoption("--mutant-count")):
        tests = sorted(
            reached.get(mutant, set()) & seconds.keys(),
            key=lambda test: (_needs_server(items[test]), seconds[test]),
        )
        limits = {test: LIMIT_S + LIMIT_FACTOR * seconds[test] for test in tests}
        chosen = [items[test] for test in tests]
        runs.append(Run(chosen, folder / f"mutant.{mutant}", mutant, limits))
    return runs


def _repeated_runs(session: pytest.Session, folder: Path) -> list[Run]:
    """Return a run without a change of each test that failed with a mutant."""
    items = {item.nodeid: item for item in session.items}
    runs = []
    for mutant in range(session.config.getoption("--mutant-count")):
        failed = first_failure(folder / f"mutant.{mutant}")
        if failed:
            runs.append(Run([items[failed]], folder / f"again.{mutant}"))
    return runs


def first_failure(results: Path) -> str | None:
    """Return the first test that failed or did not end; None if all passed."""
    running = None
    for line in results.read_text().splitlines():
        phase = json.loads(line)
        if phase["outcome"] == "failed":
            return str(phase["test"])
        running = {"started": phase["test"], "ended": None}.get(phase["outcome"], running)
    return running


def keep_ended(results: Path) -> set[str]:
    """Remove what a run wrote of a test that did not end. Return the tests that ended."""
    lines = results.read_text().splitlines() if results.exists() else []
    while lines and not _is_end(lines[-1]):
        lines.pop()
    results.write_text("".join(f"{line}\n" for line in lines))
    return {str(json.loads(line)["test"]) for line in lines}


def _is_end(line: str) -> bool:
    try:
        return bool(json.loads(line)["outcome"] == "ended")
    except ValueError:  # the process was killed while it wrote the line
        return False


def read_seconds(paths: Sequence[Path]) -> dict[str, float]:
    """Return the seconds of each test that ended, and whose phases passed."""
    phases = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    outcomes: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for phase in phases:
        test = phase["test"]
        outcomes.setdefault(test, set()).add(phase["outcome"])
        seconds[test] = seconds.get(test, 0) + phase["seconds"]
    return {
        test: seconds[test]
        for test, of_test in outcomes.items()
        if of_test == {"started", "passed", "ended"}
    }


def read_reached(folder: Path) -> dict[int, set[str]]:
    return {
        int(path.name): {line.rpartition(" (")[0] for line in path.read_text().splitlines()}
        for path in folder.iterdir()
    }


def _needs_server(item: pytest.Item) -> bool:
    return any(name.startswith("postgres") for name in getattr(item, "fixturenames", ()))


def _in_children(
    session: pytest.Session, runs: Sequence[Run], jobs: int, deadline: float | None
) -> bool:
    """Make each run that has not ended yet in a separate process, at most ``jobs`` at a time. Return
    whether all runs ended before the deadline.
    """
    running: dict[int, Run] = {}
    for run in [run for run in runs if not run.results.exists()]:
        if len(running) == jobs:
            _wait(running)
        if not _is_over(deadline):
            running[_fork(partial(_run, session, run, deadline))] = run
    while running:
        _wait(running)
    return all(run.results.exists() for run in runs)


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _fork(run: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        os.setsid()
        status = run()
    finally:
        os._exit(status)


def _wait(running: dict[int, Run]) -> None:
    """Wait for a child. What it has started, such as a database's server, ends with it."""
    pid, status = os.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    run = running.pop(pid)
    if os.waitstatus_to_exitcode(status) != UNFINISHED:
        _unfinished(run).rename(run.results)


def _unfinished(run: Run) -> Path:
    return run.results.with_name(f"unfinished.{run.results.name}")


def _run(session: pytest.Session, run: Run, deadline: float | None) -> int:
    """Run tests, with a mutant until one fails, and write down how they end. Return the status of the
    process.
    """
    from foldlog import _switch

    _switch.turn_on(run.mutant)
    output = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(output, number)
    done = keep_ended(_unfinished(run))
    tests = [item for item in run.tests if item.nodeid not in done]
    with _unfinished(run).open("a", buffering=1) as file:
        session.config.pluginmanager.register(_Results(file))
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            if _is_over(deadline):
                return UNFINISHED
            if run.limits:
                faulthandler.dump_traceback_later(run.limits[item.nodeid], exit=True)
            file.write(_line(item.nodeid, "started", 0))
            session.testsfailed = 0
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            file.write(_line(item.nodeid, "ended", 0))
            if run.mutant is not None and session.testsfailed:
                break
        session._setupstate.teardown_exact(None)
    return 0


def _line(test: str, outcome: str, seconds: float) -> str:
    phase = {"test": test, "outcome": outcome, "seconds": round(seconds, 4)}
    return f"{json.dumps(phase)}\n"


class _Results:
    def __init__(self, file: Any) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._file.write(_line(report.nodeid, report.outcome, report.duration))
