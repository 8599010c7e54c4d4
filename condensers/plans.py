"""A condensation that was decided but not yet appended, and the check whether it still holds after newer events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from condensers.errors import CondenserError
from eventstore import Action, CondensationAction, Event, Observation, Retraction, is_structural
from projections import View
from projections.units import pending_positions, units


class Outdated(CondenserError):
    """A plan does not fit the events that other writers appended since. It was not appended; plan again."""


@dataclass(frozen=True, slots=True)
class _Traces:
    """The ties of the forgotten events to later events: their ids, calls, responses, tool loop, or bond.

    The calls of one response are sent together or not at all, so ``ids`` and ``call_ids`` include those of calls that
    stay. ``reaches_open_loop``: whether the plan changes the tool loop that later calls would join.
    ``reaches_open_bond``: the same for the events that stay with the next one. ``summaries_move``: whether the View
    holds summaries, or gets one; later events may be placed before them, and so split or join a loop or a bond.
    """

    ids: frozenset[int]
    call_ids: frozenset[str | None]
    response_ids: frozenset[str | None]
    reaches_open_loop: bool
    reaches_open_bond: bool
    summaries_move: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A condensation ``action`` to append after ``view``. If it forgets nothing, it only fulfils a request."""

    action: CondensationAction
    view: View
    _traces: _Traces | None = field(default=None, repr=False)

    def forgets_something(self) -> bool:
        """Return whether the plan forgets an event of the log that the View shows."""
        ids = _named(self.action)
        return any(event.id in ids and event.id >= 0 for event in self.view.events)

    def after(self, meanwhile: Sequence[Event]) -> Plan:
        """Return this plan for the View after these events. Raises ``Outdated`` if the plan no longer holds.

        The plan holds if there was no other condensation and no retraction, if the events to forget are still shown, if
        every event that stays is still sent to the model, and if no part of an open call is forgotten. A request or a
        declined condensation in between does not matter. Cost: the events, and a copy of the View; the first time, and
        if one of the events may be tied to the forgotten ones, also the units of the View.
        """
        traces = self._traces or _traces(self.action, self.view)
        view = self.view.then(meanwhile)
        if any(_bears_on(event, traces) for event in meanwhile):
            _check(self.action, meanwhile, view)
        return Plan(self.action, view, traces)


def _traces(action: CondensationAction, view: View) -> _Traces:
    ids = _named(action)
    calls = [event for event in view.events if isinstance(event, Action)]
    responses = {call.response_id for call in calls if call.id in ids} - {None}
    touched = [call for call in calls if call.id in ids or call.response_id in responses]
    after = view.then((action,))
    return _Traces(
        frozenset(ids.union(call.id for call in touched)),
        frozenset(call.call_id for call in touched) - {None},
        frozenset(responses),
        _open_loop(view) != _open_loop(after),
        _open_bond(view) != _open_bond(after),
        any(event.id < 0 for event in (*view.events, *after.events)),
    )


def _open_loop(view: View) -> list[int]:
    """Return the ids of the tool loop that a call after this View would join; empty if it would join none."""
    found = units(view.events, view.left_behind)
    orphans = set(found.orphans)
    last = next((position for position in reversed(found.seen) if position not in orphans), None)
    loop = found.loops[-1] if found.loops else []
    return [view[position].id for position in loop] if last in loop else []


def _open_bond(view: View) -> list[int]:
    """Return the ids of the events at the end of this View that stay with the next; empty if the last event does not.

    A summary may follow them for now: the next event may be placed before it.
    """
    there = (event for event in reversed(view.events) if event.id >= 0 and event.id not in view.left_behind)
    return [event.id for event in takewhile(lambda event: event.stays_with_next, there)]


def _bears_on(event: Event, traces: _Traces) -> bool:
    """Return whether this event, which came after the plan's View, may invalidate the plan; True if that is
    uncertain.
    """
    if traces.summaries_move or traces.reaches_open_bond:
        return True
    match event:
        case Observation():
            return traces.reaches_open_loop or event.call_id in traces.call_ids or event.cause in traces.ids
        case Action():
            return traces.reaches_open_loop or event.response_id in traces.response_ids
    return is_structural(event)


def _check(action: CondensationAction, meanwhile: Sequence[Event], view: View) -> None:
    for event in meanwhile:
        if isinstance(event, CondensationAction) and (event.summary is not None or any(event.forgotten)):
            raise Outdated(f"condensation {event.id} was appended first")
        if isinstance(event, Retraction):
            raise Outdated(f"retraction {event.id} was appended first")
    ids = _named(action)
    gone = ids.difference(event.id for event in view.events)
    if gone:
        raise Outdated(f"{len(gone)} of the {len(ids)} events to forget are not shown now, such as {min(gone)}")
    after = view.then((action,))
    parted = (_sent(view) - ids - _sent(after)) | (_waiting(view) & (ids | (after.left_behind - view.left_behind)))
    if parted:
        raise Outdated(f"calls and observations would be separated: {len(parted)} events, such as {min(parted)}")


def _sent(view: View) -> set[int]:
    return {view[position].id for position in view.fit_positions}


def _waiting(view: View) -> set[int]:
    """Return the ids of parallel calls that wait for an observation, with their observations so far."""
    return {view[position].id for position in pending_positions(units(view.events, view.left_behind))}


def _named(action: CondensationAction) -> set[int]:
    """Return the ids of the events and summaries that it forgets."""
    intervals, summaries = action.forgotten
    return {*summaries, *(event_id for first, last in intervals for event_id in range(first, last + 1))}
