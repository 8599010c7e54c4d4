"""Find in one pass over a log at which versions its View showed each event.

The usual fold makes the View at each structural event; the states before and after it are compared. Between structural
events, events are only added to the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from eventstore import NOT_RECORDED, Action, CondensationAction, Event, Observation, Retraction, is_structural
from eventstore.events import MAY_BE_STRUCTURAL
from projections.fold import EMPTY, ViewState, resume
from projections.lifetimes import Departure, Lifetime, Lifetimes, Span, Standing
from projections.retractions import target
from projections.units import UNSEEN, WaitingCalls, fit_positions, units
from projections.v0_dialect import insert_register

Count = Callable[[Event], int]
"""A function that gives the tokens of an event."""


class LifetimesFold:
    """A fold in progress: give it the events of a conversation in order, in any number of parts.

    ``targets`` are the versions that retractions of the log return to; the states there are kept.
    """

    def __init__(self, conversation: str, count: Count | None = None, targets: Iterable[int] = ()) -> None:
        self._conversation = conversation
        self._count = count
        self._state = EMPTY
        self._targets = frozenset(targets)
        self._earlier: dict[int, tuple[ViewState, dict[int, int]]] = {0: (EMPTY, {})}
        self._open: dict[int, _Open] = {}
        self._closed: dict[int, tuple[Span, ...]] = {}
        self._tokens: dict[int, int] = {}
        self._waiting = _Waiting()
        self._order = _Order()
        self._summaries: dict[int, None] = {}

    @property
    def version(self) -> int:
        """The number of events that were taken."""
        return self._state.version

    def take(self, events: Iterable[Event]) -> None:
        """Take the next events. Raises ``UnknownEventType``, and ``LookupError`` at a retraction to a version that is
        not among the targets: then begin again with the first event and with that target. Cost: the events, and for
        each structural one the View at that moment.
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
        lives = {event_id: self._lifetime(event_id) for event_id in self._closed.keys() | self._open.keys()}
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
        return Lifetime(event_id, spans, self._tokens.get(event_id, 0))

    def _show(self, plain: Sequence[Event], version: int) -> None:
        """Go on to ``version`` with events that are only added to the end."""
        before = len(self._state.items)
        self._state = resume(self._state, plain, version).state
        for place, event in enumerate(self._state.items[before:], before):
            self._enter(event, event.id + 1)
            changed = self._waiting.add(event)
            register = self._state.register
            if register is not None and (
                changed is None or self._waiting.has_loops
            ):  # its summary has another place each time
                self._send_fit(event.id + 1, insert_register(self._state.items[: place + 1], register))
                continue
            if changed is None:
                self._send_fit(event.id + 1, self._state.items[: place + 1])
            for event_id, sent in changed or ():
                self._open[event_id].send(event.id + 1, sent=sent)

    def _change(self, event: Event) -> None:
        """Fold in one structural event, and compare the Views before and after it."""
        before, version = self._state.events, event.id + 1
        if isinstance(event, Retraction):
            if target(event) not in self._earlier:
                raise LookupError(f"retraction {event.id} returns to version {target(event)}, which was not kept")
            earlier, self._order.places = self._earlier[target(event)]
            self._state, self._order.places = replace(earlier, version=version), dict(self._order.places)
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
            elif one.id < 0 and (opened.index, opened.place) != (index, self._order.places.get(one.id)):
                # A summary of the V0 dialect whose place becomes fixed, or is no longer fixed after a retraction.
                self._leave(one.id, event.id, None)
                self._enter(one, version, previous, index)
            if not drifts:
                previous = one.id
        self._waiting = _Waiting(after, self._state.left_behind)
        self._send_fit(version, after)

    def _enter(self, event: Event, version: int, after: int | None = None, index: int | None = None) -> None:
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
        self._closed[event_id] = (*self._closed.get(event_id, ()), opened.span(by + 1, by, departure))

    def _send_fit(self, version: int, events: Sequence[Event]) -> None:
        """Update which of ``events``, a whole View, a model is sent."""
        fit = {events[place].id for place in fit_positions(units(events, self._state.left_behind))}
        for event in events:
            self._open[event.id].send(version, sent=event.id in fit and type(event) not in UNSEEN)


