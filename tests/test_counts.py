"""What an operation costs does not grow unseen: SQL statements, and bytecodes on the CPython versions recorded.

After a change that is worth its cost: ``scripts/operation-counts --record``, with each CPython version that the file
names.
"""

from __future__ import annotations

import json

import pytest

from benchmarks.counts import BASELINE, BASELINE_EVENTS, GROWTH_MAX, Count, count_all, python_version

RECORDED = json.loads(BASELINE.read_text())
OPERATIONS = sorted(RECORDED["3.12"])


@pytest.fixture(scope="module")
def counts() -> dict[str, Count]:
    return count_all(BASELINE_EVENTS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_asks_as_few_questions_as_before(counts: dict[str, Count], operation: str):
    recorded = RECORDED.get(python_version(), RECORDED["3.11"])  # Python 3.12 asks one less where it opens a file
    assert counts[operation].statements <= recorded[operation]["statements"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.skipif(python_version() not in RECORDED, reason="the bytecodes of this CPython were not recorded")
def test_an_operation_executes_as_few_bytecodes_as_before(counts: dict[str, Count], operation: str):
    recorded = RECORDED[python_version()][operation]["bytecodes"]
    assert counts[operation].bytecodes <= GROWTH_MAX * recorded


def test_every_operation_was_recorded(counts: dict[str, Count]):
    assert sorted(counts) == OPERATIONS
