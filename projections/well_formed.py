"""A View that can be sent to a model, and where a View may be cut: two policies.

``fixed`` is ours: see ``projections.units``. ``reference`` does what OpenHands V1 does when it loads a conversation,
its faults included; conformance tests hold it to that, and nothing else should want it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from eventstore.events import Event
from projections import reference
from projections.view import View

__all__ = ["Policy", "cut_points", "well_formed"]

Policy = Literal["fixed", "reference"]


def well_formed(view: View, policy: Policy = "fixed", history: Sequence[Event] | None = None) -> View:
    """The View without what a model would refuse: calls without answers, answers without calls, half batches, broken
    tool loops. Done twice it changes nothing more. Cost: the events of the View.

    The policy ``reference`` needs ``history``, all events of the conversation, and reads them all.
    """
    if _checked(policy) == "fixed":
        positions = view.fit_positions
        return view if len(positions) == len(view) else view.with_events(view.events[place] for place in positions)
    if history is None:
        raise ValueError("the policy 'reference' compares the View with its whole history; give history=events")
    return view.with_events(reference.enforced(view.events, history))


def cut_points(view: View, policy: Policy = "fixed") -> tuple[int, ...]:
    """The indices, of 0 to ``len(view)``, at which the View may be cut: forgetting ``view[i:j]`` for two of them takes
    nothing away from what stays. Cost: the events of the View.
    """
    return view.cut_points if _checked(policy) == "fixed" else reference.cut_points(view.events)


def _checked(policy: Policy) -> Policy:
    if policy not in get_args(Policy):
        raise ValueError(f"{policy!r} is no policy; there are {' and '.join(get_args(Policy))}")
    return policy
