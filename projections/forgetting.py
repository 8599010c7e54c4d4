"""Which structural event made the View forget something: asked of the log, without folding it again."""

from __future__ import annotations

from collections.abc import Callable

from eventstore.events import CondensationAction, Event
from projections.batch import entombed, holds, is_batch
from projections.intervals import contains

__all__ = ["forgetting"]


def forgetting(structural: Event) -> Callable[[Event], bool]:
    """Whether ``structural`` forgets an event, or a summary, that the View shows when it comes."""
    if is_batch(structural):
        tomb = entombed((), structural)
        replaces = isinstance(structural, CondensationAction) and structural.summary is not None
        return lambda event: replaces and event.id < 0 if event.id < 0 else holds(tomb, event)
    if not isinstance(structural, CondensationAction):
        return lambda event: False
    intervals, summaries = structural.forgotten
    return lambda event: event.id in summaries if event.id < 0 else contains(intervals, event.id)
