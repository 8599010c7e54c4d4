"""This module gives the results of parallel calls the order of their calls. Tools that run at the
same time end in any order, and a digest of the same work should be the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from foldlog.eventstore import Action, CondensationAction, Event, Observation


class PlacedEvent(NamedTuple):
    """An event whose id is its place in the order of calls, and the id that it has in the log."""

    event: Event
    event_id: int


def in_order_of_calls(events: Iterable[Event]) -> Iterator[PlacedEvent]:
    """Yield the events in order, but the results of parallel calls in the order of their calls.
    Such results, and bookkeeping between them, exchange their ids, so the order of ids stays the
    order of events.
    """
    calls: dict[object, int] = {}
    results: list[Event] = []
    for event in events:
        if _is_result_or_bookkeeping(event):
            results.append(event)
            continue
        if results or not isinstance(event, Action):
            yield from _placed(results, calls)
            results = []
            calls = {}
        if isinstance(event, Action):
            calls[event.id] = calls[event.call_id or event.id] = len(calls)
        yield PlacedEvent(event, event.id)
    yield from _placed(results, calls)


def _is_result_or_bookkeeping(event: Event) -> bool:
    if isinstance(event, CondensationAction):
        return False
    return isinstance(event, Observation) or not event.shown


def _placed(events: list[Event], calls: dict[object, int]) -> Iterator[PlacedEvent]:
    results = [event for event in events if isinstance(event, Observation)]
    ordered = events
    if len(results) > 1:
        others = [event for event in events if not isinstance(event, Observation)]
        ordered = [*sorted(results, key=lambda result: _place(result, calls)), *others]
    for event, place in zip(ordered, [event.id for event in events], strict=True):
        yield PlacedEvent(event if event.id == place else replace(event, id=place), event.id)


def _place(result: Observation, calls: dict[object, int]) -> int:
    return calls.get(result.cause, calls.get(result.call_id, len(calls)))
