"""How many cases a test tries: all with ``scripts/test --all``, and otherwise some of them."""

import os
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import HealthCheck, settings

WHOLE = "FOLDLOG_TEST_WHOLE"
"""The variable that ``--all`` sets in the environment before tests are imported."""
FEW = 6
T = TypeVar("T")


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """Return settings for so many examples with ``scripts/test --all``, and otherwise for a tenth of
    them, but at least six and at most a hundred. Each run draws other examples, except where the
    variable ``CI`` is set.
    """
    few = min(max(count // 10, FEW), count, 100)
    return settings(
        derandomize="CI" in os.environ,
        max_examples=count if WHOLE in os.environ else few,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, *suppressed],
    )


def some(cases: Iterable[T], count: int) -> list[T]:
    """Return all cases with ``scripts/test --all``, and otherwise so many of them: the first, the last,
    and evenly spaced ones between.
    """
    all_cases = list(cases)
    if WHOLE in os.environ or len(all_cases) <= count:
        return all_cases
    return [all_cases[(len(all_cases) - 1) * n // (count - 1)] for n in range(count)]
