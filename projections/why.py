"""Why an event is in the View, or is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from eventstore.events import (
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    is_structural,
    summary_of,
)
from projections.batch import is_batch
from projections.fold import summary_event
from projections.forgetting import forgetting
from projections.units import UNSEEN, units
from projections.view import View

__all__ = ["Fate", "Why", "why"]

Fate = Literal["shown", "forgotten", "never shown"]


@dataclass(frozen=True, slots=True)
class Why:
    """What became of an event in the View at ``version``.

    shown         ``position`` is its index; ``sent`` says whether it is fit for a model
    forgotten     ``by`` that event, a condensation but for some imported histories, which brought version
                  ``forgotten_at``; ``summary`` is the one that it put in place, if any, and ``stands_in`` the one that
                  stands for it in the View now: it may have been summarized again
    never shown   ``by`` is set where an imported condensation forgot it before it came

    ``reason`` says it in words, for people.
    """

    event: Event
    version: int
    fate: Fate
    reason: str
    position: int | None = None
    sent: bool = False
    by: Event | None = None
    forgotten_at: int | None = None
    summary: CondensationSummary | None = None
    stands_in: CondensationSummary | None = None


Structural = Callable[[int], Iterable[Event]]
"""The structural events of a conversation from an id on, in order."""


def why(event: Event, view: View, structural: Structural) -> Why:
    """What became of ``event``: one of the conversation that ``view`` is of, or the summary of a condensation.

    Cost: the View, and the structural events from the event to the one that forgets it; for imports from V0 also those
    before it.
    """
    position = next((place for place, shown in enumerate(view) if shown.id == event.id), None)
    if position is not None:
        return _shown(event, view, position)
    if event.id >= 0:
        if is_structural(event) or not event.shown:
            return Why(event, view.version, "never shown", _never_shown_because(event))
        buried_by = (
            next((s for s in structural(0) if s.id < event.id and is_batch(s) and forgetting(s)(event)), None)
            if is_batch(event)
            else None
        )
        if buried_by is not None:
            reason = f"imported condensation {buried_by.id} forgot its source id before it came"
            return Why(event, view.version, "never shown", reason, by=buried_by)
    return _forgotten(event, view, structural)


def _shown(event: Event, view: View, position: int) -> Why:
    sent = position in view.fit_positions and type(event) not in UNSEEN
    reason = f"the View shows it at index {position}"
    if not sent:
        reason += f", but no model is sent it: {_unfit_because(event, view, position)}"
    return Why(event, view.version, "shown", reason, position=position, sent=sent)


def _unfit_because(event: Event, view: View, position: int) -> str:
    if type(event) in UNSEEN:
        return "it has no form as a message"
    if event.id in view.left_behind:
        return "a condensation forgot another part of its batch or tool loop"
    found = units(view.events, view.left_behind)
    if position in found.orphans:
        return "it answers no call that is shown"
    if any(batch.unanswered and position in batch.members for batch in found.batches):
        return "its call, or another of the same response, has no answer"
    return "its tool loop is not whole"


def _never_shown_because(event: Event) -> str:
    if isinstance(event, CondensationAction | CondensationRequest):
        return "condensations and requests change a View and are never in it"
    if isinstance(event, Annotation):
        return "bookkeeping is shown to no model"
    if event.origin is not None:
        return f"in the {event.origin.format} history that it was imported from it was not shown to the agent"
    return "whoever wrote it said that it is not shown"


def _forgotten(event: Event, view: View, structural: Structural) -> Why:
    by = _forgetter(event, structural)
    if by is None:  # the View was folded of events that are not these any more, or its revision is spoilt
        reason = "nothing in the log forgets it and the View does not show it: run 'foldlog audit'"
        return Why(event, view.version, "forgotten", reason)
    summary = _summary(by)
    stands_in: CondensationSummary | None = summary
    shown = {shown.id for shown in view}
    while stands_in is not None and stands_in.id not in shown:
        next_by = _forgetter(stands_in, structural)
        stands_in = None if next_by is None else _summary(next_by)
    return Why(
        event,
        view.version,
        "forgotten",
        f"{_kind(by)} {by.id} forgot it at version {by.id + 1}",
        by=by,
        forgotten_at=by.id + 1,
        summary=summary,
        stands_in=stands_in,
    )


def _forgetter(event: Event, structural: Structural) -> Event | None:
    """The first structural event behind ``event`` that forgets it."""
    came = summary_of(event.id) if event.id < 0 else event.id
    return next((one for one in structural(came + 1) if forgetting(one)(event)), None)


def _summary(by: Event) -> CondensationSummary | None:
    return summary_event(by) if isinstance(by, CondensationAction) and by.summary is not None else None


def _kind(by: Event) -> str:
    return "condensation" if isinstance(by, CondensationAction) else "request"
