"""A plugin of pytest for ``tests.mutants``: judges many mutants in one process that has collected the
tests once.

The project is a copy in which each drawn place is written twice, as it is and changed, behind a
switch (``foldlog/_switch.py``). The process forks for each run, so that no run sees what another one
left in memory. First all tests run without a change, and each place writes down the tests that reach
it. Then for each mutant the tests that reached it run until one fails, the quick ones first.
"""

import contextlib
import faulthandler
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 60
LIMIT_FACTOR = 20
"""A test did not end if it takes so many seconds, and so many times its usual time: the machine may be
busy.
"""
REACHED = "reached"
"""A folder with a file for each mutant, in which each line names a test that reached it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", type=Path, help="a folder for the results of mutants 0 to N - 1")
    parser.addoption("--mutant-count", type=int)
    parser.addoption("--jobs", type=int, default=2)


def pytest_runtestloop(session: pytest.Session) -> object:
    folder: Path | None = session.config.getoption("--mutants")
    if folder is None:
        return None
    if session.testsfailed:
        raise session.Interrupted("a file of tests cannot be collected")
    jobs: int = session.config.getoption("--jobs")
    parts = [folder / f"unchanged.{number}" for number in range(jobs)]
    _in_children(
        [
            partial(_run, session, session.items[number::jobs], part, None)
            for number, part in enumerate(parts)
        ],
        jobs,
    )
    seconds = read_seconds(parts)
    reached = read_reached(folder / REACHED)
    items = {item.nodeid: item for item in session.items}
    count: int = session.config.getoption("--mutant-count")
    judged = []
    for mutant in range(count):
        tests = sorted(
            reached.get(mutant, set()) & seconds.keys(),
            key=lambda test: (_needs_server(items[test]), seconds[test]),
        )
        limits = {test: LIMIT_S + LIMIT_FACTOR * seconds[test] for test in tests}
        chosen = [items[test] for test in tests]
        judged.append(partial(_run, session, chosen, folder / f"mutant.{mutant}", mutant, limits))
    _in_children(judged, jobs)
    failed = [(mutant, first_failure(folder / f"mutant.{mutant}")) for mutant in range(count)]
    again = [
        partial(_run, session, [items[test]], folder / f"again.{mutant}", None)
        for mutant, test in failed
        if test
    ]
    _in_children(again, jobs)
    return True


def first_failure(results: Path) -> str | None:
    """Return the first test that failed or did not end; None if all passed."""
    running = None
    for line in results.read_text().splitlines():
        phase = json.loads(line)
        if phase["outcome"] == "failed":
            return str(phase["test"])
        running = {"started": phase["test"], "ended": None}.get(phase["outcome"], running)
    return running


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


def _in_children(runs: Sequence[Callable[[], None]], jobs: int) -> None:
    """Call each function in a separate process. At most ``jobs`` processes run at a time."""
    running: set[int] = set()
    for run in runs:
        if len(running) == jobs:
            running.discard(_wait())
        running.add(_fork(run))
    while running:
        running.discard(_wait())


def _fork(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        run()
    finally:
        os._exit(0)


def _wait() -> int:
    """Wait for a child. What it has started, such as a database's server, ends with it."""
    pid, _ = os.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return pid


def _run(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    results: Path,
    mutant: int | None,
    limits: Mapping[str, float] | None = None,
) -> None:
    """Run tests, with a mutant until one fails, and write down how they end."""
    from foldlog import _switch

    _switch.turn_on(mutant)
    output = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(output, number)
    with results.open("w", buffering=1) as file:
        session.config.pluginmanager.register(_Results(file))
        for item, following in zip(items, [*items[1:], None], strict=True):
            if limits:
                faulthandler.dump_traceback_later(limits[item.nodeid], exit=True)
            file.write(_line(item.nodeid, "started", 0))
            session.testsfailed = 0
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            file.write(_line(item.nodeid, "ended", 0))
            if mutant is not None and session.testsfailed:
                break
        session._setupstate.teardown_exact(None)


def _line(test: str, outcome: str, seconds: float) -> str:
    phase = {"test": test, "outcome": outcome, "seconds": round(seconds, 4)}
    return f"{json.dumps(phase)}\n"


class _Results:
    def __init__(self, file: Any) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._file.write(_line(report.nodeid, report.outcome, report.duration))
