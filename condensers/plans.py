"""A condensation that was decided but not yet appended, and the check whether it still holds after newer events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldlog.condensers.errors import CondenserError
from foldlog.eventstore import CondensationAction, Event, Retraction
from foldlog.projections import View
from foldlog.projections.units import pending_positions, units


class Outdated(CondenserError):
    """A plan does not fit the events that other writers appended since. It was not appended; plan again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A condensation ``action`` to append after ``view``. If it forgets nothing, it only fulfils a request."""

    action: CondensationAction
    view: View

    def forgets_something(self) -> bool:
        """Return whether the plan forgets an event of the log that the View shows."""
        ids = _named(self.action)
        return any(event.id in ids and event.id >= 0 for event in self.view.events)

    def after(self, meanwhile: Sequence[Event]) -> Plan:
        """Return this plan for the View after these events. Raises ``Outdated`` if the plan no longer holds.

        The plan holds if there was no other condensation and no retraction, if the events to forget are still shown, if
        every event that stays is still sent to the model, and if no part of an open call is forgotten. A request or a
        declined condensation in between does not matter. Cost: a copy of the View and its units, before and after.
        """
        view = self.view.then(meanwhile)
        _check(self.action, meanwhile, view)
        return Plan(self.action, view)


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
