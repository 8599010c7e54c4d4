"""The short forms: what ``python -m tests.crash`` shows in minutes, in seconds.

Of the points of a scenario every fortieth one is taken, and always the first, the last, and those around each commit.
``python -m tests.crash everywhere`` takes all of them, and so does ``scripts/test --all``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import faults
from tests.crash.scenarios import SCENARIOS

ROOT = Path(__file__).parent.parent.parent

needs_faults = pytest.mark.skipif(faults.WHY_NOT is not None, reason=faults.WHY_NOT or "")


def crash(*arguments: str) -> str:
    """What the command printed; it fails where something was wrong."""
    command = [sys.executable, "-m", "tests.crash", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def points(way: str, scenario: str, whole: bool) -> int:
    """How many points a scenario has. A sample of them is crashed at, and nothing may be wrong after that."""
    every = 1 if whole else 40
    printed = crash("everywhere", way, scenario, "--every", str(every))
    found = re.fullmatch(rf"{scenario}: (\d+) crashes at (\d+) points \({way}\), 0 findings\n", printed)
    assert found is not None, printed
    crashes, points = map(int, found.groups())
    assert crashes >= points // every
    return points


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_any_statement_nothing_is_lost_or_halved(scenario: str, whole: bool):
    assert points("statements", scenario, whole) > 20


@needs_faults
@pytest.mark.parametrize("scenario", ["append_batches", "ingest_tail"])
def test_killed_before_any_write_nothing_is_lost_or_halved(scenario: str, whole: bool):
    assert points("writes", scenario, whole) > 20


@needs_faults
@pytest.mark.parametrize("scenario", ["append", "append_and_write_back", "migrate_new"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_write(scenario: str, whole: bool):
    assert points("power", scenario, whole) > 20


@pytest.mark.long
def test_writers_killed_at_random_moments_lose_nothing():
    assert "0 findings" in crash("load", "--seconds", "6", "--kills", "15")


@pytest.mark.long
def test_many_writers_wait_for_nobody_and_win_once_each_while_a_history_is_imported():
    assert "0 findings" in crash(
        "writers", "--seconds", "3", "--imported", "50000", "--erased", "5000", "--longest-wait-s", "60"
    )
