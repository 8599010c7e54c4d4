"""How many examples of a property are tried."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["WHOLE", "examples"]

WHOLE = "FOLDLOG_TEST_WHOLE"
"""Is set in the environment by ``--all``, before tests are imported."""
FEW = 10


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """So many with ``scripts/test --all``, and a tenth of them else, at least ten; other ones in each run."""
    few = min(max(count // 10, FEW), count)
    return settings(
        max_examples=count if WHOLE in os.environ else few,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, *suppressed],
    )
