"""Find in one pass over a log at which versions its View showed each event.

The usual fold makes the View at each structural event; the states before and after it are compared.
Between structural events, events are only added to the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from foldlog.eventstore import (
    NOT_RECORDED,
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    Retraction,
)
from foldlog.eventstore.inside import MAY_BE_STRUCTURAL, is_structural
from foldlog.projections.fold import EMPTY, ViewState, resume
from foldlog.projections.lifetimes import Departure, Lifetime, Lifetimes, Span, Standing
from foldlog.projections.retractions import target
from foldlog.projections.units import UnitsSoFar, fit_positions, is_unseen, units
from foldlog.projections.v0_dialect import insert_register

Count = Callable[[Event], int]
"""A function that gives the tokens of an event."""


class LifetimesFold:
    """A fold in progress: give it the events of a conversation in order, in any number of parts.

    ``targets`` are the versions that retractions of the log return to; the states there are kept.
    """

    def __init__(
        self, conversation: str, count: Count | None = None, targets: Iterable[int] = ()
    ) -> None:
        self._conversation = conversation
        self._count = count
        self._state = EMPTY
        self._targets = frozenset(targets)
        self._earlier: dict[int, tuple[ViewState, dict[int, int]]] = {0: (EMPTY, {})}
        self._open: dict[int, _Open] = {}
        self._closed: dict[int, tuple[Span, ...]] = {}
        self._returns: dict[int, tuple[tuple[int, Departure], ...]] = {}
        self._tokens: dict[int, int] = {}
        self._units = UnitsSoFar(EMPTY.left_behind)
        self._order = _Order()
        self._summaries: dict[int, None] = {}

    @property
    def version(self) -> int:
        """The number of events that were taken."""
        return self._state.version

    def take(self, events: Iterable[Event]) -> None:
        """Take the next events. Raises ``UnknownEventType``, and ``LookupError`` at a retraction to
        a version that is not among the targets: then begin again with the first event and with that
        target. Cost: the events, and for each structural one the View at that moment.
        """
        plain: list[Event] = []
        version = self.version
        for event in events:
            version = event.id + 1
            changes = type(event) in MAY_BE_STRUCTURAL and is_structural(event)
            if changes or event.id in self._targets:
                self._show(plain, event.id)
                plain = []
                if self.version in self._targets:
                    self._earlier[self.version] = self._state, dict(self._order.places)
            if changes:
                self._change(event)
            elif event.shown:
                plain.append(event)
        self._show(plain, version)

    def result(self) -> Lifetimes:
        """Return the lifetimes so far. Cost: the events."""
        lives = {
            event_id: self._lifetime(event_id)
            for event_id in self._closed.keys() | self._open.keys()
        }
        return Lifetimes(
            self._conversation,
            self.version,
            [lives.get(event_id) or Lifetime(event_id) for event_id in range(self.version)],
            {summary: lives[summary] for summary in self._summaries},
            self._order.all(),
        )

    def _lifetime(self, event_id: int) -> Lifetime:
        spans = self._closed.get(event_id, ())
        if event_id in self._open:
            spans = (*spans, self._open[event_id].span())
        return Lifetime(
            event_id, spans, self._tokens.get(event_id, 0), self._returns.get(event_id, ())
        )

    def _show(self, plain: Sequence[Event], version: int) -> None:
        """Go on to ``version`` with events that are only added to the end."""
        before = len(self._state.items)
        self._state = resume(self._state, plain, version).state
        items = self._state.items[:]
        register = self._state.register
        for place, event in enumerate(items[before:], before):
            self._enter(event, event.id + 1)
            self._units.read((event,))
            changed = self._changed(event, place)
            if register is not None and (self._units.last_loop or self._units.has_parallel):
                # its summary has another place each time, and may end a loop or a response
                changed = None
            if changed is None:
                shown = items[: place + 1]
                self._send_fit(
                    event.id + 1, shown if register is None else insert_register(shown, register)
                )
            for member in changed or ():
                self._open[items[member].id].send(event.id + 1, sent=type(event) is not Action)

    def _changed(self, event: Event, place: int) -> Sequence[int] | None:
        """Return the places of the items that a model begins to be sent with the newest item, or
        ceases to be sent if that is an action. Return None if only the whole View can tell: where a
        tool loop may lose or gain more than these, and once events stay with the next event.
        """
        if self._units.has_bonds:
            return None
        calls = self._units.calls_of(place)
        if calls is None:
            if type(event) is Observation or is_unseen(event):
                return ()
            return (place,)
        members = calls.members
        is_action = type(event) is Action
        loop = self._units.last_loop
        if (
            is_action
            and loop[-1:] == [place] != loop
            and type(self._state.items[loop[-2]]) is Message
        ):
            before = next(
                each for each in reversed(loop) if each < place and self._units.calls_of(each)
            )
            # what was said since is of the loop now, and of a broken one
            if not self._is_sent(before):
                return None
        if (calls.unanswered != 1 or len(members) == 1) if is_action else calls.unanswered:
            return ()  # they were not sent before, and are not sent now
        if loop and members[0] <= loop[-1]:
            begins = loop[0] == members[0]
            ends = loop[-len(members) :] == members
            if is_action or not ends or not (begins or self._is_sent(loop[-len(members) - 1])):
                return None
        return members

    def _is_sent(self, place: int) -> bool:
        return len(self._open[self._state.items[place].id].sent) % 2 == 1

    def _change(self, event: Event) -> None:
        """Fold in one structural event, and compare the Views before and after it."""
        before = self._state.events
        version = event.id + 1
        if isinstance(event, Retraction):
            if target(event) not in self._earlier:
                raise LookupError(
                    f"retraction {event.id} returns to version {target(event)}, which was not kept"
                )
            earlier, self._order.places = self._earlier[target(event)]
            self._state, self._order.places = (
                replace(earlier, version=version),
                dict(self._order.places),
            )
        else:
            self._state = resume(self._state, (event,), version).state
        after = self._state.events
        ids = {one.id for one in after}
        departure = _departure(event)
        for one in before:
            if one.id not in ids:
                self._leave(one.id, event.id, departure)
        previous: int | None = None
        register = self._state.register
        for one in after:
            drifts = register is not None and one.id == register.summary.id
            index = register.offset if register is not None and drifts else None
            opened = self._open.get(one.id)
            if opened is None:
                self._enter(one, version, previous, index)
            elif one.id < 0 and (opened.index, opened.place) != (
                index,
                self._order.places.get(one.id),
            ):
                # A summary of the V0 dialect whose place becomes fixed, or is no longer fixed after
                # a retraction.
                self._leave(one.id, event.id, None)
                self._enter(one, version, previous, index)
            if not drifts:
                previous = one.id
        if isinstance(event, Retraction):
            self._explain_hidden(target(event), version)
        self._units = UnitsSoFar(self._state.left_behind)
        self._units.read(self._state.items[:])
        self._send_fit(version, after)

    def _explain_hidden(self, earlier: int, version: int) -> None:
        """Record which events are hidden for another reason after a retraction to an earlier
        version.
        """
        for event_id in self._closed.keys() - self._open.keys():
            life = self._lifetime(event_id)
            then = life.at(earlier)
            departure = then if then in ("summarized", "forgotten") else "taken back"
            if departure != life.at(version):
                self._returns[event_id] = (*life.returns, (version, departure))

    def _enter(
        self, event: Event, version: int, after: int | None = None, index: int | None = None
    ) -> None:
        opened = self._open[event.id] = _Open(version)
        if event.id < 0:
            self._summaries[event.id] = None
            if index is not None:
                opened.index = index
            elif event.id in self._order.places:  # a retraction brings it back
                opened.place = self._order.places[event.id]
            else:
                opened.place = self._order.put(event.id, after)
        if self._count is not None and event.id not in self._tokens:
            self._tokens[event.id] = self._count(event)

    def _leave(self, event_id: int, by: int, departure: Departure | None) -> None:
        opened = self._open.pop(event_id)
        self._closed[event_id] = (
            *self._closed.get(event_id, ()),
            opened.span(by + 1, by, departure),
        )

    def _send_fit(self, version: int, events: Sequence[Event]) -> None:
        """Update which of ``events``, a whole View, a model is sent."""
        if self._state.register is None:
            found = self._units.units()
        else:
            found = units(events, self._state.left_behind)
        fit = {events[place].id for place in fit_positions(found)}
        for event in events:
            self._open[event.id].send(version, sent=event.id in fit and not is_unseen(event))


def _departure(event: Event) -> Departure:
    if isinstance(event, Retraction):
        return "taken back"
    if isinstance(event, CondensationAction) and event.summary is not None:
        return "summarized"
    return "forgotten"


class _Open(msgspec.Struct, gc=False):
    """A span that has not ended."""

    start: int
    sent: tuple[int, ...] = ()
    place: int | None = None
    index: int | None = None

    def send(self, version: int, *, sent: bool) -> None:
        """Record that from this version on a model is sent the event, or is no longer sent it."""
        if sent == (len(self.sent) % 2 == 0):
            self.sent += (version,)

    def span(
        self, stop: int | None = None, by: int | None = None, departure: Departure | None = None
    ) -> Span:
        return Span(self.start, stop, by, departure, self.sent, self.place, self.index)


class _Order:
    """The places of summaries among the events. A summary has a second place if a retraction
    returned to a View in which its place was not fixed yet.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        """The place of each summary in the present View."""
        self._behind: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._count: Counter[int] = Counter()

    def put(self, summary: int, after: int | None) -> int:
        """Put a summary directly after another item of the present View. Summaries of earlier Views
        at that place come after it. Return the number of its place.
        """
        place = self.places[summary] = self._count[summary]
        self._count[summary] += 1
        anchor = NOT_RECORDED if after is None else after
        self._behind.setdefault((anchor, self.places.get(anchor, 0)), []).append((summary, place))
        return place

    def all(self) -> tuple[Standing, ...]:
        """Return each summary with the event before it, in the order of Views."""
        found: list[Standing] = []
        for anchor in sorted(anchor for anchor in self._behind if anchor[0] >= NOT_RECORDED):
            left = list(self._behind[anchor])
            while left:
                one = left.pop()
                found.append(Standing(*one, anchor[0]))
                left += self._behind.get(one, ())
        return tuple(found)
