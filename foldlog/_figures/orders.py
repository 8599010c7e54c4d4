"""The figures by which conversations can be sorted. The help of commands loads only this module of
figures, because it is small.
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
