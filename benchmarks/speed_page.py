"""Write the figures of SPEED.md and README.md, only from docs/internals/speed.json and
benchmarks/counts.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.counts import BASELINE_EVENTS, recorded
from benchmarks.frame import figure, limit
from benchmarks.pages import with_part

__all__ = ["PAGE", "PUBLISHED", "README", "in_page", "in_readme", "publish", "published"]

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "docs" / "internals" / "speed.json"
PAGE = ROOT / "docs" / "internals" / "SPEED.md"
README = ROOT / "README.md"
_COUNTED = "3.12"
"""The page shows the counts of this CPython version."""

Run = Mapping[str, Any]
"""What ``python -m benchmarks`` saves."""


def publish(run: Run) -> None:
    """Write docs/internals/speed.json, and put its figures into SPEED.md and README.md."""
    PUBLISHED.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), run), encoding="utf-8")
    README.write_text(in_readme(README.read_text(encoding="utf-8"), run), encoding="utf-8")


def published() -> Run:
    run: Run = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return run


def in_page(text: str, run: Run) -> str:
    for command, table in (
        ("python -m benchmarks --publish", _answers(run)),
        ("python -m benchmarks --record", _counts()),
    ):
        text = with_part(text, command, table)
    return text


def in_readme(text: str, run: Run) -> str:
    """Update the three figures in the sentence of the README that compares foldlog with
    hand-written code.
    """
    answers = {answer["question"]: answer for answer in run["answers"]}
    append, opened, size = (
        tuple(figure(answers[question][side]) for side in ("ours", "raw"))
        for question in (
            "append one event, durable",
            "cold open of a View, 1,000,000 events",
            "size on disk, everything in it",
        )
    )
    sentence = (
        f"takes {append[0]} µs (plain SQLite: {append[1]}), a history of 1,000,000\n"
        f"events opens in {opened[0]} ms (plain SQLite: {opened[1]}), and an event takes {size[0]}"
        f" bytes (plain SQLite: {size[1]})"
    )
    text, replaced = re.subn(
        r"takes \S+ µs \(plain SQLite: \S+\), a history of 1,000,000\n"
        r"events opens in \S+ ms \(plain SQLite: \S+\), and an event takes \S+"
        r" bytes \(plain SQLite: \S+\)",
        sentence,
        text,
    )
    if replaced != 1:
        raise ValueError(
            "README.md has no sentence 'takes … µs (plain SQLite: …), a history of 1,000,000 …'"
        )
    return text


def _answers(run: Run) -> str:
    """Return a table with each group's first answer, and all answers that miss their target."""
    lines = ["| | ours | baseline | ratio | target |", "|---|---:|---|---:|---|"]
    for group, answers in groupby(run["answers"], key=lambda answer: str(answer["group"])):
        lines.append(f"| **{group}** | | | | |")
        lines += (
            _answer(answer)
            for number, answer in enumerate(answers)
            if number == 0 or not answer["holds"]
        )
    lines += [
        f"| {failed['question']} | failed | {failed['reason']} | | |" for failed in run["failed"]
    ]
    return "\n".join([*lines, "", _provenance(run)])


def _answer(answer: Run) -> str:
    ratio, target = (
        f"{answer['ratio']:.{2 if answer['ratio'] >= 0.1 else 3}f}",
        limit(answer["better"], answer["target"]),
    )
    if not answer["holds"]:
        explained = answer["explained"]
        missed = f"[missed](#{_anchor(explained)})" if explained else "missed"
        ratio, target = f"**{ratio}**", f"{target}, {missed}"
    ours, raw = (
        f"{figure(answer['ours'])} {answer['unit']}",
        f"{figure(answer['raw'])}, {answer['baseline']}",
    )
    return f"| {answer['question']} | {ours} | {raw} | {ratio} | {target} |"


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def _provenance(run: Run) -> str:
    machine, versions = run["machine"], run["versions"]
    held = sum(answer["holds"] for answer in run["answers"])
    return (
        f"{held} of {len(run['answers'])} targets are met. [speed.json](speed.json) has every figure."
        f" {run['measured_at'][:10]}, commit"
        f" {run['commit']}, {machine['cpus']} CPUs, {machine['processor']}, {machine['system']},"
        f" Python {versions['python']}, SQLite {versions['sqlite']}. Load average while measuring:"
        f" {run['load']}."
    )


def _counts() -> str:
    lines = [
        f"| CPython {_COUNTED}, a history of {BASELINE_EVENTS:,} events | bytecodes | statements |",
        "|---|---:|---:|",
    ]
    for operation, count in recorded()[_COUNTED].items():
        lines.append(f"| {operation} | {count['bytecodes']:,} | {count['statements']} |")
    return "\n".join(lines)
