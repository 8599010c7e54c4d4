"""The read-only dialect of condensations imported from OpenHands V0, ``batch``.

Such a condensation forgets ids of the *source*, wherever in the log they stand, also later; it forgets condensations
and requests, itself among them, which matters where an id is repeated. Of all summaries only the newest is shown, at an
offset that is applied again at each reading. So a View keeps a *tomb*, the source ids that are forgotten for good, and
a *register*, the newest summary. The first native condensation takes that out of the register and fixes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from eventstore.events import (
    NOT_RECORDED,
    CondensationAction,
    CondensationSummary,
    Event,
)
from projections.intervals import Intervals, contains, normalized

__all__ = ["Register", "buried", "entombed", "holds", "index", "is_batch", "with_register"]

_FORMAT = "openhands-v0"


class Register(NamedTuple):
    """The newest summary, and the index at which each reading inserts it: a number that a list takes."""

    summary: CondensationSummary
    offset: int


def is_batch(event: Event) -> bool:
    """Whether ``event`` was imported from V0, so that source ids, not ours, are what its condensations speak of."""
    return event.origin is not None and event.origin.format == _FORMAT


def entombed(tomb: Intervals, event: Event) -> Intervals:
    """The tomb with what a condensation or request from V0 forgets: what it names, and itself."""
    pairs = [*tomb, (_source_id(event),) * 2]
    if isinstance(event, CondensationAction):
        start, end = event.forgotten_events_start_id, event.forgotten_events_end_id
        if event.forgotten_event_ids is not None:
            pairs.extend((source_id, source_id) for source_id in event.forgotten_event_ids)
        elif start is not None and end is not None:
            pairs.append((start, end))
    return normalized(pairs)


def buried(tomb: Intervals, events: Sequence[Event]) -> list[int]:
    """Positions of the events that the tomb holds. Cost: the events."""
    return [place for place, event in enumerate(events) if holds(tomb, event)] if tomb else []


def holds(tomb: Intervals, event: Event) -> bool:
    """Whether the tomb holds an event. One that is not from V0 has no source id, and is never in it."""
    return is_batch(event) and contains(tomb, _source_id(event))


def index(offset: int) -> int:
    """An offset that an imported condensation names as a list takes it: no list is as long as the largest."""
    return max(-sys.maxsize, min(offset, sys.maxsize))


def with_register(items: Sequence[Event], register: Register) -> list[Event]:
    """The items with the newest summary where ``list.insert`` puts it: clamped; counted from the end if negative."""
    events = list(items)
    events.insert(register.offset, register.summary)
    return events


def _source_id(event: Event) -> int:
    """The id in V0, where "no id" is -1 and forgotten as such. An id that is no integer is never forgotten."""
    source_id = event.origin.id if event.origin is not None else None
    if source_id is None:
        return NOT_RECORDED
    return source_id if isinstance(source_id, int) else _NEVER


_NEVER = -(2**63)
