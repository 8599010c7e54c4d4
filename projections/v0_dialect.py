"""The V0 dialect: the rules by which a View folds condensations that were imported from OpenHands
V0.

A condensation from V0 lists *source ids*: ids that the events had in OpenHands. It forgets every
event with one of these ids, anywhere in the log: later events, condensations, requests, and itself.
If two events have the same source id, both are forgotten. A View shows only the newest summary, and
its place is computed from its offset again at every reading.

An import cannot translate a condensation of V0 into a native condensation: 59 of 440 recorded
histories would then show another View. The reason is that the summary of V0 moves with new events,
and that its condensation also forgets later events.

The state of a View contains two values for the V0 dialect. The *tomb* contains the source ids that
are forgotten forever. The *register* contains the newest summary with its offset. The first native
condensation moves the summary from the register to a fixed place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from foldlog.eventstore import NOT_RECORDED, CondensationAction, CondensationSummary, Event
from foldlog.eventstore.events import names_source_ids
from foldlog.projections.intervals import Intervals, contains, normalize


class Register(NamedTuple):
    """The newest summary, and the index at which every reading inserts it with ``list.insert``."""

    summary: CondensationSummary
    offset: int


def entomb(tomb: Intervals, event: Event) -> Intervals:
    """Return the tomb with the source id of ``event``. If ``event`` is a condensation from V0, the
    tomb also gets all ids that it forgets.
    """
    pairs = [*tomb]
    own_id = _source_id(event)
    if own_id is not None:
        pairs.append((own_id, own_id))
    if isinstance(event, CondensationAction):
        # A condensation without ids has both bounds.
        bounds: Any = event.forgotten_events_start_id, event.forgotten_events_end_id
        if event.given_ids is None:
            pairs.append(bounds)
        else:
            pairs.extend((source_id, source_id) for source_id in event.given_ids)
    return normalize(pairs)


def find_buried(tomb: Intervals, events: Sequence[Event]) -> list[int]:
    """Return the indices of the events whose source ids are in the tomb."""
    return [index for index, event in enumerate(events) if is_buried(tomb, event)]


def is_buried(tomb: Intervals, event: Event) -> bool:
    """Return whether the event's source id is in the tomb. An event that was not imported from V0
    has no source id, so it is never in the tomb.
    """
    if not names_source_ids(event):
        return False
    source_id = _source_id(event)
    return source_id is not None and contains(tomb, source_id)


def clamp(offset: int) -> int:
    """Return an offset that ``list.insert`` accepts, for the same place: no list is longer than the
    limits.
    """
    return max(-sys.maxsize, min(offset, sys.maxsize))


def insert_register(items: Sequence[Event], register: Register) -> list[Event]:
    """Insert the newest summary into the items, as ``list.insert`` does. A negative offset counts
    from the end. An offset before the beginning means the beginning, and an offset after the end
    means the end.
    """
    events = list(items)
    events.insert(register.offset, register.summary)
    return events


def _source_id(event: Event) -> int | None:
    """Return the source id of an event from V0. A missing id counts as -1, and the id -1 can be
    forgotten. Return None for an id that is a text, because such an id is never forgotten.
    """
    origin: Any = event.origin
    if origin.id is None:
        return NOT_RECORDED
    return origin.id if isinstance(origin.id, int) else None
