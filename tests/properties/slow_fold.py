"""The View's definition as slowly as it can be written: event by event, every id compared with
every id.
"""

from __future__ import annotations

from collections.abc import Container, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise

from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    Message,
    Observation,
    Retraction,
    summary_id,
)
from foldlog.projections.units import begins_reply, is_unseen, units


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
        for members in [
            *(calls.members for calls in found.parallel_calls),
            *found.loops,
            *found.bonds,
        ]:
            member_ids = {shown[place].id for place in members}
            if member_ids & gone:
                self.left_behind |= member_ids
        self.left_behind -= gone
        self.items = [event for event in self.items if event.id not in gone]

    def bury(self, first: int, last: int) -> None:
        self.buried.append((first, last))
        self.forget([event for event in self.items if self.is_buried(event)])

    def is_buried(self, event: Event) -> bool:
        return is_v0(event) and any(
            first <= source_id(event) <= last for first, last in self.buried
        )


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


def slow_loops(
    events: Sequence[Event], left_behind: Set[int], orphans: Sequence[int]
) -> list[list[int]]:
    """Return the tool loops of a View, each found from its beginning, given the orphans."""
    there = [place for place, event in enumerate(events) if event.id not in left_behind]
    seen = [place for place in there if not is_unseen(events[place]) and place not in orphans]
    begun: dict[int, list[int]] = {}
    for number, place in enumerate(there):
        stayed: list[int] = []
        for before, after in reversed([*pairwise(there[: number + 1])]):
            if not events[before].stays_with_next or events[after].source != "agent":
                break
            stayed.insert(0, before)
        thinks = isinstance(events[place], Action) and events[place].thinking  # type: ignore[union-attr]
        if place not in orphans and (thinks or (stayed and not events[place].stays_with_next)):
            begun[place] = [*([] if events[place].stays_with_next else stayed), place]
    return [
        [*start, *goes_on(events, [each for each in seen if each > place], begun)]
        for place, start in begun.items()
    ]


def goes_on(events: Sequence[Event], later: list[int], begun: Container[int]) -> list[int]:
    """Return the later places that a loop goes on to: words only with an action of their reply
    after them.
    """
    loop: list[int] = []
    words: list[int] = []
    for place in later:
        event = events[place]
        is_of_reply = not words or (
            begins_reply(event) and not begins_reply(event, events[words[-1]])
        )
        if (
            place in begun
            or not is_of_reply
            or not (isinstance(event, Action | Observation) or begins_reply(event))
        ):
            break
        words.append(place)
        if not isinstance(event, Message):
            loop, words = [*loop, *words], []
    return loop
