"""Events that a source has again, later: its program wrote a part of the log once more. Figures
count them once.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from itertools import islice
from operator import attrgetter

from foldlog.eventstore import Event, Retraction
from foldlog.projections import contains, intervals_kept

WRITTEN_AGAIN = "the source has this again"
"""The reason of a retraction before records that a source has twice."""


def is_replacing(event: Event) -> bool:
    """Return whether an event takes back what its source has again."""
    if not isinstance(event, Retraction) or event.origin is None:
        return False
    return event.reason == WRITTEN_AGAIN


def standing_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return whether an event stands: the source does not have it again. What its program had taken
    back before it wrote the rest again stands: it happened.
    """
    retractions = [
        each for each in structural if isinstance(each, Retraction) and each.id < version
    ]
    replacing = [*filter(is_replacing, retractions)]
    if not replacing:
        return lambda event: True
    kept = intervals_kept(replacing, version)

    def stands(event: Event) -> bool:
        if event.origin is None or contains(kept, event.id):
            return True
        later = islice(retractions, bisect(retractions, event.id, key=attrgetter("id")), None)
        first = next((each for each in later if each.version <= event.id), None)
        return first is not None and not is_replacing(first)

    return stands
