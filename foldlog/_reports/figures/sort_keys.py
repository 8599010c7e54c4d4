"""The figures by which conversations can be sorted. This module is small, because the help of
commands loads it.
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
