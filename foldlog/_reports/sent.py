"""Which events of a View a model is sent, and which of them whole. A call waits for its
observation, and for those of its parallel calls; a condenser may hide or mask events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldlog.eventstore import CondensationSummary
from foldlog.projections.units import is_unseen

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


def states_of(found: Sent) -> Sequence[str]:
    """Return the state of each event of a View: sent, hidden, masked, shortened, unknown, pending
    or unsent. ``unsent``: a condensation forgot another part of its call.
    """
    view = found.view
    fit = {position for position in view.fit_positions if not is_unseen(view[position])}
    states = []
    for position, event in enumerate(view):
        if position in fit:
            states.append(found.less(event.id) or "sent")
        elif event.id in view.left_behind:
            states.append("unsent")
        else:
            states.append("pending")
    return states


def sent_of(found: Sent) -> tuple[int, int]:
    """Return how many events and how many summaries a model is sent, including masked events."""
    states = zip(found.view, states_of(found), strict=True)
    sent = [event for event, state in states if state in {"sent", "masked", "shortened"}]
    summaries = sum(isinstance(event, CondensationSummary) for event in sent)
    return len(sent) - summaries, summaries
