"""What ``python -m benchmarks`` measures, prints and publishes."""

import json
import os
from dataclasses import replace

import pytest

import benchmarks.__main__
import benchmarks.counts
from benchmarks import frame, speed_page
from benchmarks.__main__ import main, questions
from benchmarks.frame import SCALES, Question, Round, ask, by_turns


def _question(*rounds, unit="ms", target=2.0):
    return Question("a question", unit, target, lambda *_: iter(rounds))


def test_there_are_at_most_forty_targets_each_with_its_own_name():
    names = [question.name for question in questions()]
    assert len(names) == len({*names}) <= 40


def test_an_answer_is_the_round_with_the_median_ratio(tmp_path):
    rounds = [Round(0.008, 0.001), Round(0.003, 0.002), Round(0.001, 0.001)]
    answer = ask(_question(*rounds), SCALES["smoke"], tmp_path)
    assert (answer.ours, answer.raw, answer.ratio, answer.holds) == (3.0, 2.0, 1.5, True)


def test_a_rate_must_be_at_least_its_target(tmp_path):
    slow = ask(
        _question(Round(0.01, 0.001), unit="events/s", target=0.5), SCALES["smoke"], tmp_path
    )
    assert (slow.ours, slow.raw, slow.better, slow.holds) == (100.0, 1000.0, "at least", False)


def test_sides_with_different_answers_are_not_measured():
    with pytest.raises(AssertionError, match="different answers"):
        next(by_turns(SCALES["smoke"], lambda: 1, lambda: 2))


def test_the_two_sides_take_turns_after_their_answers_were_compared():
    calls = []
    sides = [lambda: calls.append("ours"), lambda: calls.append("raw")]
    assert len(list(by_turns(SCALES["smoke"], *sides))) == SCALES["smoke"].rounds == 2
    assert calls == ["ours", "raw", "raw", "ours", "ours", "raw"]


def test_a_question_that_fails_loses_no_other_answer(tmp_path, monkeypatch, capsys):
    def fails(scale, folder):
        raise TimeoutError("it was not drawn\nin time")

    held = _question(Round(1.0, 1.0))
    both_questions = [replace(held, name="fails", measure=fails), held]
    monkeypatch.setattr(benchmarks.__main__, "questions", lambda matching: both_questions)
    with pytest.raises(SystemExit):
        main(["any", "--scale", "smoke", "--results", str(tmp_path)])
    run = json.loads((tmp_path / "smoke.json").read_text())
    assert [answer["question"] for answer in run["answers"]] == ["a question"]
    assert run["failed"] == [{"question": "fails", "reason": "TimeoutError: it was not drawn"}]
    assert "| fails | not measured | raw sqlite3 | | ≤ 2 |" in capsys.readouterr().out


def test_nothing_is_published_from_a_machine_under_load(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.2, 0.1, 0.1))
    monkeypatch.setattr(benchmarks.__main__, "measure", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(SystemExit, match=r"The load average is 1\.2.*Nothing was published"):
        main(["--publish", "--results", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_the_table_marks_a_target_that_is_missed(tmp_path):
    question = _question(Round(0.003, 0.001))
    lines = speed_page.table([question], [ask(question, SCALES["smoke"], tmp_path)])
    assert lines[-1] == "| a question | 3 ms | 1, raw sqlite3 | **3.00** | ≤ 2, missed |"


def test_the_page_and_the_readme_show_the_published_figures():
    run = speed_page.published()
    page = speed_page.PAGE.read_text(encoding="utf-8")
    readme = speed_page.README.read_text(encoding="utf-8")
    written = "is not what python -m benchmarks --pages writes"
    assert speed_page.in_page(page, run, questions()) == page, f"SPEED.md {written}"
    assert speed_page.in_readme(readme, run) == readme, f"README.md {written}"


def test_a_figure_has_three_digits_and_no_exponent():
    assert [frame.figure(value) for value in (0.01234, 12.345, 12_345.6)] == [
        "0.0123",
        "12.3",
        "12,346",
    ]


def test_the_counts_include_an_open_in_a_new_process():
    counts = json.loads(benchmarks.counts.BASELINE.read_text())
    assert all("first open of a new process" in operations for operations in counts.values())
