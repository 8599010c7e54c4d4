"""Find the events of a View that belong together: actions with their observations, parallel calls,
the steps of a tool loop.

A model refuses a conversation in which an action has no observation, an observation has no action,
one of several parallel calls is missing, or a loop has lost the thinking that it began with. So
everything that forgets must know these units.

    observation      answers the action that is its ``cause``, if it waits and has its call id;
                     without a ``cause``
                     the first of the newest response with its call id. One that answers none is an
                     orphan.
    parallel calls   the actions of one model response, with their observations. An action without a
                     response id is
                     alone. Servers repeat ids: a response ends at an action with another response
                     id, or with a call id that the response has an answer for; at a summary, too,
                     if none of its calls waits.
    bond             an event that stays with the next, and the next one, if the agent said or did
                     it; several in a row
                     are one bond. Without such a next event it is a bond of one, which is never
                     sent.
    loop             starts with thinking: at an action that has it, or at a bond of several events.
                     It runs through
                     actions, observations, and what a reply says before its actions; it ends at any
                     other event, and where another loop starts. Orphans, and what no model sees,
                     neither belong to it nor end it.

Events that were *left behind*, when a condensation forgot another part of their unit, do not belong
to a unit any more.

Units are of a View's events in order and the ids of those left behind; positions are indices into
these events. Cost: the events given, once, whatever the length of the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from itertools import compress
from typing import NamedTuple

from msgspec import Struct

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    Event,
    Message,
    Observation,
    UnknownEvent,
)

_MAY_BE_UNSEEN = frozenset({Annotation, UnknownEvent})


def is_unseen(event: Event) -> bool:
    """Return whether an event has no form as a chat message, though its writer said that a View
    shows it: one of an unknown kind, or a part of another runtime's history that only its own
    format knows. An annotation of one's own has.
    """
    return type(event) in _MAY_BE_UNSEEN and (
        event.origin is not None or type(event) is UnknownEvent
    )


def begins_reply(event: Event, before: Event | None = None) -> bool:
    """Return whether the model was called for this event, after it said ``before``, which may be of
    the same reply.
    """
    if not (isinstance(event, (Action, Message)) and event.source == "agent"):
        return False
    if before is None:
        return True
    own, other = (
        (getattr(each, "response_id", None), each.meta.get("reply")) for each in (event, before)
    )
    return not any(reply is not None and reply in other for reply in own)


class ParallelCalls(Struct, gc=False):
    """The actions of one response and their observations: ``members`` are positions, ascending, an
    action first.
    """

    members: list[int]
    unanswered: int


class Units(NamedTuple):
    """Parallel calls in the order of their first actions; ``answers`` are the observations by their
    actions; loops, orphans and bonds are ascending. Of the positions that are not left behind,
    ``seen`` are those that a model may see, ``unseen`` those of kinds without a form as messages.
    ``unanswered`` is the number of actions without an observation; ``notes`` are annotations that a
    model sees.
    """

    parallel_calls: Sequence[ParallelCalls]
    answers: Mapping[int, int]
    loops: Sequence[Sequence[int]]
    orphans: Sequence[int]
    seen: Sequence[int]
    bonds: Sequence[Sequence[int]]
    unseen: Sequence[int]
    unanswered: int
    notes: Sequence[int] = ()


def units(events: Sequence[Event], left_behind: Set[int] = frozenset()) -> Units:
    """Return the units of a View."""
    so_far = UnitsSoFar(left_behind)
    so_far.read(events)
    return so_far.units()


class UnitsSoFar:
    """The units of a growing list of events: a View mostly grows at its end. One thread at a time
    may use it.

    What ``units`` returned stays as it is: parallel calls and loops that go on are replaced, and
    not changed.
    """

    def __init__(self, left_behind: Set[int]) -> None:
        self.left_behind = left_behind
        self.count = 0
        """The number of events that were read."""
        self._parallel_calls: list[ParallelCalls] = []
        self._answers: dict[int, int] = {}
        self._loops: list[list[int]] = []
        self._orphans: list[int] = []
        self._seen: list[int] = []
        self._unseen: list[int] = []
        self._notes: list[int] = []
        self._unanswered = 0
        self._waiting = WaitingCalls()
        self._place: dict[int, int] = {}
        """The index of the parallel calls that a position is a member of."""
        self._bonds: list[list[int]] = []
        self._bond: list[int] = []
        """The last events, which stay with the next one."""
        self._said: list[tuple[int, Event]] = []
        """The agent's last words, which are of the loop if actions of the same reply follow."""
        self._in_loop = self.has_bonds = self.has_parallel = False
        self._returned = 0

    def read(self, events: Sequence[Event]) -> None:
        """Read the next events. Cost: these."""
        for position, event in enumerate(events, self.count):
            if event.id not in self.left_behind:
                self._read(event, position)
        self.count += len(events)

    def _read(self, event: Event, position: int) -> None:
        if event.stays_with_next or self._bond:
            stayed = self._bind(event, position)
        else:
            stayed = ()
        if not self._see(event, position) and not stayed:
            return
        begins_loop = bool(stayed)
        if type(event) is Action:
            self._add_call(event, position)
            begins_loop = begins_loop or bool(event.thinking)
            if self._said:
                self._end_words(event, begins_loop=begins_loop)
        elif type(event) is Observation:
            if not self._answer(event, position):
                return
            if self._said:
                self._in_loop = False
        elif not stayed:
            if self._in_loop and self._may_go_on(event):
                self._said.append((position, event))
                return
            self._in_loop = False
            self._end_response(event)
        self._said.clear()
        if begins_loop:
            self._loops.append([*stayed])
            self._in_loop = True
        if self._in_loop:
            self._loops[-1].append(position)

    def _see(self, event: Event, position: int) -> bool:
        """Return whether a model may see an event."""
        if type(event) in _MAY_BE_UNSEEN:
            if is_unseen(event):
                self._unseen.append(position)
                return False
            self._notes.append(position)
        self._seen.append(position)
        return True

    def _add_call(self, action: Action, position: int) -> None:
        if self._waiting.add(action, position):
            self._parallel_calls.append(ParallelCalls([position], 1))
        else:
            self.has_parallel = True
            self._change(len(self._parallel_calls) - 1, position, 1)
        self._place[position] = len(self._parallel_calls) - 1
        self._unanswered += 1

    def _answer(self, observation: Observation, position: int) -> bool:
        """Add an observation to the calls that it answers. Return False for an orphan."""
        call = self._waiting.take(observation)
        if call is None:
            self._orphans.append(position)
            return False
        self._answers[call] = position
        self._unanswered -= 1
        self._place[position] = self._place[call]
        self._change(self._place[call], position, -1)
        return True

    def _end_words(self, action: Action, *, begins_loop: bool) -> None:
        """Read an action after words of the agent: they are of the loop if it is of the same
        reply.
        """
        if self._in_loop and not begins_loop and not begins_reply(action, self._said[-1][1]):
            self._loops[-1] += [place for place, _ in self._said]
        else:
            self._in_loop = False

    def _may_go_on(self, event: Event) -> bool:
        """Return whether the loop may go on after an event: after words of one reply."""
        return begins_reply(event) and not (self._said and begins_reply(event, self._said[-1][1]))

    def _end_response(self, event: Event) -> None:
        """End the newest response where a summary follows it and no call of it waits."""
        is_summary = type(event) is CondensationSummary
        if is_summary and self._parallel_calls and not self._parallel_calls[-1].unanswered:
            self._waiting.response_id = None

    def _bind(self, event: Event, position: int) -> Sequence[int]:
        """Read an event that stays with the next, or that others may stay with. Return these
        others.
        """
        self.has_bonds = True
        if event.source != "agent":
            self._bonds += ([each] for each in self._bond)  # they are without their follower
            self._bond = []
        stayed = self._bond
        self._bond = [*self._bond, position] if event.stays_with_next else []
        if event.stays_with_next or not stayed:
            return ()
        self._bonds.append([*stayed, position])
        return stayed

    def _change(self, place: int, position: int, unanswered: int) -> None:
        """Add a member to parallel calls, which are replaced if ``units`` returned them before."""
        calls = self._parallel_calls[place]
        if place < self._returned:
            calls = self._parallel_calls[place] = ParallelCalls(
                calls.members.copy(), calls.unanswered
            )
        calls.members.append(position)
        calls.unanswered += unanswered

    def calls_of(self, position: int) -> ParallelCalls | None:
        """Return the parallel calls that a position is a member of, if it is of any."""
        place = self._place.get(position)
        return None if place is None else self._parallel_calls[place]

    @property
    def last_loop(self) -> Sequence[int]:
        """The newest loop, which may go on; empty if there is none."""
        return self._loops[-1] if self._loops else ()

    def units(self) -> Units:
        """Return the units of all events that were read."""
        loops = self._loops.copy()
        self._returned = len(self._parallel_calls)
        if self._in_loop:
            self._loops[-1] = self._loops[-1].copy()
        return Units(
            self._parallel_calls.copy(),
            self._answers.copy(),
            loops,
            self._orphans.copy(),
            self._seen.copy(),
            [*self._bonds, *([each] for each in self._bond)],
            self._unseen.copy(),
            self._unanswered,
            self._notes.copy(),
        )


