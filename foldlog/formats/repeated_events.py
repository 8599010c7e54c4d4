"""Find events that a source repeats, because its program wrote a part of the log again. Figures
count a repeated event only once.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from itertools import islice
from operator import attrgetter

from foldlog.eventstore import Event, Retraction
from foldlog.eventstore.usage import WRITTEN_AGAIN
from foldlog.projections import contains, intervals_kept


def is_replacing(event: Event) -> bool:
    """Return whether an event takes back what the source repeats after it."""
    if not isinstance(event, Retraction) or event.origin is None:
        return False
    return event.reason == WRITTEN_AGAIN


def standing_in(structural: Iterable[Event], version: int) -> Callable[[Event], bool]:
    """Return a function that says whether figures count an event. If the source writes an event
    again before ``version``, figures count only the copy. An event that the program itself had
    taken back has no copy, and is counted.
    """
    retractions = [
        event for event in structural if isinstance(event, Retraction) and event.id < version
    ]
    replacing = [*filter(is_replacing, retractions)]
    if not replacing:
        return lambda event: True
    intervals = intervals_kept(replacing, version)

    def stands(event: Event) -> bool:
        # A later step back of the program must not change what was counted before it.
        if is_replacing(event):
            return False
        if event.origin is None or contains(intervals, event.id):
            return True
        next_index = bisect(retractions, event.id, key=attrgetter("id"))
        later = islice(retractions, next_index, None)
        # Only the first retraction that takes the event back matters. If the program itself made
        # this retraction, the event is not written again, so it is counted.
        taken_back_by = next((change for change in later if change.version <= event.id), None)
        return taken_back_by is not None and not is_replacing(taken_back_by)

    return stands
