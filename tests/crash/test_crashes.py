"""The short forms: what ``python -m tests.crash`` shows in minutes, in seconds."""

from __future__ import annotations

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


def crashes_of(printed: str) -> int:
    return int(printed.split(": ")[1].split()[0])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_before_any_statement_nothing_is_lost_or_halved(scenario: str):
    assert crashes_of(crash("everywhere", "statements", scenario)) > 20


@needs_faults
@pytest.mark.parametrize("scenario", ["append_batches", "ingest_tail"])
def test_killed_before_any_write_nothing_is_lost_or_halved(scenario: str):
    assert crashes_of(crash("everywhere", "writes", scenario)) > 20


@needs_faults
@pytest.mark.parametrize("scenario", ["append", "append_and_write_back", "migrate_old"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_write(scenario: str):
    assert crashes_of(crash("everywhere", "power", scenario)) > 20


@pytest.mark.slow
def test_writers_killed_at_random_moments_lose_nothing():
    assert "0 findings" in crash("load", "--seconds", "6", "--kills", "15")


@pytest.mark.slow
def test_many_writers_wait_for_nobody_and_win_once_each_while_a_history_is_imported():
    assert "0 findings" in crash(
        "writers", "--seconds", "3", "--imported", "50000", "--erased", "5000", "--longest-wait-s", "60"
    )
