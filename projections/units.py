"""Find the events of a View that belong together: actions with their observations, parallel calls,
and the steps of a tool loop.

A model refuses a conversation in which an action lacks its observation, an observation lacks its
action, or one of several parallel calls is missing. A model also refuses a loop that lost the
thinking at its beginning.

    observation      An observation with a ``cause`` answers that action, if the call ids are equal
                     and the action has no observation yet. An observation without a ``cause``
                     answers the first action with its call id, in the newest response with this
                     call id. An observation without an action is an orphan.
    parallel calls   Parallel calls are the actions of one model response, with their observations.
                     An action without a response id is a response of its own. Servers reuse ids, so
                     a response ends at an action with another response id, or with a call id that
                     was answered in this response. A summary also ends a response, if all calls of
                     the response are answered.
    bond             A bond consists of the agent's next event and an event that must stay with it.
                     Several events in a row that must stay with the next event form one bond. If no
                     event of the agent follows, the bond has only one event, which is never sent.
    loop             A loop starts with thinking: at an action with thinking, or at a bond of
                     several events. A loop continues over actions, observations, and the texts of a
                     reply before its actions. All other events end a loop, and so does the start of
                     the next loop. An orphan, or an event that is never sent to a model, does not
                     belong to a loop, and does not end a loop.

If a condensation forgot one event of a unit, the remaining events were *left behind*. Events left
behind do not belong to a unit any more.

Units are computed from a View's events in their order, and from the ids of events left behind.
Positions are indices into the View's events. Cost: one pass over the View's events, whatever the
length of the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from itertools import compress
from typing import Any, NamedTuple

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

_MAY_HAVE_NO_MESSAGE = frozenset({Annotation, UnknownEvent})


def has_no_message(event: Event) -> bool:
    """Return whether an event of a View cannot be written as a chat message. This is true for an
    event of unknown kind and for an imported annotation.
    """
    return type(event) in _MAY_HAVE_NO_MESSAGE and (
        event.origin is not None or type(event) is UnknownEvent
    )


def begins_reply(event: Event, before: Event | None = None) -> bool:
    """Return whether a reply of the model begins with ``event``. The result is False if ``event``
    belongs to the same reply as ``before``, an earlier event of the agent.
    """
    if not (isinstance(event, (Action, Message)) and event.source == "agent"):
        return False
    if before is None:
        return True
    replies_before = _replies_of(before)
    return not any(reply in replies_before for reply in _replies_of(event))


def _replies_of(event: Event) -> list[Any]:
    """Return the names of the reply to which an event belongs: a call names its response, and an
    imported event may name its reply in ``meta``.
    """
    replies = (getattr(event, "response_id", None), event.meta.get("reply"))
    return [reply for reply in replies if reply is not None]


class LaterReply(Struct):
    """Says whether the model was asked again after a call, so that nothing waits for the result of
    the call any more. Note all shown events in order.

    ``reply``   the ids of the reply with the newest call
    ``is_due``  whether a result, or a message to the agent, came after the newest call
    """

    reply: tuple[str | None, str | None] | None = None
    is_due: bool = False

    def note(self, event: Event) -> bool:
        """Return whether ``event`` is of a reply to a prompt without the open calls before it."""
        if begins_reply(event):
            names = getattr(event, "response_id", None), event.meta.get("reply")
            response_id, reply = (name if type(name) is str else None for name in names)
            return self.note_reply(response_id, reply, is_call=isinstance(event, Action))
        if isinstance(event, (Observation, Message)):
            self.is_due = True
        return False

    def note_reply(self, *reply: str | None, is_call: bool) -> bool:
        """Note a reply by the ids that it has: its response id, and its id in ``meta``. Replies
        with a common id are the same reply. Return as ``note`` does.
        """
        is_later = (
            self.reply is not None
            and self.is_due
            and not any(name is not None and name in self.reply for name in reply)
        )
        if is_call:
            self.reply = reply[0], reply[-1]
            self.is_due = False
        return is_later


class ParallelCalls(Struct, gc=False):
    """The actions of one response and their observations. ``members`` contains the positions of the
    actions and the observations in ascending order, beginning with an action. ``unanswered`` is the
    number of actions without an observation.
    """

    members: list[int]
    unanswered: int


class Units(NamedTuple):
    """The units of a View, as positions. Events left behind are in no unit.

    ``parallel_calls``  the parallel calls, in the order of their first actions
    ``answers``         maps the position of an answered action to the position of its observation
    ``loops``, ``orphans``, ``bonds``  each in ascending order of the positions
    ``seen``            the events that a model may see
    ``notes``           the annotations among ``seen``
    ``without_message``  the events that cannot be written as messages
    ``unanswered``      the number of actions without an observation
    """

    parallel_calls: Sequence[ParallelCalls]
    answers: Mapping[int, int]
    loops: Sequence[Sequence[int]]
    orphans: Sequence[int]
    seen: Sequence[int]
    bonds: Sequence[Sequence[int]]
    without_message: Sequence[int]
    unanswered: int
    notes: Sequence[int] = ()


def units(events: Sequence[Event], left_behind: Set[int] = frozenset()) -> Units:
    """Return the units of the events. ``left_behind`` contains the ids of events left behind."""
    so_far = UnitsSoFar(left_behind)
    so_far.read(events)
    return so_far.units()


class UnitsSoFar:
    """The units of a growing list of events. A View usually grows at its end. Only one thread at a
    time may use a ``UnitsSoFar``.

    A value that ``units`` returned never changes. If parallel calls or a loop grow, a new value
    takes the place of the old value.
    """

    def __init__(self, left_behind: Set[int]) -> None:
        self.left_behind = left_behind
        self.count = 0
        self._parallel_calls: list[ParallelCalls] = []
        self._answers: dict[int, int] = {}
        self._loops: list[list[int]] = []
        self._orphans: list[int] = []
        self._seen: list[int] = []
        self._without_message: list[int] = []
        self._notes: list[int] = []
        self._unanswered = 0
        self._waiting = WaitingCalls()
        self._calls_index: dict[int, int] = {}
        self._bonds: list[list[int]] = []
        self._bond: list[int] = []
        self._texts: list[tuple[int, Event]] = []
        """The agent's newest texts, with their positions. If actions of the same reply follow, the
        texts of the reply belong to the loop.
        """
        self._in_loop = False
        self.has_bonds = False
        self.has_parallel = False
        self._returned = 0
        """The number of parallel calls that ``units`` has returned. A caller has these parallel
        calls, so they must not be changed.
        """

    def read(self, events: Sequence[Event]) -> None:
        """Add the next events at the end."""
        for position, event in enumerate(events, self.count):
            if event.id not in self.left_behind:
                self._read(event, position)
        self.count += len(events)

    def _read(self, event: Event, position: int) -> None:
        """Add one event to its units, and then begin, continue or end a loop."""
        # The positions of the earlier events that stay with this event.
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
            if self._texts:
                self._end_texts(event, begins_loop=begins_loop)
        elif type(event) is Observation:
            if not self._answer(event, position):
                return  # an orphan neither belongs to a loop nor ends one
            if self._texts:
                # No action followed the texts, so they were the reply that ended the loop.
                self._in_loop = False
        elif not stayed:
            if self._in_loop and self._may_go_on(event):
                # The next action decides whether the text belongs to the loop.
                self._texts.append((position, event))
                return
            self._in_loop = False
            self._end_response(event)
        self._texts.clear()
        if begins_loop:
            self._loops.append([*stayed])
            self._in_loop = True
        if self._in_loop:
            self._loops[-1].append(position)

    def _see(self, event: Event, position: int) -> bool:
        """Note whether a model may see the event, and return whether it may."""
        if type(event) in _MAY_HAVE_NO_MESSAGE:
            if has_no_message(event):
                self._without_message.append(position)
                return False
            self._notes.append(position)
        self._seen.append(position)
        return True

    def _add_call(self, action: Action, position: int) -> None:
        """Add an action to the parallel calls of its response."""
        if self._waiting.add(action, position):
            self._parallel_calls.append(ParallelCalls([position], 1))
        else:
            self.has_parallel = True
            self._change(len(self._parallel_calls) - 1, position, 1)
        self._calls_index[position] = len(self._parallel_calls) - 1
        self._unanswered += 1

    def _answer(self, observation: Observation, position: int) -> bool:
        """Add an observation to its call. Return False if it has none, and so is an orphan."""
        call = self._waiting.take(observation)
        if call is None:
            self._orphans.append(position)
            return False
        self._answers[call] = position
        self._unanswered -= 1
        self._calls_index[position] = self._calls_index[call]
        self._change(self._calls_index[call], position, -1)
        return True

    def _end_texts(self, action: Action, *, begins_loop: bool) -> None:
        """Decide about the texts before an action. If the action belongs to the same reply, the
        texts belong to the loop. If not, the loop has ended.
        """
        if self._in_loop and not begins_loop and not begins_reply(action, self._texts[-1][1]):
            self._loops[-1] += [spoken for spoken, _ in self._texts]
        else:
            self._in_loop = False

    def _may_go_on(self, event: Event) -> bool:
        """Return whether the loop may continue after the event: only if the event is a text of the
        agent, and belongs to the reply of the previous texts.
        """
        return begins_reply(event) and not (self._texts and begins_reply(event, self._texts[-1][1]))

    def _end_response(self, event: Event) -> None:
        """End the newest response if the event is a summary and all its calls are answered."""
        is_summary = type(event) is CondensationSummary
        if is_summary and self._parallel_calls and not self._parallel_calls[-1].unanswered:
            self._waiting.response_id = None

    def _bind(self, event: Event, position: int) -> Sequence[int]:
        """Return the positions of the earlier events that stay with this event."""
        self.has_bonds = True
        if event.source != "agent":
            # Each of the previous events becomes a bond of one event, because the next event is not
            # the agent's.
            self._bonds += ([stranded] for stranded in self._bond)
            self._bond = []
        stayed = self._bond
        self._bond = [*self._bond, position] if event.stays_with_next else []
        if event.stays_with_next or not stayed:
            return ()
        self._bonds.append([*stayed, position])
        return stayed

    def _change(self, index: int, position: int, unanswered: int) -> None:
        """Add a position to the parallel calls at ``index``, and ``unanswered`` to their number of
        unanswered calls.
        """
        # Parallel calls that ``units`` has returned must not change, so a copy replaces them.
        calls = self._parallel_calls[index]
        if index < self._returned:
            calls = self._parallel_calls[index] = ParallelCalls(
                calls.members.copy(), calls.unanswered
            )
        calls.members.append(position)
        calls.unanswered += unanswered

    def calls_of(self, position: int) -> ParallelCalls | None:
        """Return the parallel calls to which the event at ``position`` belongs, or None."""
        index = self._calls_index.get(position)
        return None if index is None else self._parallel_calls[index]

    @property
    def last_loop(self) -> Sequence[int]:
        """The positions of the newest loop, which may continue."""
        return self._loops[-1] if self._loops else ()

    def units(self) -> Units:
        """Return the units of the events that were read so far."""
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
            [*self._bonds, *([position] for position in self._bond)],
            self._without_message.copy(),
            self._unanswered,
            self._notes.copy(),
        )


class WaitingCalls:
    """The unanswered actions in a growing list of events."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, str | None]] = {}
        self._by_call_id: dict[str | None, list[int]] = {}
        """Maps a call id to the event ids of its actions. An observation without a cause answers
        the last of these actions that is unanswered.
        """
        self.response_id: str | None = None
        self._first_of_response = 0
        self._answered = set[str]()

    def add(self, action: Action, position: int) -> bool:
        """Add an action. Return whether it begins a new response."""
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
        """Remove the action that an observation answers, and return its position. Return None if no
        action waits for this observation.
        """
        call_id = observation.call_id
        event_id = observation.cause
        if event_id is None:
            same = self._by_call_id.get(call_id, [])
            # An action that an observation answered by its event id is still in this list.
            while same and same[-1] not in self.waiting:
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


