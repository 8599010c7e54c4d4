"""The short forms of ``python -m tests.crash``, which take seconds: they crash at every 13th or
17th point of a scenario. ``scripts/test --all`` crashes at all points.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import faults
from tests.crash.scenarios import SCENARIOS

ROOT = Path(__file__).parent.parent.parent

needs_faults = pytest.mark.skipif(faults.WHY_NOT is not None, reason=faults.WHY_NOT or "")


def crash(*arguments):
    """Run ``python -m tests.crash``, check that it succeeds, and return its output."""
    command = [sys.executable, "-m", "tests.crash", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def assert_sound(mode, scenarios, every, whole):
    """Check that a crash at every Nth point of these scenarios, or at each point, leaves no finding."""
    step = str(1 if whole else every)
    lines = crash("everywhere", mode, *scenarios, "--every", step).splitlines()
    assert len(lines) == len(scenarios), lines
    for scenario, line in zip(scenarios, lines, strict=True):
        match = re.fullmatch(rf"{scenario}: (\d+) crashes \({mode}\), 0 findings", line)
        assert match is not None, line
        assert int(match[1]) > 2


@pytest.mark.parametrize("scenarios", [list(SCENARIOS)[nth::3] for nth in range(3)], ids="-".join)
def test_kill_before_any_statement_loses_nothing(scenarios, whole):
    assert_sound("statements", scenarios, 13, whole)


@needs_faults
@pytest.mark.parametrize("scenarios", [["append_batches", "ingest_tail"]], ids="-".join)
def test_kill_before_any_write_loses_nothing(scenarios, whole):
    assert_sound("writes", scenarios, 13, whole)


@needs_faults
@pytest.mark.parametrize(
    "scenarios", [["append", "append_and_write_back", "migrate_new"]], ids="-".join
)
def test_power_cut_at_any_write_loses_nothing_acknowledged(scenarios, whole):
    assert_sound("power", scenarios, 17, whole)


@pytest.mark.long
def test_writers_killed_at_random_lose_nothing():
    assert "; 0 findings" in crash("load", "--seconds", "6", "--kills", "15")


@pytest.mark.long
def test_many_writers_beside_an_import_and_an_erasure():
    assert "; 0 findings" in crash(
        "writers",
        "--seconds",
        "3",
        "--imported",
        "50000",
        "--erased",
        "5000",
        "--longest-wait-s",
        "60",
    )
