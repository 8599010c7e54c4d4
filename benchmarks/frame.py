"""Define a question, and measure it."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

__all__ = [
    "SCALES",
    "Answer",
    "Failed",
    "Question",
    "Round",
    "Scale",
    "as_json",
    "ask",
    "figure",
    "in_new_process",
    "limit",
    "provenance",
]


@dataclass(frozen=True)
class Scale:
    """How large a run is. ``smoke`` only shows that everything works: its figures mean nothing."""

    name: Literal["smoke", "full"]
    rounds: int
    events: tuple[int, ...]
    """The lengths of the histories, in ascending order. Most questions use the second largest
    length, and the targets are set for it.
    """

    @property
    def usual(self) -> int:
        return self.events[-2]


SCALES = {
    "smoke": Scale("smoke", 2, (200, 1_000, 2_000)),
    "full": Scale("full", 7, (1_000, 10_000, 100_000, 1_000_000)),
}


@dataclass(frozen=True)
class Round:
    """The figures of foldlog (``ours``) and of the baseline (``raw``), measured right after each
    other, in the unit of the question.
    """

    ours: float
    raw: float


@dataclass(frozen=True)
class Question:
    """A figure that has a target. ``measure`` yields rounds. The ratio of a round is ``ours``
    divided by ``raw``.

    ``better`` says how the ratio must compare with the target: "at most" or "at least".
    """

    name: str
    unit: str
    target: float
    better: Literal["at most", "at least"]
    measure: Callable[[Scale, Path], Iterator[Round]]
    raw: str = "raw sqlite3"
    """What the baseline is."""
    explained: str = ""
    """The section of ``docs/internals/SPEED.md`` that explains why the target is missed. Empty if
    the target is met.
    """
    group: str = ""
    """The heading of the question's group in the results."""


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
    explained: str
    group: str

    @property
    def holds(self) -> bool:
        return self.ratio <= self.target if self.better == "at most" else self.ratio >= self.target


@dataclass(frozen=True)
class Failed:
    """A question whose measurement failed."""

    question: str
    reason: str


def ask(
    question: Question, scale: Scale, folder: Path, on_round: Callable[[], None] = lambda: None
) -> Answer:
    """Measure a question in its own empty ``folder``, and return the round with the median ratio.
    The parent folder contains the stores that questions share.
    """
    rounds = []
    for measured in question.measure(scale, folder):
        rounds.append(measured)
        on_round()
    middle = statistics.median_low(r.ours / r.raw for r in rounds)
    median = next(r for r in rounds if r.ours / r.raw == middle)
    return Answer(
        question.name,
        question.unit,
        question.raw,
        median.ours,
        median.raw,
        middle,
        question.target,
        question.better,
        len(rounds),
        question.explained,
        question.group,
    )


def figure(value: float) -> str:
    """Format a number with at least three digits, and without an exponent."""
    return f"{value:,.0f}" if value >= 1_000 else f"{value:,.3g}"


def limit(better: str, target: float) -> str:
    return f"{'≤' if better == 'at most' else '≥'} {target:.3g}"


def in_new_process(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Run ``python -m MODULE ARGUMENTS``, and return the JSON that it prints. The new process has
    loaded nothing yet, but files may be in the page cache.
    """
    finished = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if finished.returncode:
        raise RuntimeError(f"python -m {module} {' '.join(arguments)} failed:\n{finished.stderr}")
    measured: dict[str, float] = json.loads(finished.stdout)
    return measured


def provenance(command: Sequence[str]) -> dict[str, object]:
    """Return how the figures were made: commit, machine, versions and command."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip() or None,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(command),
        "machine": {
            "cpus": os.cpu_count(),
            "processor": platform.machine(),
            "system": platform.system(),
        },
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: version(name) for name in ("foldlog", "msgspec", "eventsourcing")},
        },
    }


def as_json(
    answers: Sequence[Answer], failed: Sequence[Failed], load: str, command: Sequence[str]
) -> str:
    rows = [{**asdict(answer), "holds": answer.holds} for answer in answers]
    return json.dumps(
        {
            **provenance(command),
            "load": load,
            "answers": rows,
            "failed": list(map(asdict, failed)),
        },
        indent=1,
    )
