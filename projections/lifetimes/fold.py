"""Compute, in one pass over a log, at which versions the View showed each event.

At each structural event, the usual fold makes the new View, which is compared with the View before
the event. Between structural events, events only join the end of the View.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count

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
from foldlog.eventstore.events import MAY_BE_STRUCTURAL, is_structural
from foldlog.projections.fold import EMPTY, ViewState, resume
from foldlog.projections.lifetimes import Departure, Lifetime, Lifetimes, Span, Standing
from foldlog.projections.retractions import target
from foldlog.projections.units import UnitsSoFar, fit_positions, has_no_message, units
from foldlog.projections.v0_dialect import insert_register

Count = Callable[[Event], int]


class LifetimesFold:
    """A computation of lifetimes in progress. Pass the events of a conversation to ``take`` in
    their order, in any number of parts.

    ``targets`` contains the version to which each retraction in the log returns. The fold keeps its
    state at each of these versions, because a retraction restores it.
    """

    def __init__(
        self, conversation: str, count: Count | None = None, targets: Iterable[int] = ()
    ) -> None:
        self._conversation = conversation
        self._count = count
        self._state = EMPTY
        self._targets = frozenset(targets)
        self._earlier: dict[int, tuple[ViewState, dict[int, int]]] = {0: (EMPTY, {})}
        self._open: dict[int, _OpenSpan] = {}
        self._closed: dict[int, tuple[Span, ...]] = {}
        self._returns: dict[int, tuple[tuple[int, Departure], ...]] = {}
        self._tokens: dict[int, int] = {}
        self._units = UnitsSoFar(EMPTY.left_behind)
        self._order = _Order()
        self._summaries: dict[int, None] = {}

    @property
    def version(self) -> int:
        """The number of events that were folded."""
        return self._state.version

    def take(self, events: Iterable[Event]) -> None:
        """Fold the next events. Raises ``UnknownEventType``. Raises ``LookupError`` at a retraction
        if ``targets`` lacks its version: fold all events again, with this version in ``targets``.
        Cost: one pass over the events. Each structural event also costs one pass over the View at
        its version.
        """
        plain: list[Event] = []
        version = self.version
        for event in events:
            version = event.id + 1
            changes_view = type(event) in MAY_BE_STRUCTURAL and is_structural(event)
            if changes_view or event.id in self._targets:
                self._show(plain, event.id)
                plain = []
                if self.version in self._targets:
                    self._earlier[self.version] = self._state, dict(self._order.places)
            if changes_view:
                self._change(event)
            elif event.shown:
                plain.append(event)
        self._show(plain, version)

    def result(self) -> Lifetimes:
        """Return the lifetimes of the events folded so far. Cost: one pass over the folded
        events.
        """
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
        """Return the lifetime so far of an event that was shown."""
        spans = self._closed.get(event_id, ())
        if event_id in self._open:
            spans = (*spans, self._open[event_id].span())
        return Lifetime(
            event_id, spans, self._tokens.get(event_id, 0), self._returns.get(event_id, ())
        )

    def _show(self, plain: Sequence[Event], version: int) -> None:
        """Add shown events that are not structural to the end of the View, up to ``version``."""
        count_before = len(self._state.items)
        self._state = resume(self._state, plain, version).state
        items = self._state.items[:]
        register = self._state.register
        for index, event in enumerate(items[count_before:], count_before):
            self._enter(event, event.id + 1)
            self._units.read((event,))
            changed = self._changed_by(event, index)
            if register is not None and (self._units.last_loop or self._units.has_parallel):
                # The summary in the register has no fixed place. The summary moves with each new
                # event, and may then end another loop or response. The whole View must be checked.
                changed = None
            if changed is None:
                shown: Sequence[Event] = items[: index + 1]
                if register is not None:
                    shown = insert_register(shown, register)
                self._send_fit(event.id + 1, shown)
                continue
            # An unanswered action is not sent, and neither are the other calls of its response.
            is_sent = type(event) is not Action
            for member in changed:
                self._open[items[member].id].send(event.id + 1, sent=is_sent)

    def _changed_by(self, event: Event, index: int) -> Sequence[int] | None:
        """Return the indices of the items that enter or leave the prompt because of the newest
        item. An action only makes items leave, and any other item only makes items enter.

        For most events, this method makes a check of the whole View unnecessary. It returns None if
        the check is needed: if the View has bonds, or if a tool loop may lose or gain further
        items.

        ``projections.units`` explains bonds, loops and parallel calls. In short, the actions of a
        response are sent to a model only together and with all their observations. A loop is sent
        only if it has no gap.
        """
        if self._units.has_bonds:
            return None
        calls = self._units.calls_of(index)
        if calls is None:
            # An observation that answers no action is never sent, and a message is sent
            # immediately.
            if type(event) is Observation or has_no_message(event):
                return ()
            return (index,)
        members = calls.members
        is_action = type(event) is Action
        loop = self._units.last_loop
        if is_action and self._follows_text(index):
            call_before = next(
                member
                for member in reversed(loop)
                if member < index and self._units.calls_of(member)
            )
            # The texts join the loop only now. If the loop is broken, the texts are no longer sent.
            if not self._is_sent(call_before):
                return None
        if is_action:
            # The new action is not sent yet. If the new action joins a response that was sent, the
            # items of that response are no longer sent.
            joins_sent_response = calls.unanswered == 1 and len(members) > 1
            if not joins_sent_response:
                return ()
        elif calls.unanswered:
            return ()  # The response is sent only with its last observation.
        is_in_loop = bool(loop) and members[0] <= loop[-1]
        if is_in_loop and (is_action or not self._continues(loop, members)):
            return None
        return members

    def _continues(self, loop: Sequence[int], members: Sequence[int]) -> bool:
        """Return whether the response is the end of the loop, and the rest of the loop is already
        sent. Then only the response enters the prompt.
        """
        if loop[-len(members) :] != members:
            return False
        return loop[0] == members[0] or self._is_sent(loop[-len(members) - 1])

    def _follows_text(self, index: int) -> bool:
        """Return whether the item at ``index`` joined the newest loop directly after a text."""
        loop = self._units.last_loop
        return len(loop) > 1 and loop[-1] == index and type(self._state.items[loop[-2]]) is Message

    def _is_sent(self, index: int) -> bool:
        """Return whether the item at ``index`` is in the prompt."""
        return self._open[self._state.items[index].id].is_sent

    def _change(self, event: Event) -> None:
        """Fold a structural event, and compare the View with the View before it."""
        before = self._state.events
        version = event.id + 1
        if isinstance(event, Retraction):
            if target(event) not in self._earlier:
                raise LookupError(
                    f"retraction {event.id} returns to version {target(event)}, which is not one of"
                    " the targets of this fold; begin again with this version among the targets"
                )
            earlier, places = self._earlier[target(event)]
            self._state = replace(earlier, version=version)
            self._order.places = dict(places)
        else:
            self._state = resume(self._state, (event,), version).state
        after = self._state.events
        ids = {shown.id for shown in after}
        departure = _departure(event)
        for shown in before:
            if shown.id not in ids:
                self._leave(shown.id, event.id, departure)
        previous_id: int | None = None
        register = self._state.register
        for shown in after:
            # The summary in the register has no fixed place, so every reading inserts it by its
            # index.
            is_in_register = register is not None and shown.id == register.summary.id
            index = register.offset if register is not None and is_in_register else None
            span = self._open.get(shown.id)
            place = self._order.places.get(shown.id)
            if span is None:
                self._enter(shown, version, previous_id, index)
            elif shown.id < 0 and (span.index, span.place) != (index, place):
                # The place of a summary of the V0 dialect becomes fixed, or a retraction makes it
                # variable again.
                self._leave(shown.id, event.id, None)
                self._enter(shown, version, previous_id, index)
            if not is_in_register:
                previous_id = shown.id
        if isinstance(event, Retraction):
            self._explain_hidden(target(event), version)
        self._units = UnitsSoFar(self._state.left_behind)
        self._units.read(self._state.items[:])
        self._send_fit(version, after)

    def _explain_hidden(self, earlier: int, version: int) -> None:
        """Note the new reason of each hidden event, after a retraction to the version ``earlier``
        that made ``version``.
        """
        for event_id in self._closed.keys() - self._open.keys():
            life = self._lifetime(event_id)
            former_moment = life.at(earlier)
            departure: Departure = "taken back"
            if former_moment in ("summarized", "forgotten"):
                departure = former_moment
            if departure != life.at(version):
                self._returns[event_id] = (*life.returns, (version, departure))

    def _enter(
        self, event: Event, version: int, after: int | None = None, index: int | None = None
    ) -> None:
        """Note that an item entered the View. ``after`` is the id of the item before a summary, and
        ``index`` is the index of a summary without a fixed place.
        """
        span = self._open[event.id] = _OpenSpan(version)
        if event.id < 0:
            self._summaries[event.id] = None
            if index is not None:
                span.index = index
            elif event.id in self._order.places:  # A retraction brings the summary back.
                span.place = self._order.places[event.id]
            else:
                span.place = self._order.put(event.id, after)
        if self._count is not None and event.id not in self._tokens:
            self._tokens[event.id] = self._count(event)

    def _leave(self, event_id: int, by: int, departure: Departure | None) -> None:
        """Note that the structural event ``by`` removed an item from the View."""
        span = self._open.pop(event_id)
        self._closed[event_id] = (
            *self._closed.get(event_id, ()),
            span.span(by + 1, by, departure),
        )

    def _send_fit(self, version: int, events: Sequence[Event]) -> None:
        """Note which items of the View are in the prompt, after a check of the whole View."""
        if self._state.register is None:
            view_units = self._units.units()
        else:
            view_units = units(events, self._state.left_behind)
        fit_ids = {events[position].id for position in fit_positions(view_units)}
        for event in events:
            self._open[event.id].send(
                version, sent=event.id in fit_ids and not has_no_message(event)
            )


def _departure(event: Event) -> Departure:
    """Return why items leave the View at a structural event."""
    if isinstance(event, Retraction):
        return "taken back"
    if isinstance(event, CondensationAction) and event.summary is not None:
        return "summarized"
    return "forgotten"


class _OpenSpan(msgspec.Struct, gc=False):
    """A ``Span`` without its end: the View still shows the item."""

    start: int
    sent: tuple[int, ...] = ()
    place: int | None = None
    index: int | None = None

    @property
    def is_sent(self) -> bool:
        """Whether the item is in the prompt. It enters and leaves the prompt in turn."""
        return len(self.sent) % 2 == 1

    def send(self, version: int, *, sent: bool) -> None:
        """Note whether the item is in the prompt from ``version`` on."""
        if sent != self.is_sent:
            self.sent += (version,)

    def span(
        self, stop: int | None = None, by: int | None = None, departure: Departure | None = None
    ) -> Span:
        return Span(self.start, stop, by, departure, self.sent, self.place, self.index)


class _Order:
    """The places of summaries among the events. A retraction to an earlier View may give a summary
    a second place.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self._after: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Maps the id and the place of an event or a summary to the ids and the places of the
        summaries that directly follow it.
        """
        self._numbers: defaultdict[int, Iterator[int]] = defaultdict(count)

    def put(self, summary: int, after: int | None) -> int:
        """Give a summary a new place after an event or a summary, or at the beginning. Return the
        number of the place.
        """
        place = self.places[summary] = next(self._numbers[summary])
        anchor = NOT_RECORDED if after is None else after
        self._after.setdefault((anchor, self.places.get(anchor, 0)), []).append((summary, place))
        return place

    def all(self) -> tuple[Standing, ...]:
        """Return all places, in the order of the Views."""
        standings: list[Standing] = []
        for anchor in sorted(anchor for anchor in self._after if anchor[0] >= NOT_RECORDED):
            # Depth first, because a summary is followed by the summaries that come directly after
            # it.
            stack = list(self._after[anchor])
            while stack:
                summary = stack.pop()
                standings.append(Standing(*summary, anchor[0]))
                stack += self._after.get(summary, ())
        return tuple(standings)
