"""What ``python -m benchmarks`` measures, prints and publishes."""

import json
import os
from dataclasses import replace

import click
import pytest

import benchmarks.__main__
import benchmarks.counts
import benchmarks.peers.__main__
from benchmarks import speed_page
from benchmarks.__main__ import main, questions
from benchmarks.frame import SCALES, Question, Round, by_turns


def _question(*rounds, unit="ms", target=2.0):
    return Question("a question", unit, target, lambda *_: iter(rounds))


def test_sides_with_different_answers():
    with pytest.raises(AssertionError, match="different answers"):
        next(by_turns(SCALES["smoke"], lambda: 1, lambda: 2))


def test_failed_question_loses_no_other_answer(tmp_path, monkeypatch, capsys):
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


@pytest.mark.parametrize("program", [benchmarks.__main__, benchmarks.peers.__main__])
def test_nothing_is_published_under_load(program, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.2, 0.1, 0.1))
    monkeypatch.setattr(program, "measure", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(SystemExit, match=r"The load average is 1\.2.*Nothing was published"):
        program.main(["--publish"])


def test_a_failed_measurement_is_not_published(tmp_path, monkeypatch):
    def fails(scale, folder):
        raise TimeoutError

    published = tmp_path / "speed.json"
    failing = replace(_question(), measure=fails)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(benchmarks.__main__, "questions", lambda matching="": [failing])
    monkeypatch.setattr(speed_page, "PUBLISHED", published)
    monkeypatch.setattr(speed_page, "write", lambda questions: None)
    with pytest.raises(SystemExit):
        main(["--publish", "--results", str(tmp_path)])
    assert not published.exists()


@pytest.mark.parametrize("other", ["--pages", "--counts", "--record"])
def test_publish_is_not_silently_left_out(other, monkeypatch):
    for module, name in (
        (benchmarks.counts, "record"),
        (benchmarks.counts, "print_compared"),
        (speed_page, "write"),
        (benchmarks.__main__.report, "publish"),
    ):
        monkeypatch.setattr(module, name, lambda *_: None)
    with pytest.raises(click.UsageError, match="--publish measures"):
        main(["--publish", other], standalone_mode=False)


def test_page_and_readme_show_published_figures():
    run = speed_page.read_published()
    page = speed_page.PAGE.read_text(encoding="utf-8")
    readme = speed_page.README.read_text(encoding="utf-8")
    written = "is not what python -m benchmarks --pages writes"
    assert speed_page.in_page(page, run, questions()) == page, f"SPEED.md {written}"
    assert speed_page.in_readme(readme, run) == readme, f"README.md {written}"
