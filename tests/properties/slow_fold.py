"""The View's definition as slowly as it can be written: event by event, every id compared with every id."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from foldlog.eventstore.events import (
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    Retraction,
    summary_id,
)
from foldlog.projections.units import units


@dataclass
class Slow:
    items: list[Event] = field(default_factory=list)
    requested: bool = False
    left_behind: set[int] = field(default_factory=set)
    buried: list[tuple[int, int]] = field(default_factory=list)
    newest: tuple[int, CondensationSummary] | None = None

    @property
    def events(self) -> list[Event]:
        events = list(self.items)
        if self.newest is not None:
            events.insert(*self.newest)
        return events

    def forget(self, forgotten: list[Event]) -> None:
        gone = {event.id for event in forgotten}
        shown = self.events
        found = units(shown, self.left_behind)
        for members in [*(calls.members for calls in found.parallel_calls), *found.loops, *found.bonds]:
            member_ids = {shown[place].id for place in members}
            if member_ids & gone:
                self.left_behind |= member_ids
        self.left_behind -= gone
        self.items = [event for event in self.items if event.id not in gone]

    def bury(self, first: int, last: int) -> None:
        self.buried.append((first, last))
        self.forget([event for event in self.items if self.is_buried(event)])

    def is_buried(self, event: Event) -> bool:
        return is_v0(event) and any(first <= source_id(event) <= last for first, last in self.buried)


def slow_fold(events: list[Event]) -> Slow:
    slow = Slow()
    earlier = [deepcopy(slow)]
    for event in events:
        if isinstance(event, Retraction):
            requested = slow.requested
            slow = deepcopy(earlier[min(event.version, event.id)])
            slow.requested = slow.requested or requested
        elif isinstance(event, CondensationRequest):
            if is_v0(event):
                slow.bury(source_id(event), source_id(event))
            slow.requested = True
        elif isinstance(event, CondensationAction):
            slow.requested = False
            (condense_from_v0 if is_v0(event) else condense_native)(slow, event)
        elif event.shown and not slow.is_buried(event):
            slow.items.append(event)
        earlier.append(deepcopy(slow))
    return slow


def condense_native(slow: Slow, action: CondensationAction) -> None:
    slow.items, slow.newest = slow.events, None
    intervals, summaries = action.forgotten
    slow.forget(
        [
            event
            for event in slow.items
            if event.id in summaries or any(first <= event.id <= last for first, last in intervals)
        ]
    )
    if action.summary is not None and action.summary_offset is not None:
        slow.items.insert(action.summary_offset, summary_of(action, action.summary))


def condense_from_v0(slow: Slow, action: CondensationAction) -> None:
    named = [(source_id, source_id) for source_id in action.forgotten_event_ids or ()]
    start, end = action.forgotten_events_start_id, action.forgotten_events_end_id
    if start is not None and end is not None:
        named.append((start, end))
    slow.buried += [*named, (source_id(action), source_id(action))]
    slow.forget([event for event in slow.items if slow.is_buried(event)])
    if action.summary is not None and action.summary_offset is not None:
        slow.newest = action.summary_offset, summary_of(action, action.summary)


def summary_of(action: CondensationAction, text: str) -> CondensationSummary:
    return CondensationSummary(id=summary_id(action.id), content=text, summary_of=action.id)


def is_v0(event: Event) -> bool:
    return event.origin is not None and event.origin.format == "openhands-v0"


def source_id(event: Event) -> int:
    assert event.origin is not None
    return -1 if event.origin.id is None else event.origin.id
