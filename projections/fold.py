"""Fold the events of a conversation into a View.

This fold makes every View. Folding events one by one or all at once gives the same View. The fold
accepts every event of a log and repairs nothing. ``well_formed`` makes the events of a View
acceptable for a model.

    a shown event          is added to the end
    CondensationRequest    sets the flag
    CondensationAction     removes the events that it forgets, inserts its summary at its offset,
                           and clears the flag
    Retraction             restores the View of an earlier version, but does not clear the flag

A condensation imported from V0 follows other rules, which ``foldlog.projections.v0_dialect``
describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace as replace_field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    NOT_RECORDED,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    InvalidEvent,
    Retraction,
    UnknownEvent,
    UnknownEventType,
    summary_id,
)
from foldlog.eventstore.errors import count
from foldlog.eventstore.events import MAY_BE_STRUCTURAL, names_source_ids
from foldlog.projections.intervals import Intervals
from foldlog.projections.items import NO_ITEMS, Items
from foldlog.projections.left_behind import left_behind_after
from foldlog.projections.retractions import target
from foldlog.projections.units import Units, units
from foldlog.projections.v0_dialect import Register, clamp, entomb, find_buried, insert_register


class PastLog(Protocol):
    """The past of a View: the events of its log, and earlier states for retractions."""

    @property
    def memory(self) -> JsonObject:
        """A cache of values that readers derived from a ``PastLog``. Each reader chooses the keys
        of its values. A later View of the conversation may share the cache. A redaction empties the
        cache, so readers must be able to derive all values again.
        """

    @property
    def conversation(self) -> str:
        """The id of the conversation, or an empty text if the events are of no store."""

    @property
    def key(self) -> int:
        """The key of the conversation in its store, or 0 if the events are of no store."""

    @property
    def redactions(self) -> int:
        """The number of redacted events of the conversation when the View was read."""

    def at(self, version: int) -> Folded:
        """Return the state at ``version``, with its condensations."""

    def events(self, start: int, stop: int) -> Sequence[Event]:
        """Return the log's events with ``start <= id < stop``, shown or not. Cost: reading the
        returned events.
        """

    def document(self, name: str) -> Any:
        """Return the newest value of a document in the store, or None. Cost: reading an event and
        at most 64 differences.
        """


@dataclass(frozen=True)
class ViewState:
    """The part of a View that the next step of the fold needs.

    ``items`` contains the shown events, and the summaries that have a fixed place. The ids of
    events ascend, and summaries have negative ids. ``left_behind`` contains the ids of items whose
    unit was partly forgotten. These items are not sent to a model. Only conversations from
    OpenHands V0 use ``register`` and ``tomb``: see ``v0_dialect``. A retraction finds the earlier
    state in ``past``. Comparisons of states ignore ``past``.
    """

    version: int = 0
    items: Items = NO_ITEMS
    unhandled_condensation_request: bool = False
    left_behind: frozenset[int] = frozenset()
    register: Register | None = None
    tomb: Intervals = ()
    past: PastLog | None = field(default=None, compare=False, repr=False)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The events of the View. The summary in ``register`` is inserted at its offset."""
        if self.register is None:
            return self.items.events
        return tuple(insert_register(self.items, self.register))

    @cached_property
    def units(self) -> Units:
        """The units of ``events``, as positions."""
        if self.register is None:
            return self.items.units(self.left_behind)
        return units(self.events, self.left_behind)

    @property
    def count(self) -> int:
        """The number of ``events``. Cost: none, unlike ``len(events)``, which makes a tuple."""
        return len(self.items) + (0 if self.register is None else 1)


EMPTY = ViewState()
"""The state of a conversation without events."""


class Folded(NamedTuple):
    """A state, and the condensations among the events that were folded into the state.

    ``older`` is None, unless a retraction returned to a version before the first folded event. In
    this case, ``older`` contains the condensations at that version, which replace the condensations
    before the fold.
    """

    state: ViewState
    condensations: Sequence[CondensationAction]
    older: Sequence[CondensationAction] | None = None


