"""A condensation that was decided on but not yet appended, and whether it holds after what others did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from condensers.errors import CondenserError
from eventstore.events import Action, Annotation, CondensationAction, Event, Observation, UnknownEvent, is_structural
from projections import View

__all__ = ["Outdated", "Plan"]


class Outdated(CondenserError):
    """What was planned does not fit what others did meanwhile. It was not appended; plan anew."""


@dataclass(frozen=True, slots=True)
class _Traces:
    """By what an event may have to do with the forgotten: their ids, and those of their calls and responses."""

    ids: frozenset[int]
    call_ids: frozenset[str | None]
    response_ids: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """``action``, to be appended after ``view``. Where it forgets nothing it only answers a request."""

    action: CondensationAction
    view: View
    _traces: _Traces | None = field(default=None, repr=False)

    def forgets_something(self) -> bool:
        """Whether there is an event of the log among what it forgets of the View."""
        ids = _named(self.action)
        return any(event.id in ids and event.id >= 0 for event in self.view.events)

    def after(self, meanwhile: Sequence[Event]) -> Plan:
        """The same plan for the View after these events. Raises ``Outdated`` where it does not hold.

        It holds if no other condensation came, what it forgets is still shown, and no call is parted from an answer
        that came since. A request in between, or a condensation that was declined, outdates nothing.
        Cost: the events, and a copy of the View; where one of them may have to do with what is forgotten, its units.
        """
        traces = self._traces or _traces(self.action, self.view)
        view = self.view.then(meanwhile)
        if any(_bears_on(event, traces, self.view) for event in meanwhile):
            _check(self.action, meanwhile, view)
        return Plan(self.action, view, traces)


def _traces(action: CondensationAction, view: View) -> _Traces:
    ids = _named(action)
    calls = [event for event in view.events if event.id in ids and isinstance(event, Action)]
    return _Traces(
        frozenset(ids),
        frozenset(call.call_id for call in calls) - {None},
        frozenset(call.response_id for call in calls) - {None},
    )


def _bears_on(event: Event, traces: _Traces, view: View) -> bool:
    """Whether a plan may not hold because of this event, which came behind ``view``. In doubt it does."""
    if is_structural(event):
        return True
    if isinstance(event, Observation):
        return event.call_id in traces.call_ids or event.cause in traces.ids or _ends_in(view, traces.ids)
    if isinstance(event, Action):
        return event.response_id in traces.response_ids or _ends_in(view, traces.ids)
    return False


def _ends_in(view: View, ids: frozenset[int]) -> bool:
    """Whether the View's last events are among these: a tool loop may be open there, and go on."""
    for event in reversed(view.events):
        if not isinstance(event, Annotation | UnknownEvent) and event.id not in view.left_behind:
            return event.id in ids
    return False


def _check(action: CondensationAction, meanwhile: Sequence[Event], view: View) -> None:
    for event in meanwhile:
        if isinstance(event, CondensationAction) and (event.summary is not None or any(event.forgotten)):
            raise Outdated(f"condensation {event.id} came first")
    ids = _named(action)
    gone = ids.difference(event.id for event in view.events)
    if gone:
        raise Outdated(f"{len(gone)} of the {len(ids)} events that it forgets are not shown now, such as {min(gone)}")
    sent = {view[place].id for place in view.fit_positions}
    parted = sent & (view.then((action,)).left_behind - view.left_behind)
    if parted:
        raise Outdated(f"it would part {len(parted)} events from their calls or answers, such as {min(parted)}")


def _named(action: CondensationAction) -> set[int]:
    """The ids of what it forgets, summaries among them."""
    intervals, summaries = action.forgotten
    return {*summaries, *(event_id for first, last in intervals for event_id in range(first, last + 1))}
