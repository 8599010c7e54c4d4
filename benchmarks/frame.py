"""Define a question, and measure it."""

from __future__ import annotations

import gc
import json
import operator
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

__all__ = [
    "SCALES",
    "Answer",
    "Failed",
    "Question",
    "Round",
    "Scale",
    "Timed",
    "as_json",
    "ask",
    "by_turns",
    "child_cpu_s",
    "describe_provenance",
    "figure",
    "in_new_process",
    "not_compared",
    "provenance",
    "refuse_load",
    "run",
]


@dataclass(frozen=True)
class Scale:
    """How large a run is. ``smoke`` only shows that everything works: its figures mean nothing.

    ``short`` to ``longest`` are lengths of histories in events.
    """

    name: Literal["smoke", "full"]
    rounds: int
    short: int
    usual: int
    long: int
    longest: int
    conversations: int
    """The number of conversations in a store whose lists are measured."""
    sessions: int
    """The number of sessions in an imported folder."""


SCALES = {
    "smoke": Scale("smoke", 2, 200, 500, 1_000, 2_000, 50, 3),
    "full": Scale("full", 5, 1_000, 10_000, 100_000, 1_000_000, 20_000, 400),
}


class Round(NamedTuple):
    """The measures of foldlog (``ours``) and of the baseline (``raw``), taken right after each
    other: seconds, or bytes.
    """

    ours: float
    raw: float


_PER_UNIT = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "MB": 1e6}
Measure = Callable[[Scale, Path], Iterator[Round]]


@dataclass(frozen=True)
class Question:
    """A figure that has a target. ``measure`` yields rounds. A unit that ends with "/s" is a rate:
    the figure is one divided by the seconds of a round, and the ratio of ours to the baseline must
    be at least the target. Of all other figures, the ratio must be at most the target.
    """

    name: str
    unit: str
    target: float
    measure: Measure
    baseline: str = "raw sqlite3"
    group: str = ""
    """The heading of the question's group in the results."""

    @property
    def better(self) -> str:
        return "at least" if self.unit.endswith("/s") else "at most"

    def figure(self, measured: float) -> float:
        if self.unit.endswith("/s"):
            return 1 / measured
        return measured / _PER_UNIT.get(self.unit.split()[0], 1.0)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: its round with the median ratio. ``holds`` says whether the target
    is met.
    """

    question: str
    unit: str
    baseline: str
    ours: float
    raw: float
    ratio: float
    target: float
    better: str
    rounds: int
    group: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target if self.better == "at most" else self.ratio >= self.target


@dataclass(frozen=True)
class Failed:
    """A question whose measurement failed."""

    question: str
    reason: str


class Timed(NamedTuple):
    """The answer of a side that measures its own seconds, such as a new process."""

    seconds: float
    answer: object


def by_turns(
    scale: Scale,
    ours: Callable[[], object],
    raw: Callable[[], object],
    *,
    count: int = 1,
    clock: Callable[[], float] = time.process_time,
    same: Callable[[Any, Any], bool] = operator.eq,
    rounds: int = 0,
) -> Iterator[Round]:
    """Call both sides once and compare their answers with ``same``, before the clock counts. Then let
    them take turns, and yield the seconds of each round divided by ``count``. The default clock is
    the CPU time of this process.
    """
    if not same(ours(), raw()):
        raise AssertionError("the two sides give different answers")
    for number in range(rounds or scale.rounds):
        first, second = (ours, raw) if number % 2 else (raw, ours)
        seconds = {first: _seconds(first, clock), second: _seconds(second, clock)}
        yield Round(seconds[ours] / count, seconds[raw] / count)


def not_compared(ours: object, raw: object) -> bool:
    """Accept the answers of two sides that do different work, such as on a long and a short history."""
    return True


def _seconds(side: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()  # else a full collection would come to whichever is second
    begun = clock()
    answer = side()
    return answer.seconds if isinstance(answer, Timed) else clock() - begun


def ask(question: Question, scale: Scale, folder: Path) -> Answer:
    """Measure a question in its own empty ``folder``, and return the round with the median ratio.
    The parent folder contains the stores that questions share.
    """
    rounds = [
        Round(*map(question.figure, measured)) for measured in question.measure(scale, folder)
    ]
    middle = statistics.median_low(timing.ours / timing.raw for timing in rounds)
    median = next(timing for timing in rounds if timing.ours / timing.raw == middle)
    return Answer(
        question.name,
        question.unit,
        question.baseline,
        median.ours,
        median.raw,
        middle,
        question.target,
        question.better,
        len(rounds),
        question.group,
    )


def figure(value: float) -> str:
    """Format a number with at least three digits, and without an exponent."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.3g}"


def run(
    module: str, *arguments: str, out: Path | None = None, fails: bool = False, **environment: str
) -> str:
    """Run ``python -m MODULE ARGUMENTS`` in a new process, which has loaded nothing yet. Return its
    output, or write it to the file ``out``, because a pipe costs time. ``fails`` says that the exit
    status is 1.
    """
    with nullcontext(subprocess.PIPE) if out is None else out.open("wb") as stdout:
        finished = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
            # a user's interpreter keeps what it compiles
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", "COLUMNS": "120", **environment},
        )
    if finished.returncode != fails:
        raise RuntimeError(
            f"python -m {module} {' '.join(arguments)} ended with {finished.returncode}:"
            f" {finished.stderr.decode()}"
        )
    return (finished.stdout or b"").decode()


def child_cpu_s() -> float:
    """Return the CPU seconds of all finished processes that this process started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_new_process(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Return the JSON that ``python -m MODULE ARGUMENTS`` prints."""
    measured: dict[str, Any] = json.loads(run(module, *arguments, **environment))
    return measured


LOAD_MAX = 1.0
"""The highest load average at which a run that is published may begin."""


def refuse_load(load: float) -> None:
    """Raise SystemExit if other programs used the machine when a run began."""
    if load > LOAD_MAX:
        raise SystemExit(
            f"The load average is {load:.1f}, and figures are published only from a quiet machine."
            f" Stop the other programs, wait until 'uptime' shows a load average below"
            f" {LOAD_MAX:g}, and run the command again. Nothing was published."
        )


def provenance(command: Sequence[str]) -> dict[str, object]:
    """Return how the figures were made: commit, machine, versions and command."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    file_system = subprocess.run(
        ["df", "--output=fstype", "."], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip() or None,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(command),
        "machine": {
            "cpus": os.cpu_count(),
            "processor": platform.machine(),
            "system": ", ".join([platform.system(), *file_system.stdout.split()[1:]]),
        },
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: version(name) for name in ("foldlog", "msgspec", "eventsourcing")},
        },
    }


def describe_provenance(run: Mapping[str, Any]) -> str:
    """Return how the figures of a published run were made, in words."""
    machine = run["machine"]
    versions = run["versions"]
    return (
        f"{run['measured_at'][:10]}, commit {run['commit']}, {machine['cpus']} CPUs,"
        f" {machine['processor']}, {machine['system']},"
        f" Python {versions['python']}, SQLite {versions['sqlite']}."
    )


def as_json(
    answers: Sequence[Answer], failed: Sequence[Failed], load: str, command: Sequence[str]
) -> str:
    return json.dumps(
        {
            **provenance(command),
            "load": load,
            "answers": list(map(asdict, answers)),
            "failed": list(map(asdict, failed)),
        },
        indent=1,
        ensure_ascii=False,
    )