def fit_positions(view_units: Units) -> list[int]:
    """Return the ascending positions of the events that can be sent to a model. Parallel calls are
    sent only if they are complete and answered, and loops only if they are complete.

    Events left behind, orphans, and parallel calls with an unanswered call are dropped. Then
    parallel calls and bonds that lost a member are dropped, again and again, until nothing changes.
    Last, a loop is dropped if one of its events was dropped and a later event of the loop remains.
    A loop that lost only calls at its end is not dropped.
    """
    if not (view_units.unanswered or view_units.orphans or view_units.bonds):
        return sorted([*view_units.seen, *view_units.without_message])
    fit = set(view_units.seen).difference(view_units.orphans)
    fit.update(view_units.without_message)
    fit.difference_update(
        *(calls.members for calls in view_units.parallel_calls if calls.unanswered)
    )
    answered = [calls.members for calls in view_units.parallel_calls if not calls.unanswered]
    parts = [*answered, *view_units.bonds]
    fit.difference_update(*(bond for bond in view_units.bonds if len(bond) == 1))
    shrinking = True
    while shrinking:
        before = len(fit)
        fit.difference_update(*(members for members in parts if not fit.issuperset(members)))
        # Whether a loop is broken depends on the events that remain, so loops are checked last.
        if len(fit) == before:
            fit.difference_update(*(loop for loop in view_units.loops if _is_broken(loop, fit)))
        shrinking = len(fit) < before
    return sorted(fit)


