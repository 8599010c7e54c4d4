"""This module selects the part of a View that a condenser forgets. All strategies use the same
rule: a View may be cut only at *cut points*, which never separate a call from its result.

A strategy chooses how many events it wants to keep at the beginning (the head) and at the end (the
tail) of the View. This module moves the ends of the head and of the tail to cut points. The
condensation forgets the events between head and tail.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence, Set

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.errors import count
from foldlog.projections import View, contains, says_something
from foldlog.projections.call_states import in_doubt
from foldlog.projections.left_behind import left_behind_by_ids
from foldlog.projections.units import has_no_message

SEND_IT = ": send the View to the model"
"""The advice at the end of an error, if events stay because no model has seen them."""


def next_cut(cut_points: Sequence[int], wanted: int) -> int | None:
    index = bisect_left(cut_points, wanted)
    return cut_points[index] if index < len(cut_points) else None


def first_kept_index(view: View) -> int:
    """Return the index of the first event that must stay: see ``View.kept_from``. If every event
    may be forgotten, the index is the length of the View.
    """
    kept_from = float("inf") if view.kept_from is None else view.kept_from
    return next(
        (index for index, event in enumerate(view.events) if event.id >= kept_from), len(view)
    )


def describe_unseen(view: View) -> str:
    """Return the end of an error's text: how many events stay because no model has seen them. The
    text is empty if all were seen.
    """
    unseen = len(view) - first_kept_index(view)
    if unseen:
        stay = count(
            unseen,
            "event stays until a model has seen it",
            "events stay until a model has seen them",
        )
        return f"; its last {stay}{SEND_IT}"
    return ""


def middle(view: View, keep_first: int, keep_last: int) -> slice | None:
    """Return the span between the first ``keep_first`` events (the head) and the last ``keep_last``
    events (the tail). Returns None if the span is empty or ``keep_last`` is negative.

    The end of the head and the beginning of the tail move forward to the next cut point. The head
    may therefore grow, and the tail may shrink, by a part of a unit. The tail always contains the
    events that must stay. The tail also contains every call without a result, because no cut point
    follows the call.
    """
    if keep_last < 0:
        return None
    start = next_cut(view.cut_points, keep_first)
    # The last cut point is before the unit that contains ``first_kept_index``.
    last_stop = view.cut_points[bisect_right(view.cut_points, first_kept_index(view)) - 1]
    stop = next_cut(view.cut_points, len(view) - keep_last)
    stop = last_stop if stop is None else min(stop, last_stop)
    return slice(start, stop) if start is not None and start < stop else None


def ends(view: View, keep_first: int, keep_last: int) -> set[int]:
    """Return the indices of the first and the last events of a View."""
    count = len(view)
    return {*range(min(keep_first, count)), *range(max(0, count - keep_last), count)}


def events_to_forget(
    view: View, kept: Set[int], *, with_summaries: bool = False
) -> tuple[Event, ...]:
    """Return the events to forget if a strategy keeps the events at the indices ``kept``.

    If a strategy keeps an event of a unit, the whole unit stays. If it keeps the first system
    prompt, all system prompts at the beginning stay. Calls without a result and the events from
    ``first_kept_index`` on stay too. Summaries of forgotten events do not belong to a unit. If
    ``with_summaries`` is true, summaries outside of ``kept`` are forgotten. Otherwise, all
    summaries stay.
    """
    events: list[Event] = []
    points = view.cut_points
    all_kept = {*kept, *range(first_kept_index(view), len(view))}
    if 0 in kept and isinstance(view[0], SystemMessage):
        all_kept.update(range(after_system_prompt(view)))
    start = 0
    # Unit n lies between the cut points n - 1 and n. All events between the kept units are
    # forgotten.
    for unit in sorted({bisect_right(points, index) for index in all_kept}):
        events += view.events[start : points[unit - 1]]
        start = points[unit] if unit < len(points) else len(view)
    events += view.events[start : points[-1]]
    return spare_loop_ends(
        view,
        events
        if with_summaries
        else [event for event in events if not stands_for_forgotten(event)],
    )


def without_kept(view: View, action: CondensationAction) -> CondensationAction:
    """Return ``action`` without the events that must stay.

    These events must stay: the events from ``first_kept_index`` on, calls without a result, and
    calls that may have run. If one of these events belongs to a unit that is sent to a model, the
    whole unit stays. The summary of ``action`` stands where the first forgotten event was.

    Raises ``NoCondensationAvailable`` if no event of the log may be forgotten, or if a model would
    refuse the remaining events.
    """
    shown = {event.id for event in view.events}
    named = ids_named(action, shown)
    forgettable = named.difference(
        event.id for event in view[min(view.cut_points[-1], first_kept_index(view)) :]
    )
    forgettable.difference_update(view.kept, in_doubt(view.events))
    # A part of an abandoned call may be forgotten alone, because the call is not sent to a model.
    sent_before = sent_ids(view)
    while (
        left_alone := left_behind_by_ids(view.events, view.left_behind, shown - forgettable)
        & sent_before
    ):
        forgettable -= left_alone
    chosen = tuple(event for event in view.events if event.id in forgettable)
    forgotten = spare_loop_ends(view, chosen) if action.summary is None else chosen
    if not count_logged(forgotten):
        why = (
            f"the condensation names {len(named)} of the View's {count(len(view), 'event')}, but"
            " these events or their units must stay"
        )
        raise NoCondensationAvailable(f"nothing can be forgotten: {why}{describe_unseen(view)}")
    if whole := len(named) - len(forgotten):
        offset = None if action.summary is None else view.events.index(forgotten[0])
        metadata = {**action.metadata, "events_kept_whole": whole}
        action = forget(forgotten, metadata, summary=action.summary, offset=offset)
    view_after = view.then((action,))
    unsendable = sent_before - sent_ids(view_after) - {event.id for event in forgotten}
    if unsendable or (_has_message(view) and not _has_message(view_after)):
        if unsendable:
            what = f"{count(len(unsendable), 'remaining event')} that cannot be sent"
        else:
            what = "no message to send"
        raise NoCondensationAvailable(
            f"without {count(len(forgotten), 'forgotten event')} the View would have {what}"
        )
    return action


def _has_message(view: View) -> bool:
    """Return whether a prompt of ``view`` has a message besides its system prompts."""
    sent = (
        event
        for event in map(view.__getitem__, view.fit_positions)
        if not isinstance(event, SystemMessage)
    )
    return any(
        says_something(getattr(event, "content", "…")) and not has_no_message(event)
        for event in sent
    )


def spare_loop_ends(view: View, forgotten: Iterable[Event]) -> tuple[Event, ...]:
    """Return ``forgotten`` without the events that must stay to separate two tool loops. Call this
    function for a condensation without a summary.

    A tool loop ends at the next event that is neither an action nor an observation. If the event
    after a tool loop is forgotten, the loop continues into the next calls. If a call in a loop is
    abandoned, the prompt leaves out the whole loop (docs/internals/decisions/0031-joined-loops.md).
    If joined loops would remove events from the prompt, every event that ends a loop stays.
    """
    dropped = {event.id: event for event in forgotten}
    view_after = view.with_events(event for event in view.events if event.id not in dropped)
    if sent_ids(view) <= sent_ids(view_after) | dropped.keys():
        return tuple(dropped.values())
    in_a_loop = False
    for event in view.events:
        if isinstance(event, Action | Observation):
            in_a_loop = in_a_loop or event.id not in dropped
        elif not has_no_message(event) and event.id not in view.left_behind:
            if in_a_loop:
                dropped.pop(event.id, None)
            in_a_loop = False
    return tuple(dropped.values())


def after_system_prompt(view: View) -> int:
    """Return the index after the first system prompt, which a model always needs, or 0 without
    one. System prompts that directly follow the first one belong to it.
    """
    after = 0
    for index, event in enumerate(view.events):
        if isinstance(event, SystemMessage):
            after = index + 1
        elif after:
            break
    return after


def stands_for_forgotten(event: Event) -> bool:
    """Return whether ``event`` is the summary of a condensation. A summary in an imported log is an
    ordinary event, because the log also contains the events that the summary replaces.
    """
    return isinstance(event, CondensationSummary) and event.id < 0


def sent_ids(view: View) -> set[int]:
    """Return the ids of the events that are sent to a model."""
    return {view[position].id for position in view.fit_positions}


def ids_named(action: CondensationAction, shown: Iterable[int]) -> set[int]:
    """Return those of the ids in ``shown`` that a condensation forgets."""
    intervals, summaries = action.forgotten
    return {
        event_id for event_id in shown if event_id in summaries or contains(intervals, event_id)
    }


def count_logged(events: Iterable[Event]) -> int:
    """Return how many events are in the log. The summary of a condensation is not, and has a
    negative id.
    """
    return sum(event.id >= 0 for event in events)


def forget(
    events: Sequence[Event],
    metadata: JsonMap,
    *,
    summary: str | None = None,
    offset: int | None = None,
) -> CondensationAction:
    """Return a condensation that forgets ``events``. ``offset`` is the place of its ``summary``."""
    # A range of ids would include events that stay, if the ids are not consecutive.
    ids = sorted(event.id for event in events)
    reference: JsonObject = {"forgotten_event_ids": tuple(ids)}
    if len(ids) > 1 and ids[0] >= 0 and ids[-1] - ids[0] == len(ids) - 1:
        reference = {"forgotten_events_start_id": ids[0], "forgotten_events_end_id": ids[-1]}
    return CondensationAction(
        **reference, summary=summary, summary_offset=offset, metadata=dict(metadata)
    )
