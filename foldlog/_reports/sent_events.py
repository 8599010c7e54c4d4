"""This module finds which events of a View are sent to a model, and which events are sent whole. A
call is sent only if it and its parallel calls have results. A condenser may hide or mask events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldlog.eventstore import CondensationSummary
from foldlog.projections.units import has_no_message

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


def states_of(sent_view: Sent) -> Sequence[str]:
    """Return the state of each event of a View: "sent", the change by a condenser's rules (see
    ``Sent.less``), "unsent" if a condensation forgot another part of its call, or "pending" if a
    result is missing or no model has been called with it.
    """
    view = sent_view.view
    fit = {position for position in view.fit_positions if not has_no_message(view[position])}
    states = []
    for position, event in enumerate(view):
        if position in fit:
            states.append(sent_view.less(event.id) or "sent")
        elif event.id in view.left_behind:
            states.append("unsent")
        else:
            states.append("pending")
    return states


def sent_of(sent_view: Sent) -> tuple[int, int]:
    """Return how many events and how many summaries of a View are sent, also if only in part."""
    states = zip(sent_view.view, states_of(sent_view), strict=True)
    sent = [event for event, state in states if state in {"sent", "masked", "shortened"}]
    summaries = sum(isinstance(event, CondensationSummary) for event in sent)
    return len(sent) - summaries, summaries
