"""The figures by which conversations can be sorted. This module is separate so that the help of
commands loads no other module of figures.
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
"""The names of the figures by which conversations can be sorted."""