def _departure(event: Event) -> Departure:
    if isinstance(event, Retraction):
        return "taken back"
    return "summarized" if isinstance(event, CondensationAction) and event.summary is not None else "forgotten"


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

    def span(self, stop: int | None = None, by: int | None = None, departure: Departure | None = None) -> Span:
        return Span(self.start, stop, by, departure, self.sent, self.place, self.index)


class _Order:
    """The places of summaries among the events. A summary has a second place if a retraction returned to a View in
    which its place was not fixed yet.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        """The place of each summary in the present View."""
        self._behind: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._count: Counter[int] = Counter()

    def put(self, summary: int, after: int | None) -> int:
        """Put a summary directly after another item of the present View. Summaries of earlier Views at that place come
        after it. Return the number of its place.
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


class _Group:
    """The actions of one response and their observations, by id; ``loops`` are the tool loops of its members, some of
    which may be ``outside`` of any loop.
    """

    __slots__ = ("loops", "members", "outside", "unanswered")

    def __init__(self) -> None:
        self.members: list[int] = []
        self.unanswered = 0
        self.loops: frozenset[int] = frozenset()
        self.outside = False


_NO_LOOP = 0


class _Waiting:
    """The calls of a View that wait for their observations: the units of ``projections.units``, found event by
    event.
    """

    def __init__(self, events: Sequence[Event] = (), left_behind: frozenset[int] = frozenset()) -> None:
        """Start with the events of a View."""
        self._calls = WaitingCalls()
        self._of_response: dict[str, _Group] = {}
        self._of_call: dict[int, _Group] = {}
        self._loops = self._loop = _NO_LOOP
        self._open: Counter[int] = Counter()
        self._odd: set[int] = set()
        self._bound = False
        for event in events:
            if event.id not in left_behind:
                self.add(event)

    @property
    def has_loops(self) -> bool:
        return self._loops != _NO_LOOP

    def add(self, event: Event) -> Sequence[tuple[int, bool]] | None:
        """Add the next event. Return the ids that a model begins or ceases to be sent; None if only the whole View can
        tell: in a tool loop that lost a call, and once events stay with the next event.
        """
        self._bound = self._bound or event.stays_with_next
        sent = self._add(event)
        return None if self._bound else sent

    def _add(self, event: Event) -> Sequence[tuple[int, bool]] | None:
        if type(event) is Action:
            return self._add_action(event)
        if type(event) is Observation:
            return self._add_observation(event)
        if type(event) in UNSEEN:
            return ()
        self._loop = _NO_LOOP
        return ((event.id, True),)

    def _join(self, group: _Group) -> None:
        """Record that a member of a group is in the present loop, or outside of any."""
        if self._loop == _NO_LOOP:
            group.outside |= bool(group.loops)
        elif self._loop not in group.loops:
            group.outside |= bool(group.members) and not group.loops
            group.loops |= {self._loop}
            self._open[self._loop] += 1

    def _add_action(self, action: Action) -> Sequence[tuple[int, bool]] | None:
        if action.thinking:
            self._loops += 1
            self._loop = self._loops
        group = None if action.response_id is None else self._of_response.get(action.response_id)
        if group is None:
            group = _Group()
            if action.response_id is not None:
                self._of_response[action.response_id] = group
        was_sent = bool(group.members) and not group.unanswered
        if was_sent:
            self._open.update(group.loops)
        self._join(group)
        group.members.append(action.id)
        group.unanswered += 1
        self._of_call[action.id] = group
        self._calls.add(action, action.id)
        if not was_sent:
            return ()
        self._odd |= group.loops
        return None if group.loops else [(member, False) for member in group.members]

    def _add_observation(self, observation: Observation) -> Sequence[tuple[int, bool]] | None:
        call = self._calls.take(observation)
        if call is None:
            return ()
        group = self._of_call[call]
        self._join(group)
        group.members.append(observation.id)
        group.unanswered -= 1
        if group.unanswered:
            return ()
        if group.loops:
            self._open.subtract(group.loops)
            late = {loop for loop in group.loops if self._open[loop]}
            self._odd |= late
            if late or group.outside or len(group.loops) > 1 or group.loops & self._odd:
                return None
        return [(member, True) for member in group.members]
