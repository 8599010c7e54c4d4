"""Explain why a View shows an event or not, and what changed between two Views of one
conversation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import takewhile
from operator import attrgetter
from typing import Literal, NamedTuple

from msgspec import Struct

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Retraction,
    summary_id,
    summary_of,
)
from foldlog.eventstore.events import is_structural, names_source_ids
from foldlog.projections.fold import summary_event
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import intervals_kept, target
from foldlog.projections.units import has_no_message
from foldlog.projections.v0_dialect import entomb, is_buried
from foldlog.projections.view import View

Fate = Literal["shown", "forgotten", "taken back", "never shown"]


class Why(Struct, frozen=True):
    """The ``fate`` of ``event`` in the View at ``version``: "shown", "forgotten", "taken back" or
    "never shown".

    shown         ``position`` is the index of ``event`` in the View. ``sent`` is true if ``event``
                  is sent to a model
    forgotten     ``by`` is the condensation that forgot ``event``, at version ``forgotten_at``. In
                  a history from OpenHands V0, ``by`` may be a request for a condensation.
                  ``summary`` is the summary that ``by`` put in place of ``event``, or None.
                  ``stands_in`` is the summary that the View shows for ``event`` now: either
                  ``summary``, or a later summary that replaced it. It is None if the View
                  shows no summary for ``event``
    taken back    ``by`` is the retraction that took ``event`` back, at version ``forgotten_at``
    never shown   ``by`` is the imported condensation that forgot the source id of ``event`` before
                  ``event`` was appended, or None

    ``reason`` is a sentence for people.
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


class Summarized(Struct, frozen=True):
    """The events that a condensation replaced by a summary. The later View may no longer show the
    summary.
    """

    condensation: CondensationAction
    summary: CondensationSummary
    events: tuple[Event, ...]


class Difference(Struct, frozen=True):
    """The changes of the View from version ``before`` to version ``after``.

    ``entered`` contains the events that only the later View shows. ``left`` contains the events
    that only the earlier View shows. ``entered`` and ``left`` are in the order of the View.
    ``summarized`` contains the events of ``left`` that a summary replaced, grouped by condensation,
    with the oldest condensation first.
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
"""Returns the structural events from an id on, in their order."""
_version_of = attrgetter("version")


def explain_event(event: Event, view: View, structural: Structural) -> Why:
    """Explain why ``view`` shows an event or not. ``event`` is an event in the conversation of the
    View, or the summary of a condensation.
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
            reason = (
                f"imported condensation {buried_by.id} forgot its source id before the event was"
                " appended"
            )
            return Why(event, view.version, "never shown", reason, by=buried_by)
    return _explain_forgotten(event, view, structural)


def _buried_by(event: Event, structural: Structural) -> Event | None:
    """Return the earlier event from V0 that forgot the source id of ``event``, or None."""
    earlier = [change for change in structural(0) if change.id < event.id]
    remaining_ids = intervals_kept(earlier, event.id)
    return next(
        (
            change
            for change in earlier
            if contains(remaining_ids, change.id)
            and names_source_ids(change)
            and forgets_of(change)(event)
        ),
        None,
    )


def explain_difference(before: View, after: View, structural: Structural) -> Difference:
    """Return what changed between two Views of one conversation."""
    ids_before = {event.id for event in before}
    ids_after = {event.id for event in after}
    left = tuple(event for event in before if event.id not in ids_after)
    remaining = left
    between: list[Event] = []
    if left:
        later = structural(before.version)
        between = list(takewhile(lambda change: change.id < after.version, later))
    remaining_ids = intervals_kept(between, after.version)
    summarized: list[Summarized] = []
    for action in between:
        if not contains(remaining_ids, action.id):
            continue
        forgets = forgets_of(action)
        if forgotten := tuple(event for event in remaining if forgets(event)):
            remaining = tuple(event for event in remaining if not forgets(event))
            if isinstance(action, CondensationAction) and action.summary is not None:
                summarized.append(Summarized(action, summary_event(action), forgotten))
    entered = tuple(event for event in after if event.id not in ids_before)
    return Difference(before.version, after.version, entered, left, tuple(summarized))


def forgets_of(structural: Event) -> Callable[[Event], bool]:
    """Return a function that returns whether a structural event forgets an event or a summary."""
    if names_source_ids(structural):
        tomb = entomb((), structural)
        # In the V0 dialect, a new summary replaces the earlier summary.
        replaces = isinstance(structural, CondensationAction) and structural.summary is not None
        return lambda event: replaces if event.id < 0 else is_buried(tomb, event)
    if not isinstance(structural, CondensationAction):
        return lambda event: False
    intervals, summaries = structural.forgotten
    return lambda event: event.id in summaries or contains(intervals, event.id)


