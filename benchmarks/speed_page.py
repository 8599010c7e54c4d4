"""Write the figures of SPEED.md and README.md, only from docs/internals/speed.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.frame import Answer, Question, describe_provenance, figure
from benchmarks.pages import with_part

__all__ = [
    "PAGE",
    "PUBLISHED",
    "README",
    "in_page",
    "in_readme",
    "read_published",
    "table",
    "write",
]

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "docs" / "internals" / "speed.json"
PAGE = ROOT / "docs" / "internals" / "SPEED.md"
README = ROOT / "README.md"

Run = Mapping[str, Any]
"""What ``python -m benchmarks`` saves."""


def write(questions: Sequence[Question]) -> None:
    """Put the published figures into SPEED.md and README.md."""
    run = read_published()
    page, readme = (path.read_text(encoding="utf-8") for path in (PAGE, README))
    PAGE.write_text(in_page(page, run, questions), encoding="utf-8")
    README.write_text(in_readme(readme, run), encoding="utf-8")


def read_published() -> Run:
    run: Run = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return run


def in_page(text: str, run: Run, questions: Sequence[Question]) -> str:
    answers = [
        replace(Answer(**answer), target=question.target, group=question.group)
        for question in questions
        for answer in run["answers"]
        if answer["question"] == question.name
    ]
    figures = "\n".join([*table(questions, answers), "", _summary(run, answers)])
    return with_part(text, "python -m benchmarks --publish", figures)


def table(questions: Iterable[Question], answers: Iterable[Answer]) -> list[str]:
    """Return a Markdown table of the questions, in their groups."""
    by_question = {answer.question: answer for answer in answers}
    lines = ["| | ours | baseline | ratio | target |", "|---|---:|---|---:|---|"]
    for group, members in groupby(questions, key=lambda question: question.group):
        lines += [f"| **{group}** | | | | |"] if group else []
        lines += [_row(question, by_question.get(question.name)) for question in members]
    return lines


def _row(question: Question, answer: Answer | None) -> str:
    target = f"{'≤' if question.better == 'at most' else '≥'} {question.target:.3g}"
    if answer is None:
        return f"| {question.name} | not measured | {question.baseline} | | {target} |"
    ratio = f"{answer.ratio:.2f}"
    if not answer.holds:
        ratio = f"**{ratio}**"
        target = f"{target}, missed"
    ours = f"{figure(answer.ours)} {answer.unit}"
    raw = f"{figure(answer.raw)}, {answer.baseline}"
    return f"| {answer.question} | {ours} | {raw} | {ratio} | {target} |"


def _summary(run: Run, answers: Sequence[Answer]) -> str:
    sentences = [
        f"{sum(answer.holds for answer in answers)} of {len(answers)} measured targets are met.",
        describe_provenance(run),
        f"Load average while measuring: {run['load']}.",
        *(f"Failed: {failed['question']} ({failed['reason']})." for failed in run["failed"]),
    ]
    return " ".join(sentences)


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
        f"takes {append[0]} µs (SQLite by hand: {append[1]}), a history of 1,000,000\n"
        f"events opens in {opened[0]} ms (SQLite by hand: {opened[1]}), and an event takes {size[0]}"
        f" bytes (SQLite by hand: {size[1]})"
    )
    text, replaced = re.subn(
        r"takes \S+ µs \(SQLite by hand: \S+\), a history of 1,000,000\n"
        r"events opens in \S+ ms \(SQLite by hand: \S+\), and an event takes \S+"
        r" bytes \(SQLite by hand: \S+\)",
        sentence,
        text,
    )
    if replaced != 1:
        raise ValueError(
            "README.md has no sentence 'takes … µs (SQLite by hand: …), a history of 1,000,000 …'"
        )
    return text
