"""The View as a fold: what each event makes of what is shown.

There is one fold. ``evolve`` is the fold of one event, so that folding step by step and folding at once cannot differ.
It accepts whatever the log holds and never repairs: making events fit for a model is ``well_formed``, on the way out.

    a shown event          is added to the end
    CondensationRequest    sets the flag
    CondensationAction     removes what it forgets, then inserts its summary at its offset; clears the flag

A condensation imported from V0 follows other rules: see ``projections.v0_dialect``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from eventstore.errors import InvalidEvent, UnknownEventType
from eventstore.events import (
    NOT_RECORDED,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    UnknownEvent,
    summary_id,
)
from projections.intervals import Intervals
from projections.left_behind import LeftBehind
from projections.v0_dialect import Register, clamp, entomb, find_buried, insert_register, is_from_v0

__all__ = ["EMPTY", "Folded", "ViewState", "evolve", "fold", "resume", "summary_event"]


@dataclass(frozen=True, slots=True)
class ViewState:
    """What of a View is needed to fold on.

    ``items`` are the events shown, and summaries whose place is fixed; their ids ascend but for those of summaries.
    ``left_behind`` are ids of items whose unit lost another member: shown to no model. ``register`` and ``tomb`` belong
    to the V0 dialect.
    """

    version: int = 0
    items: tuple[Event, ...] = ()
    unhandled_condensation_request: bool = False
    left_behind: frozenset[int] = frozenset()
    register: Register | None = None
    tomb: Intervals = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """Return the events of the View, in order."""
        return self.items if self.register is None else tuple(insert_register(self.items, self.register))


EMPTY = ViewState()
"""The View of an empty conversation."""


class Folded(NamedTuple):
    """A state, and the condensations among the events that were folded into it."""

    state: ViewState
    condensations: tuple[CondensationAction, ...]


def evolve(state: ViewState, event: Event) -> ViewState:
    """Return the state after one more event. See ``fold``."""
    return fold((event,), state).state


def fold(events: Iterable[Event], start: ViewState = EMPTY) -> Folded:
    """Return the state after ``events``, which follow ``start``: their ids are its version and on, dense.

    Events in no conversation yet (id -1) are taken to be recorded next. Raises ``InvalidEvent`` where the first or last
    id is another, ``UnknownEventType`` for a structural event of an unknown kind: a View that passed over it would be
    wrong. Cost: the events; for each condensation also the items of the View at that moment.
    """
    numbered = _numbered(events, start.version)
    return resume(start, numbered, start.version + len(numbered))


def resume(start: ViewState, events: Sequence[Event], version: int) -> Folded:
    """Return the fold of all events from ``start`` up to ``version``, given those that matter: the shown and the
    structural ones, in order. Raises ``UnknownEventType``. Cost: as ``fold``.
    """
    folding = _Folding(start, hopeful=len(events) >= MANY)
    folding.run(events)
    left_behind = folding.left_behind()
    if left_behind is None:
        folding = _Folding(start, hopeful=False)
        folding.run(events)
        left_behind = folding.left_behind() or frozenset()
    return Folded(folding.state(version, left_behind), tuple(folding.condensations))


def _numbered(events: Iterable[Event], version: int) -> Sequence[Event]:
    numbered = events if isinstance(events, list | tuple) else list(events)
    if not numbered:
        return numbered
    if numbered[0].id == NOT_RECORDED:
        numbered = [
            replace(event, id=event_id) if event.id == NOT_RECORDED else event
            for event_id, event in enumerate(numbered, version)
        ]
    first, last = numbered[0].id, numbered[-1].id
    if first != version or last != version + len(numbered) - 1:
        raise InvalidEvent(
            f"{len(numbered)} events with ids {first} to {last} do not follow version {version}; "
            f"a View is folded over all events of a conversation, in order"
        )
    return numbered


MANY = 1_000
"""Folds of fewer events than this do not begin in the hope that no event is left behind."""


class _Folding:
    """A fold in progress: mutable, and private to this file."""

    def __init__(self, start: ViewState, *, hopeful: bool) -> None:
        self._items = list(start.items)
        self._requested = start.unhandled_condensation_request
        self._parting = LeftBehind(start.left_behind, hopeful=hopeful)
        self._register = start.register
        self._tomb = start.tomb
        self.condensations: list[CondensationAction] = []

    def left_behind(self) -> frozenset[int] | None:
        """Return the ids of the events left behind; None where a hopeful fold does not know them."""
        return self._parting.left_behind(self._items)

    def state(self, version: int, left_behind: frozenset[int]) -> ViewState:
        return ViewState(version, tuple(self._items), self._requested, left_behind, self._register, self._tomb)

    def run(self, events: Sequence[Event]) -> None:
        start = 0
        for place in [place for place, event in enumerate(events) if not event.shown or type(event) in _STRUCTURAL]:
            self._show(events[start:place])
            self._fold_in(events[place])
            start = place + 1
        self._show(events[start:])

    def _show(self, events: Sequence[Event]) -> None:
        if self._tomb:
            dead = set(find_buried(self._tomb, events))
            events = [event for place, event in enumerate(events) if place not in dead]
        self._items += events

    def _fold_in(self, event: Event) -> None:
        """Fold in one event that does more than join the end of the View."""
        if isinstance(event, CondensationAction):
            if is_from_v0(event):
                self._condense_from_v0(event)
            else:
                self._condense(event)
            self._requested = False
            self.condensations.append(event)
        elif isinstance(event, CondensationRequest):
            if is_from_v0(event):
                self._entomb(event)
            self._requested = True
        elif isinstance(event, UnknownEvent) and event.is_structural:
            raise UnknownEventType(
                event.stored_kind,
                event.stored_schema,
                f"event {event.id} is of kind {event.stored_kind!r} (schema {event.stored_schema}), which this version "
                f"does not know and which changes the View; upgrade foldlog to read this conversation from there on",
            )
        elif event.shown:
            self._show((event,))

    def _condense(self, action: CondensationAction) -> None:
        if self._register is not None:
            self._items = insert_register(self._items, self._register)
            self._register = None
        self._forget(_named(action, self._items), action.id)
        if action.summary is not None and action.summary_offset is not None:
            self._items.insert(clamp(action.summary_offset), summary_event(action))

    def _condense_from_v0(self, action: CondensationAction) -> None:
        self._entomb(action)
        if action.summary is not None and action.summary_offset is not None:
            self._register = Register(summary_event(action), clamp(action.summary_offset))

    def _entomb(self, event: CondensationAction | CondensationRequest) -> None:
        self._tomb = entomb(self._tomb, event)
        self._forget(find_buried(self._tomb, self._items), event.id)

    def _forget(self, places: Sequence[int], by: int) -> None:
        """Remove the items at ascending places, because of the structural event with id ``by``."""
        if not places:
            return
        items, start, stop = self._items, places[0], places[-1] + 1
        head = items[:start]
        if len(places) == stop - start:
            gone = items[start:stop]
            self._items = head + items[stop:]
        else:
            gone = [items[place] for place in places]
            ids = {event.id for event in gone}
            self._items = [event for event in items if event.id not in ids]
        shown = items if self._register is None else insert_register(items, self._register)
        self._parting.forget(by, shown, head, gone)


_STRUCTURAL = frozenset({CondensationAction, CondensationRequest, UnknownEvent})


def _named(action: CondensationAction, items: Sequence[Event]) -> Sequence[int]:
    """Return the places of the shown items that a native condensation forgets. Later events are not affected."""
    ids = action.forgotten_event_ids
    if ids is None:
        start, end = action.forgotten_events_start_id or 0, action.forgotten_events_end_id or 0
        return [place for place, event in enumerate(items) if start <= event.id <= end]
    if not ids:
        return ()
    first = next((place for place, event in enumerate(items) if event.id == ids[0]), 0)
    if [event.id for event in items[first : first + len(ids)]] == list(ids):  # as condensers name them
        return range(first, first + len(ids))
    named = set(ids)
    return [place for place, event in enumerate(items) if event.id in named]


def summary_event(action: CondensationAction) -> CondensationSummary:
    """Return the summary that stands in a View for the events that ``action`` forgot."""
    return CondensationSummary(id=summary_id(action.id), content=action.summary or "", summary_of=action.id)