def _explain_shown(event: Event, view: View, position: int) -> Why:
    sent = position in view.fit_positions and not has_no_message(event)
    reason = f"the View shows it at index {position}"
    if not sent:
        reason += f", but it is not sent to a model: {_unfit_because(event, view, position)}"
    return Why(event, view.version, "shown", reason, position=position, sent=sent)


def _unfit_because(event: Event, view: View, position: int) -> str:
    """Return why a shown event is not sent to a model, for the user."""
    if has_no_message(event):
        return "it cannot be written as a message"
    if event.id in view.left_behind:
        return (
            "a condensation forgot another call of the same response, or another part of its tool"
            " loop"
        )
    units = view.units
    if position in units.orphans:
        return "its call is not shown"
    if any(calls.unanswered and position in calls.members for calls in units.parallel_calls):
        return "its call or another call of the same response has no observation"
    if [position] in units.bonds:
        return "it must stay with the agent's next event, and another event or none follows it"
    return "its tool loop is not whole"


def _never_shown_because(event: Event, view: View) -> str:
    """Return why no View shows the event, for the user."""
    if is_structural(event):
        return "condensations, requests and retractions change a View; a View never shows them"
    if isinstance(event, Annotation):
        blocks = event.data if isinstance(event.data, list) else ()
        carriers = (
            shown.id
            for shown in view
            if any(block in blocks for block in getattr(shown, "thinking", ()))
        )
        hint = next((f"; its thinking is shown with event {carrier}" for carrier in carriers), "")
        return f"annotations are never shown to a model{hint}"
    if isinstance(event, DocumentChanges):
        return (
            f"it sets {', '.join(sorted(event.changed))}: documents of a conversation are never"
            " shown to a model"
        )
    if event.origin is not None:
        return (
            f"the agent did not see it in the {event.origin.format} history from which it was"
            " imported"
        )
    return "its writer marked it as not shown"


class _Trace(NamedTuple):
    """What had happened to an event by a version.

    ``is_recorded`` is false before the event was appended, and while a retraction has taken it
    back. ``by`` is the event that forgot it or took it back. ``followed`` is what a View shows of
    it: the event itself, or the newest summary of it, or None. The summary has no text.
    """

    version: int
    is_recorded: bool = False
    by: Event | None = None
    followed: Event | None = None


def _explain_forgotten(event: Event, view: View, structural: Structural) -> Why:
    """Explain why the View does not show an event that an earlier View showed."""
    # A summary was made together with its condensation.
    origin_id = summary_of(event.id) if event.id < 0 else event.id
    trace = _trace(event, origin_id, structural(origin_id + 1))
    by = trace.by
    if isinstance(by, Retraction):
        reason = (
            f"retraction {by.id} took it back, at version {trace.version}: it restored the View of"
            f" version {target(by)}"
        )
        return Why(event, view.version, "taken back", reason, by=by, forgotten_at=trace.version)
    if by is None:
        # The View was folded from another log, or its revision is damaged.
        reason = (
            "no event of the log forgets it, but the View does not show it: run 'foldlog store"
            " verify --views'"
        )
        return Why(event, view.version, "forgotten", reason)
    kind = "condensation" if isinstance(by, CondensationAction) else "request"
    version = by.id + 1
    followed_id = None if trace.followed is None else trace.followed.id
    summaries = (shown for shown in view if isinstance(shown, CondensationSummary))
    return Why(
        event,
        view.version,
        "forgotten",
        f"{kind} {by.id} forgot it at version {version}",
        by=by,
        forgotten_at=version,
        summary=_summary(by),
        stands_in=next((shown for shown in summaries if shown.id == followed_id), None),
    )


def _trace(event: Event, origin_id: int, changes: Iterable[Event]) -> _Trace:
    """Follow ``event`` through the later structural events. Return its last trace.

    The changes, with their texts, are not kept: a long log has many (``why`` in
    ``benchmarks/commands.py``).
    """
    traces = [_Trace(0), _Trace(origin_id + 1, is_recorded=True, followed=event)]
    for change in changes:
        newest = traces[-1]
        version = change.id + 1
        if isinstance(change, Retraction):
            restored = traces[bisect_right(traces, target(change), key=_version_of) - 1]
            if restored.is_recorded:
                traces.append(restored._replace(version=version))
            elif newest.is_recorded:
                traces.append(_Trace(version, by=change))
            # Otherwise an earlier retraction explains why the event is absent.
        elif newest.followed is not None and forgets_of(change)(newest.followed):
            followed = None
            if isinstance(change, CondensationAction) and change.summary is not None:
                followed = CondensationSummary(
                    id=summary_id(change.id), content="", summary_of=change.id
                )
            by = newest.by or change
            traces.append(_Trace(version, is_recorded=True, by=by, followed=followed))
    return traces[-1]


def _summary(by: Event) -> CondensationSummary | None:
    """Return the summary that an event put in place of what it forgot, or None."""
    if isinstance(by, CondensationAction) and by.summary is not None:
        return summary_event(by)
    return None