def _is_broken(loop: Sequence[int], fit: set[int]) -> bool:
    """Return whether the surviving events of a loop are not simply its beginning."""
    surviving = [index for index, position in enumerate(loop) if position in fit]
    return bool(surviving) and surviving[-1] >= len(surviving)


def open_positions(events: Sequence[Event], view_units: Units) -> list[int]:
    """Return the ascending positions of the actions that no observation answers."""
    if not view_units.unanswered:
        return []
    return sorted(
        position
        for calls in view_units.parallel_calls
        if calls.unanswered
        for position in calls.members
        if type(events[position]) is Action and position not in view_units.answers
    )


def awaited_positions(events: Sequence[Event], view_units: Units) -> list[int]:
    """Return the positions of the open calls for whose results something waits: no later reply of
    the model came after them.
    """
    open_calls = open_positions(events, view_units)
    if not open_calls:
        return []
    later = LaterReply()
    left_before = max((at for at, event in enumerate(events) if later.note(event)), default=0)
    return [position for position in open_calls if position >= left_before]


def pending_positions(view_units: Units) -> Sequence[int]:
    """Return the positions of the parallel calls that wait for an observation, together with their
    present observations.

    Parallel calls wait if one of the calls is unanswered, and no other event comes between them or
    after them. Orphans and annotations do not end the waiting: an observation may arrive twice, and
    a runtime may add notes. If other events follow unanswered calls, the unanswered calls are
    abandoned.
    """
    if not view_units.unanswered:
        return []
    passed_over = {*view_units.orphans, *view_units.notes}
    followers = (
        [position for position in view_units.seen if position not in passed_over]
        if passed_over
        else view_units.seen
    )
    for calls in reversed(view_units.parallel_calls):
        if calls.unanswered and followers[-len(calls.members) :] == calls.members:
            return calls.members
    return []