def fold(events: Iterable[Event], start: ViewState = EMPTY) -> Folded:
    """Return the state after ``events``. The ids of ``events`` begin with the version of ``start``
    and have no gaps.

    Events that no conversation contains yet (id -1) get the next ids. Raises ``InvalidEvent`` if
    the first or the last id is wrong. Raises ``UnknownEventType`` for a structural event of unknown
    kind. Cost: one pass over the events. Each condensation or retraction also costs one pass over
    the items of the View at its version. The state keeps the events in memory, because a later
    event may be a retraction.
    """
    numbered = _number_events(events, start.version)
    version = start.version + len(numbered)
    places = _places_of_changes(numbered)
    if any(type(numbered[place]) is Retraction for place in places):
        folded = _fold_back(start, numbered)
    else:
        folded = resume(start, numbered, version, places)
    past = _Retained(start.past, start.version, numbered)
    return folded._replace(state=replace_field(folded.state, past=past))


def _fold_back(start: ViewState, numbered: Sequence[Event]) -> Folded:
    """Return what ``fold`` returns, for events with retractions. The fold stops at each version to
    which a retraction returns, and keeps the state at this version.
    """
    first = start.version
    version = start.version + len(numbered)
    targets = {event.id: target(event) for event in numbered if isinstance(event, Retraction)}
    folded = Folded(start, ())
    earlier = dict[int, Folded]()
    folded_until = first
    for stop in sorted({*targets, *targets.values(), version}):
        if stop < first:
            before = _state_at(start, stop)
            earlier[stop] = Folded(before.state, (), before.condensations)
            continue
        events = numbered[folded_until - first : stop - first]
        state, condensations, _ = resume(folded.state, events, stop)
        folded = folded._replace(state=state, condensations=(*folded.condensations, *condensations))
        earlier[stop] = folded
        folded_until = stop
        if stop in targets:  # the event with this id is a retraction
            folded = earlier[targets[stop]]
            folded_until = stop + 1
            requested = (
                state.unhandled_condensation_request or folded.state.unhandled_condensation_request
            )
            state = replace_field(
                folded.state, version=folded_until, unhandled_condensation_request=requested
            )
            folded = folded._replace(state=state)
    return folded


def _state_at(state: ViewState, version: int) -> Folded:
    """Return an earlier state of the same conversation. Raises ``LookupError`` if ``state`` has no
    past.
    """
    if version == 0:
        return Folded(EMPTY, ())
    if state.past is None:
        raise LookupError(
            f"a retraction returns to version {version}, but this View, at version {state.version},"
            " was made without the earlier events; fold the conversation from its first event, or"
            " read it from its store"
        )
    return state.past.at(version)


class _Retained(Struct, frozen=True):
    """The past of a View that was made from events in memory.

    ``before``   the past of the View with which the fold began, or None
    ``version``  the version of that View
    ``batch``    the events that were folded after it
    ``memory``   the cache, which is not shared with ``before``, because two Views may continue the
                 same View with different events
    """

    before: PastLog | None
    version: int
    batch: Sequence[Event]
    memory: JsonObject = {}

    @property
    def conversation(self) -> str:
        return "" if self.before is None else self.before.conversation

    @property
    def key(self) -> int:
        return 0 if self.before is None else self.before.key

    @property
    def redactions(self) -> int:
        return 0 if self.before is None else self.before.redactions

    def events(self, start: int, stop: int) -> Sequence[Event]:
        batches: list[Sequence[Event]] = []
        past: PastLog | None = self
        first = self.version + len(self.batch)
        while isinstance(past, _Retained) and first > start:
            batches.append(past.batch)
            first = past.version
            past = past.before
        if past is not None and first > start:
            older = past.events(start, min(first, stop))
        else:
            older = ()
        newer = (
            event for batch in reversed(batches) for event in batch if start <= event.id < stop
        )
        return [*older, *newer]

    def at(self, version: int) -> Folded:
        batches: list[Sequence[Event]] = []
        past: PastLog | None = self
        first = self.version
        while isinstance(past, _Retained):
            batches.append(past.batch)
            first = past.version
            past = past.before
        is_before_batches = version < first
        is_beginning_unknown = past is None and first > 0
        if is_before_batches or is_beginning_unknown:
            return _state_at(ViewState(first, past=past), version)
        events = [event for batch in reversed(batches) for event in batch]
        start = Folded(EMPTY, ()) if past is None else past.at(first)
        folded = fold(events[: version - first], start.state)
        older = start.condensations if folded.older is None else folded.older
        return Folded(folded.state, (*older, *folded.condensations))

    def document(self, name: str) -> Any:
        return None if self.before is None else self.before.document(name)


