"""Which events of a View a model is sent. A call waits for its observation, and for those of its parallel calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from foldlog.eventstore import CondensationSummary
from foldlog.projections import View
from foldlog.projections.units import is_unseen

State = Literal["sent", "pending", "unsent"]


def states_of(view: View) -> Sequence[State]:
    """Return the state of each event of a View. ``unsent``: a condensation forgot another part of its call."""
    sent = {position for position in view.fit_positions if not is_unseen(view[position])}
    return [
        "sent" if position in sent else "unsent" if event.id in view.left_behind else "pending"
        for position, event in enumerate(view)
    ]


def sent_of(view: View) -> tuple[int, int]:
    """Return the number of events and that of summaries that a model is sent."""
    sent = [event for event, state in zip(view, states_of(view), strict=True) if state == "sent"]
    summaries = sum(isinstance(event, CondensationSummary) for event in sent)
    return len(sent) - summaries, summaries
