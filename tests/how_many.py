"""How many examples of a property are tried."""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["WHOLE", "examples"]

WHOLE = "FOLDLOG_TEST_WHOLE"
"""Is set in the environment by ``--whole``, before tests are imported."""


def examples(count: int) -> settings:
    """So many with ``scripts/test --whole``, and a third of them else; other ones in each run."""
    return settings(max_examples=count if WHOLE in os.environ else count // 3, deadline=None)
