"""What ``python -m benchmarks`` prints."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer import Exit

import benchmarks.__main__
from benchmarks import speed_page
from benchmarks.__main__ import main, missed, questions
from benchmarks.frame import SCALES, Question, Round, ask


def test_a_missed_target_names_the_section_that_explains_it():
    all_questions = questions("")
    sections = set(re.findall(r"^### (.*)$", speed_page.PAGE.read_text(), re.MULTILINE))
    assert {question.explained for question in all_questions} - {""} <= sections
    assert all(
        answer["explained"] in sections
        for answer in speed_page.published()["answers"]
        if not answer["holds"]
    )
    measured = [[Round(2.0, 1.0)], [Round(1.0, 1.0)]]
    explained = replace(all_questions[0], explained="A batch")
    answers = [
        ask(replace(explained, measure=lambda *_, r=r: iter(r)), SCALES["smoke"], Path())
        for r in measured
    ]
    assert missed(answers) == [
        f'missed: {all_questions[0].name}, 2.00, wanted 1.15: docs/internals/SPEED.md, "A batch"'
    ]
    assert missed([replace(answers[0], explained="")]) == [
        f"missed: {all_questions[0].name}, 2.00, wanted 1.15"
    ]


def test_a_question_that_fails_loses_no_other_answer(tmp_path, monkeypatch):
    def fails(scale, folder):
        raise TimeoutError("it was not drawn\nin time")

    held = Question("holds", "ms", 2, "at most", lambda *_: iter([Round(1.0, 1.0)]))
    both_questions = [replace(held, name="fails", measure=fails), held]
    monkeypatch.setattr(benchmarks.__main__, "questions", lambda matching: both_questions)
    with pytest.raises(Exit):
        main("any", scale="smoke", results=tmp_path)
    run = json.loads((tmp_path / "smoke.json").read_text())
    assert [answer["question"] for answer in run["answers"]] == ["holds"]
    assert run["failed"] == [{"question": "fails", "reason": "TimeoutError: it was not drawn"}]


def test_the_page_and_the_readme_show_the_published_figures():
    run = speed_page.published()
    for path, with_figures in (
        (speed_page.PAGE, speed_page.in_page),
        (speed_page.README, speed_page.in_readme),
    ):
        text = path.read_text(encoding="utf-8")
        assert with_figures(text, run) == text, (
            f"{path.name} is not what python -m benchmarks --publish writes"
        )
