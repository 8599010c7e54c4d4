"""How many cases are tried: all with ``scripts/test --all``, some of them else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import HealthCheck, settings

__all__ = ["WHOLE", "examples", "some"]

WHOLE = "FOLDLOG_TEST_WHOLE"
"""Is set in the environment by ``--all``, before tests are imported."""
FEW = 6
T = TypeVar("T")


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """So many with ``scripts/test --all``, and a tenth of them else, at least six; other ones in
    each run.
    """
    few = min(max(count // 10, FEW), count)
    return settings(
        max_examples=count if WHOLE in os.environ else few,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, *suppressed],
    )


def some(cases: Iterable[T], count: int) -> list[T]:
    """All of them with ``scripts/test --all``, and else so many: the first, the last, and what lies
    evenly between.
    """
    whole = list(cases)
    if WHOLE in os.environ or len(whole) <= count:
        return whole
    return [whole[(len(whole) - 1) * n // (count - 1)] for n in range(count)]
