"""The figures that conversations can be sorted by. The help of commands names them without loading
the others.
"""

from typing import Final

SORTS: Final = (
    "id",
    "recorded",
    "activity",
    "started",
    "duration",
    "state",
    "events",
    "errors",
    "wait",
    "view",
    "prompt",
    "tokens",
    "cost",
    "condensations",
    "saved",
)
"""What conversations can be sorted by."""