def resume(
    start: ViewState, events: Sequence[Event], version: int, places: Sequence[int] | None = None
) -> Folded:
    """Return the fold of all events from ``start`` up to ``version``. ``events`` contains only the
    shown and the structural events, in their order. ``places`` contains the indices in ``events``
    of all events that are not simply added to the end of the View.
    """
    if places is None:
        places = _places_of_changes(events)
    # Most steps only add events to the end of the View, and then no list of items is made.
    if not places:
        return Folded(add_shown(start, events, version), ())
    folding = _Folding(start)
    folding.run(events, places)
    return Folded(folding.state(version), tuple(folding.condensations))


def add_shown(start: ViewState, events: Sequence[Event], version: int) -> ViewState:
    """Return the state at ``version`` after shown events that are not structural. They join the end
    of the View, and split no unit.
    """
    return ViewState(
        version,
        start.items.plus(_not_buried(start.tomb, events) if start.tomb else events),
        start.unhandled_condensation_request,
        start.left_behind,
        start.register,
        start.tomb,
        start.past,
    )


def _not_buried(tomb: Intervals, events: Sequence[Event]) -> Sequence[Event]:
    """Return the events whose source ids are not in the tomb."""
    buried = set(find_buried(tomb, events))
    return [event for index, event in enumerate(events) if index not in buried]


def _event_of(item: Any) -> Event:
    """Return an event, or the action of a condenser's ``Condensation``. Raises ``InvalidEvent`` for
    anything else.
    """
    if isinstance(item, Event):
        return item
    # ``Condensation`` is recognized by its attribute, because this package must not import the
    # condensers.
    action = getattr(item, "action", None)
    if isinstance(action, CondensationAction):
        return action
    raise InvalidEvent(
        f"a View is made of events, not of {item!r:.60}; foldlog.from_openai makes events of"
        " messages"
    )


def _number_events(events: Iterable[Event], version: int) -> Sequence[Event]:
    """Return the events with the ids from ``version`` on. Raises ``InvalidEvent`` if the first or
    the last of them has another id.
    """
    numbered = events if isinstance(events, list | tuple) else list(events)
    if not numbered:
        return numbered
    # Check the set of kinds, because there are few kinds and many events.
    if not all(issubclass(kind, Event) for kind in set(map(type, numbered))):
        numbered = [_event_of(item) for item in numbered]
    if NOT_RECORDED in (numbered[0].id, numbered[-1].id):
        numbered = [
            replace(event, id=event_id) if event.id == NOT_RECORDED else event
            for event_id, event in enumerate(numbered, version)
        ]
    first = numbered[0].id
    last = numbered[-1].id
    if first != version or last != version + len(numbered) - 1:
        raise InvalidEvent(
            f"{count(len(numbered), 'event')} with ids {first} to {last} cannot follow version"
            f" {version}; make a View from all events of a conversation, in order"
        )
    return numbered


def _why_unknown(event: UnknownEvent) -> str:
    """Return why no View can be made with this event, for the user."""
    return (
        f"event {event.id} is of kind {event.stored_kind!r} (schema {event.stored_schema}), which"
        " changes the View but is unknown to this version of foldlog; upgrade foldlog to read the"
        " conversation from this event on"
    )


