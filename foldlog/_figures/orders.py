"""The figures by which conversations can be sorted. The help of commands loads this small module,
and no other module of figures.
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
