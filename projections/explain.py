"""Why an event is in the View or is not, and what changed between two Views of one conversation."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Retraction,
    summary_of,
)
from foldlog.eventstore.inside import is_structural, names_source_ids
from foldlog.projections.fold import summary_event
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import intervals_kept, target
from foldlog.projections.units import is_unseen
from foldlog.projections.v0_dialect import entomb, is_buried
from foldlog.projections.view import View

Fate = Literal["shown", "forgotten", "taken back", "never shown"]


@dataclass(frozen=True, slots=True)
class Why:
    """The ``fate`` of ``event`` in the View at ``version``: "shown", "forgotten", "taken back" or
    "never shown".

    shown         ``position`` is its index; ``sent`` says whether a model is sent it
    forgotten     ``by`` is the event that forgot it, at version ``forgotten_at``: a condensation;
                  for some imported
                  histories a request. ``summary`` is the summary that ``by`` put in its place, if
                  any. ``stands_in`` is the summary that stands for it in the View now: ``summary``
                  may have been summarized since
    taken back    ``by`` is the retraction that took it back, at version ``forgotten_at``
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

    def __repr__(self) -> str:
        return f"<Why: event {self.event.id} at version {self.version}: {self.reason}>"


@dataclass(frozen=True, slots=True)
class Summarized:
    """Events that a condensation removed from the View, and the summary that it put in their place.
    The later View may no longer show that summary.
    """

    condensation: CondensationAction
    summary: CondensationSummary
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes of the View from version ``before`` to version ``after``.

    ``entered`` are shown by the later View only, ``left`` by the earlier one only, each in the
    order of its View. ``summarized`` says which of the events that left have a summary, oldest
    condensation first.
    """

    before: int
    after: int
    entered: tuple[Event, ...]
    left: tuple[Event, ...]
    summarized: tuple[Summarized, ...]

    def __repr__(self) -> str:
        counts = f"{len(self.entered)} entered, {len(self.left)} left"
        return f"<Difference of versions {self.before} and {self.after}: {counts}>"


Structural = Callable[[int], Iterable[Event]]
"""The structural events of a conversation from an id on, in order."""


def explain_event(event: Event, view: View, structural: Structural) -> Why:
    """Explain the fate of ``event``: an event of the conversation of ``view``, or the summary of a
    condensation.

    Cost: the View. For a forgotten event also the structural events after it, once; for an import
    from V0 also those before it.
    """
    position = next((place for place, shown in enumerate(view) if shown.id == event.id), None)
    if position is not None:
        return _explain_shown(event, view, position)
    if event.id >= 0:
        if is_structural(event) or not event.shown:
            return Why(event, view.version, "never shown", _never_shown_because(event, view))
        if names_source_ids(event):
            buried_by = _buried_by(event, structural)
        else:
            buried_by = None
        if buried_by is not None:
            reason = f"imported condensation {buried_by.id} forgot its source id before it came"
            return Why(event, view.version, "never shown", reason, by=buried_by)
    return _explain_forgotten(event, view, structural)


def _buried_by(event: Event, structural: Structural) -> Event | None:
    """Return the condensation that forgot an event of V0 before the event was added; None if no
    condensation did.
    """
    earlier = [one for one in structural(0) if one.id < event.id]
    kept = intervals_kept(earlier, event.id)
    return next(
        (
            s
            for s in earlier
            if contains(kept, s.id) and names_source_ids(s) and forgetting(s)(event)
        ),
        None,
    )


def explain_difference(before: View, after: View, structural: Structural) -> Difference:
    """Return what changed from one View to another, given the structural events of their
    conversation.

    Cost: both Views, and the structural events between them, once. For each of these, the events of
    the first View that are not explained yet.
    """
    ids_before, ids_after = ({event.id for event in view} for view in (before, after))
    left = remaining = tuple(event for event in before if event.id not in ids_after)
    if left:
        between = list(takewhile(lambda one: one.id < after.version, structural(before.version)))
    else:
        between = []
    kept = intervals_kept(between, after.version)
    summarized: list[Summarized] = []
    for action in between:
        if not contains(kept, action.id):
            continue
        forgets = forgetting(action)
        if taken := tuple(event for event in remaining if forgets(event)):
            remaining = tuple(event for event in remaining if not forgets(event))
            if isinstance(action, CondensationAction) and action.summary is not None:
                summarized.append(Summarized(action, summary_event(action), taken))
    entered = tuple(event for event in after if event.id not in ids_before)
    return Difference(before.version, after.version, entered, left, tuple(summarized))


def forgetting(structural: Event) -> Callable[[Event], bool]:
    """Return whether ``structural`` forgets an event, or a summary, that the View shows when
    ``structural`` comes.
    """
    if names_source_ids(structural):
        tomb = entomb((), structural)
        replaces = isinstance(structural, CondensationAction) and structural.summary is not None
        return lambda event: replaces and event.id < 0 if event.id < 0 else is_buried(tomb, event)
    if not isinstance(structural, CondensationAction):
        return lambda event: False
    if (ids := structural.given_ids) is not None:
        return lambda event: event.id in ids
    first = structural.forgotten_events_start_id or 0
    last = structural.forgotten_events_end_id or 0
    return lambda event: first <= event.id <= last


def _explain_shown(event: Event, view: View, position: int) -> Why:
    sent = position in view.fit_positions and not is_unseen(event)
    if sent:
        unsent = ""
    else:
        unsent = f", but no model is sent it: {_unfit_because(event, view, position)}"
    reason = f"the View shows it at index {position}{unsent}"
    return Why(event, view.version, "shown", reason, position=position, sent=sent)


def _unfit_because(event: Event, view: View, position: int) -> str:
    if is_unseen(event):
        return "it has no form as a message"
    if event.id in view.left_behind:
        return (
            "a condensation forgot another of its parallel calls, or another part of its tool loop"
        )
    found = view.units
    if position in found.orphans:
        return "its call is not shown"
    if any(calls.unanswered and position in calls.members for calls in found.parallel_calls):
        return "its call or another call of the same response has no observation"
    return "its tool loop is not whole"


def _never_shown_because(event: Event, view: View) -> str:
    if is_structural(event):
        return "condensations, requests and retractions change a View; a View never shows them"
    if isinstance(event, Annotation):
        blocks = event.data if isinstance(event.data, list) else ()
        carriers = (
            one.id for one in view if any(block in blocks for block in getattr(one, "thinking", ()))
        )
        shown = next((f"; its thinking is shown with event {carrier}" for carrier in carriers), "")
        return f"annotations are never shown to a model{shown}"
    if isinstance(event, DocumentChanges):
        return (
            f"it sets {', '.join(sorted(event.changed))}: documents of a conversation are never"
            " shown to a model"
        )
    if event.origin is not None:
        return (
            f"in the {event.origin.format} history that it was imported from it was not shown to"
            " the agent"
        )
    return "its writer marked it as not shown"


def _explain_forgotten(event: Event, view: View, structural: Structural) -> Why:
    came = summary_of(event.id) if event.id < 0 else event.id
    since = list(structural(came + 1))
    kept = intervals_kept(since, view.version)
    if not contains(kept, came):
        return _explain_taken_back(event, came, view, since)
    by, summary, stands_in = _follow(
        event, {one.id for one in view}, (one for one in since if contains(kept, one.id))
    )
    if by is None:  # the View was folded from another log, or the revision is damaged
        reason = (
            "no event of the log forgets it, but the View does not show it: run 'foldlog store"
            " verify --views'"
        )
        return Why(event, view.version, "forgotten", reason)
    kind = "condensation" if isinstance(by, CondensationAction) else "request"
    at = by.id + 1
    reason = f"{kind} {by.id} forgot it at version {at}"
    return Why(
        event,
        view.version,
        "forgotten",
        reason,
        by=by,
        forgotten_at=at,
        summary=summary,
        stands_in=stands_in,
    )


def _explain_taken_back(event: Event, came: int, view: View, since: Iterable[Event]) -> Why:
    """Explain it by the last retraction that took the event back: a later one may return to a
    version without it.
    """
    by: Retraction | None = None
    # from which versions on the event is not taken back, or is
    there = [(0, False), (came + 1, True)]
    for one in since:
        if isinstance(one, Retraction):
            stays = next(stays for version, stays in reversed(there) if version <= target(one))
            if there[-1][1] and not stays:
                by = one
            there.append((one.id + 1, stays))
    assert by is not None
    reason = (
        f"retraction {by.id} took it back, at version {by.id + 1}: the View was again that of"
        f" version {target(by)}"
    )
    return Why(event, view.version, "taken back", reason, by=by, forgotten_at=by.id + 1)


def _follow(
    event: Event, shown: Container[int], structural: Iterable[Event]
) -> tuple[Event | None, CondensationSummary | None, CondensationSummary | None]:
    """Follow ``event`` through the structural events after it that were not taken back.

    Return the event that forgot it; the summary that was put in its place; and the summary that
    stands for it in the View, which has the ids ``shown``: a later one if the first was summarized
    again, None if no summary does.
    """
    by: Event | None = None
    first: CondensationSummary | None = None
    followed: Event | None = event
    for one in structural:
        if followed is None or not forgetting(one)(followed):
            continue
        summary = _summary(one)
        if by is None:
            by = one
            first = summary
        if summary is not None and summary.id in shown:
            return by, first, summary
        followed = summary
    return by, first, None


def _summary(by: Event) -> CondensationSummary | None:
    if isinstance(by, CondensationAction) and by.summary is not None:
        return summary_event(by)
    return None
