"""Make a View fit for a model, and say where a View may be cut: two policies.

``fixed`` is ours: see ``projections.units``. ``reference`` does what OpenHands V1 does when it loads a conversation,
its faults included. It exists for the conformance tests, and its module is imported only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from eventstore.errors import InvalidArgument
from eventstore.events import Event
from projections.view import View

Policy = Literal["fixed", "reference"]


def well_formed(view: View, policy: Policy = "fixed", history: Sequence[Event] | None = None) -> View:
    """Return the View without the events that a model would refuse: actions without observations, observations without
    actions, incomplete parallel calls, broken tool loops. A second call changes nothing. Cost: the events of the View.

    The policy ``reference`` needs ``history``, all events of the conversation, and reads them all.
    """
    if _checked(policy) == "fixed":
        positions = view.fit_positions
        return view if len(positions) == len(view) else view.with_events(view.events[place] for place in positions)
    if history is None:
        raise InvalidArgument("the policy 'reference' compares the View with its whole history; give history=events")
    from projections.reference_policy import enforce

    return view.with_events(enforce(view.events, history))


def cut_points(view: View, policy: Policy = "fixed") -> tuple[int, ...]:
    """Return the indices, from 0 to ``len(view)``, at which the View may be cut: if ``view[i:j]`` is forgotten for two
    of them, all other events can still be sent. Cost: the events of the View.
    """
    if _checked(policy) == "fixed":
        return view.cut_points
    from projections.reference_policy import find_cut_points

    return find_cut_points(view.events)


def _checked(policy: Policy) -> Policy:
    if policy not in get_args(Policy):
        raise InvalidArgument(f"unknown policy {policy!r}; choose one of {' and '.join(map(repr, get_args(Policy)))}")
    return policy
