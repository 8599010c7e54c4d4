"""What ``python -m benchmarks`` prints."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.__main__ import missed, questions, table
from benchmarks.counts import BASELINE, TARGETS
from benchmarks.frame import SCALES, Answer, Round, ask


def test_the_table_of_answers_is_readable_on_a_narrow_terminal():
    answer = Answer(
        question="fold in memory, made fit for a model",
        unit="events/s",
        baseline="raw",
        ours=2_641_073.4,
        raw=11_077_387.2,
        ratio=0.24,
        target=0.572727,
        better="at least",
        rounds=7,
        explained="A fold",
    )
    printed = io.StringIO()
    Console(file=printed, width=80).print(table([answer]))
    _, head, first, *more = printed.getvalue().splitlines()
    assert head.split()[:2] == ["question", "unit"]
    assert first.startswith("fold in memory, made fit")
    assert first.split()[-7:] == ["events/s", "2,641,073", "11,077,387", "0.24", "≥", "0.573", "missed"]
    assert len(more) == 1


def test_a_missed_target_names_the_paragraph_that_explains_it():
    asked = questions("")
    speed = (Path(__file__).parent.parent / "docs/SPEED.md").read_text()
    for question in asked:
        assert f"**{question.explained}" in speed or f"## {question.explained}" in speed, question.name
    measured = [[Round(2.0, 1.0)], [Round(1.0, 1.0)]]
    answers = [ask(replace(asked[0], measure=lambda *_, r=r: iter(r)), SCALES["smoke"], Path()) for r in measured]
    assert missed(answers) == [f'missed: {asked[0].name}, 2.00, wanted 1.15: docs/SPEED.md, "{asked[0].explained}"']


def test_every_counted_operation_has_a_target():
    recorded = json.loads(BASELINE.read_text())["3.12"]
    assert set(TARGETS) == set(recorded)