class WaitingCalls:
    """The actions of a growing list of events that wait for an observation."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, str | None]] = {}
        """Their positions and call ids, by their event ids."""
        self._by_call_id: dict[str, list[int]] = {}
        """The event ids of actions with the same call id; the next that is answered is the last."""
        self.response_id: str | None = None
        """That of the newest response; None once it has ended."""
        self._first_of_response = 0
        self._answered = set[str]()
        """The call ids of its actions that were answered."""

    def add(self, action: Action, position: int) -> bool:
        """Add the next action. Return whether it begins a response."""
        call_id = action.call_id
        response_id = action.response_id
        begins = response_id is None or response_id != self.response_id or call_id in self._answered
        if begins:
            self.response_id = response_id
            self._first_of_response = action.id
            self._answered.clear()
        self.waiting[action.id] = position, call_id
        if call_id is not None:
            same = self._by_call_id.setdefault(call_id, [])
            same.insert(bisect_left(same, self._first_of_response), action.id)
        return begins

    def take(self, observation: Observation) -> int | None:
        """Return the position of the action that ``observation`` answers. That action waits no
        longer.
        """
        call_id = observation.call_id
        event_id = observation.cause
        if event_id is None and call_id is not None:
            same = self._by_call_id.get(call_id, [])
            while same and same[-1] not in self.waiting:  # answered by its event id
                same.pop()
            event_id = same[-1] if same else None
        if (
            event_id is None
            or event_id not in self.waiting
            or call_id not in (None, self.waiting[event_id][1])
        ):
            return None
        position, called = self.waiting.pop(event_id)
        if called is not None and event_id >= self._first_of_response:
            self._answered.add(called)
        return position


def fit_positions(found: Units) -> list[int]:
    """Return the positions that can be sent to a model, ascending: whole, answered parallel calls
    and whole loops.

    Dropped are events left behind, orphans, all parallel calls of which one is unanswered, and
    then, until nothing changes, parallel calls and bonds that lost a member, and each loop that
    lost an event before its last surviving member. A call that waits at the end of a loop costs the
    loop nothing.
    """
    if not (found.unanswered or found.orphans or found.bonds):
        return sorted([*found.seen, *found.unseen])
    kept = set(found.seen).difference(found.orphans)
    kept.update(found.unseen)
    kept.difference_update(*(calls.members for calls in found.parallel_calls if calls.unanswered))
    answered = [calls.members for calls in found.parallel_calls if not calls.unanswered]
    shrinking = True
    while shrinking:
        before = len(kept)
        broken = [loop for loop in found.loops if _is_broken(loop, kept)]
        broken += [members for members in answered if not kept.issuperset(members)]
        broken += [bond for bond in found.bonds if len(bond) == 1 or not kept.issuperset(bond)]
        kept.difference_update(*broken)
        shrinking = len(kept) < before
    return sorted(kept)


def _is_broken(loop: Sequence[int], kept: set[int]) -> bool:
    """Return whether a dropped member comes before the last kept member."""
    surviving = [place for place, position in enumerate(loop) if position in kept]
    return bool(surviving) and surviving[-1] >= len(surviving)


def open_positions(events: Sequence[Event], found: Units) -> list[int]:
    """Return the positions of the actions that no observation answers, ascending. Cost: the
    parallel calls that they are among.
    """
    if not found.unanswered:
        return []
    return sorted(
        position
        for calls in found.parallel_calls
        if calls.unanswered
        for position in calls.members
        if type(events[position]) is Action and position not in found.answers
    )


def pending_positions(found: Units) -> Sequence[int]:
    """Return the positions of the parallel calls that wait for an observation, with the
    observations that came.

    Calls wait if one of them is unanswered and only their own members come after them. Orphans and
    annotations do not count: neither an observation that is delivered twice nor a note of the
    runtime ends the waiting. Unanswered calls that other events follow are abandoned.
    """
    if not found.unanswered:
        return []
    aside = {*found.orphans, *found.notes}
    followers = (
        [position for position in found.seen if position not in aside] if aside else found.seen
    )
    for calls in reversed(found.parallel_calls):
        if calls.unanswered and followers[-len(calls.members) :] == calls.members:
            return calls.members
    return []


def cut_positions(count: int, found: Units) -> tuple[int, ...]:
    """Return every index, from 0 to ``count``, at which ``count`` events may be cut, given their
    units. If the events between two such indices are forgotten, all other events can still be sent
    (except in one case: ``docs/internals/decisions/0031-joined-loops.md``).

    Such an index is not inside parallel calls, from their first action to their last observation;
    not inside a loop or a bond; and not after a last event that stays with the next one. It is not
    after the start of *pending* parallel calls either, so that an action is never forgotten before
    its observation comes. Unanswered calls that are abandoned forbid no index.
    """
    free = bytearray(b"\1") * (count + 1)
    for calls in found.parallel_calls:
        if not calls.unanswered:
            first = calls.members[0]
            last = calls.members[-1]
            free[first + 1 : last + 1] = bytes(last - first)
    spans = [(span[0], span[-1]) for span in (*found.loops, *found.bonds)]
    spans += [(bond[0], count) for bond in found.bonds[-1:] if bond == [count - 1]]
    spans += [(pending[0], count) for pending in [pending_positions(found)] if pending]
    for first, last in spans:
        free[first + 1 : last + 1] = bytes(last - first)
    return tuple(compress(range(count + 1), free))
