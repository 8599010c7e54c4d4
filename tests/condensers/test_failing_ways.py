"""Agents whose summarizer fails or babbles, with a process for each turn.

``python -m tests.condensers.failing_ways`` takes 250 turns with each way; the long test takes 40.
"""

from itertools import product

import pytest

from tests.condensers.failing_ways import STRATEGIES, WAYS, run, warm_up


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up()


@pytest.mark.long
@pytest.mark.parametrize("strategy, way", [*product(STRATEGIES, WAYS)])
def test_an_agent_goes_on_while_its_summarizer_fails(strategy, way, tmp_path):
    outcome = run(strategy, way, tmp_path, broken=40)
    assert outcome.is_good, outcome