def cut_positions(count: int, view_units: Units) -> tuple[int, ...]:
    """Return all indices, from 0 to ``count``, at which a View of ``count`` events may be cut. If
    the events between two returned indices are forgotten, all other events can still be sent.
    ``docs/internals/decisions/0031-joined-loops.md`` describes the exceptions.

    No returned index is inside answered parallel calls, from the first action to the last
    observation, or inside a loop or a bond. The index ``count`` is left out if the last event must
    stay with the next event. No index after the start of *pending* parallel calls is returned, so
    that no action is forgotten before its observation. Abandoned calls do not matter.
    """
    free = bytearray(b"\1") * (count + 1)
    for calls in view_units.parallel_calls:
        if not calls.unanswered:
            first = calls.members[0]
            last = calls.members[-1]
            free[first + 1 : last + 1] = bytes(last - first)
    spans = [(span[0], span[-1]) for span in (*view_units.loops, *view_units.bonds)]
    # The last bond and pending calls continue with future events.
    if view_units.bonds and view_units.bonds[-1] == [count - 1]:
        spans.append((count - 1, count))
    pending = pending_positions(view_units)
    if pending:
        spans.append((pending[0], count))
    for first, last in spans:
        free[first + 1 : last + 1] = bytes(last - first)
    return tuple(compress(range(count + 1), free))