class _Folding:
    """A fold in progress. Call ``run`` once, and then ``state``."""

    def __init__(self, start: ViewState) -> None:
        self._start = start.items
        self._added: list[Event] = []
        self._changed: list[Event] | None = None
        self._ids: list[int] = []
        self._requested = start.unhandled_condensation_request
        self._left_behind = start.left_behind
        self._register = start.register
        self._tomb = start.tomb
        self.condensations: list[CondensationAction] = []

    @property
    def _items(self) -> list[Event]:
        """The items in a list of their own. While events only join the end, this list is not made,
        and neither is ``_ids``.
        """
        if self._changed is None:
            self._changed = [*self._start, *self._added]
            self._ids = [event.id for event in self._changed]
        return self._changed

    def state(self, version: int) -> ViewState:
        """Return the state after the folded events, as the state at ``version``."""
        if self._changed is None:
            items = self._start.plus(self._added)
        else:
            items = Items(self._changed)
        return ViewState(
            version, items, self._requested, self._left_behind, self._register, self._tomb
        )

    def run(self, events: Sequence[Event], places: Sequence[int]) -> None:
        """Fold the events. ``places`` contains the indices of the events that are not simply added
        to the end of the View.
        """
        start = 0
        for place in places:
            self._show(events[start:place])
            self._fold_in(events[place])
            start = place + 1
        self._show(events[start:])

    def _show(self, events: Sequence[Event]) -> None:
        """Add events to the end of the View."""
        if self._tomb:
            events = _not_buried(self._tomb, events)
        if self._changed is None:
            self._added += events
        else:
            self._changed += events
            self._ids += _ids_of(events)

    def _fold_in(self, event: Event) -> None:
        """Fold one event of any kind, except a retraction."""
        if isinstance(event, CondensationAction):
            if names_source_ids(event):
                self._condense_from_v0(event)
            else:
                self._condense(event)
            self._requested = False
            self.condensations.append(event)
        elif isinstance(event, CondensationRequest):
            if names_source_ids(event):
                self._entomb(event)
            self._requested = True
        elif isinstance(event, UnknownEvent) and event.is_structural:
            raise UnknownEventType(event.stored_kind, event.stored_schema, _why_unknown(event))
        elif event.shown:
            self._show((event,))

    def _condense(self, action: CondensationAction) -> None:
        """Fold a native condensation. A summary of V0 gets a fixed place first."""
        if self._register is not None:
            self._insert(self._register.offset, self._register.summary)
            self._register = None
        items = self._items
        self._forget(_named_places(action, self._ids), items)
        if action.summary is not None and action.summary_offset is not None:
            self._insert(clamp(action.summary_offset), summary_event(action))

    def _insert(self, offset: int, summary: CondensationSummary) -> None:
        self._items.insert(offset, summary)
        self._ids.insert(offset, summary.id)

    def _condense_from_v0(self, action: CondensationAction) -> None:
        """Fold a condensation from V0. Its summary replaces the summary in the register."""
        self._entomb(action)
        if action.summary is not None and action.summary_offset is not None:
            self._register = Register(summary_event(action), clamp(action.summary_offset))

    def _entomb(self, event: CondensationAction | CondensationRequest) -> None:
        """Put source ids into the tomb, and forget the items that have one of them."""
        self._tomb = entomb(self._tomb, event)
        self._forget(find_buried(self._tomb, self._items), self._items)

    def _forget(self, indices: Sequence[int], items: list[Event]) -> None:
        """Remove the items at these ascending indices, and note what is left behind."""
        if not indices:
            return
        start = indices[0]
        stop = indices[-1] + 1
        # Condensers usually forget one piece, which is cut out without a look at each event.
        if len(indices) == stop - start:
            forgotten = items[start:stop]
            self._changed = items[:start] + items[stop:]
            del self._ids[start:stop]
        else:
            forgotten = [items[index] for index in indices]
            ids = {event.id for event in forgotten}
            self._changed = [event for event in items if event.id not in ids]
            self._ids = [event.id for event in self._changed]
        if self._register is None:
            shown = items
        else:
            shown = insert_register(items, self._register)
        self._left_behind = left_behind_after(shown, self._left_behind, start, forgotten)


def _ids_of(events: Sequence[Event]) -> Sequence[int]:
    """Return the ids of events with ascending ids."""
    # If the ids have no gaps, only the first and the last event are read.
    if events and events[-1].id - events[0].id == len(events) - 1:
        return range(events[0].id, events[-1].id + 1)
    return [event.id for event in events]


def _places_of_changes(events: Sequence[Event]) -> list[int]:
    """Return the indices of the events that are not simply added to the end of the View."""
    return [
        index
        for index, event in enumerate(events)
        if type(event) in MAY_BE_STRUCTURAL or not event.shown
    ]


def _named_places(action: CondensationAction, ids: Sequence[int]) -> Sequence[int]:
    """Return the ascending indices in ``ids`` of the ids that the condensation forgets."""
    named = action.given_ids
    if named is None:
        start = action.forgotten_events_start_id or 0
        end = action.forgotten_events_end_id or 0
        return [index for index, event_id in enumerate(ids) if start <= event_id <= end]
    if not named:
        return ()
    first = ids.index(named[0]) if named[0] in ids else 0
    stop = first + len(named)
    # Condensers usually forget events that follow each other, and name them in this order.
    if named == ids[first:stop]:
        return range(first, stop)
    named_ids = set(named)
    return [index for index, event_id in enumerate(ids) if event_id in named_ids]


def summary_event(action: CondensationAction) -> CondensationSummary:
    """Return the summary of ``action``, which a View shows in place of the forgotten events."""
    return CondensationSummary(
        id=summary_id(action.id), content=action.summary or "", summary_of=action.id
    )
