"""Select the part of a View to forget: one arithmetic over cut points, for all strategies.

A View may be cut only where no call is separated from its observation. A strategy says how much it
wants to keep at both ends. The borders are moved to cut points here, and the events between them
become a condensation here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Observation,
    SystemMessage,
)
from foldlog.projections import View, contains, says_something
from foldlog.projections.effects import in_doubt
from foldlog.projections.left_behind import left_behind_by_ids
from foldlog.projections.units import is_unseen


def next_cut(cut_points: Sequence[int], wanted: int) -> int | None:
    """Return the smallest cut point at or after ``wanted``; None if there is none."""
    place = bisect_left(cut_points, wanted)
    return cut_points[place] if place < len(cut_points) else None


def kept_place(view: View) -> int:
    """Return the index of the first event that must stay: see ``View.kept_from``. It is the length
    if each may go.
    """
    kept_from = float("inf") if view.kept_from is None else view.kept_from
    return next(
        (index for index, event in enumerate(view.events) if event.id >= kept_from), len(view)
    )


def last_cut(view: View) -> int:
    """Return the last cut point before which each event may go: at ``kept_place``, or where its
    unit begins.
    """
    return view.cut_points[bisect_right(view.cut_points, kept_place(view)) - 1]


def unseen_in(view: View) -> str:
    """Return how many events must stay, for an error; empty if each may go."""
    unseen = len(view) - kept_place(view)
    if unseen:
        return f"; its last {unseen} stay until a model was shown them: send it the View"
    return ""


def middle(view: View, keep_first: int, keep_last: int) -> slice | None:
    """Return the span between the first ``keep_first`` and the last ``keep_last`` events; None if
    it is empty.

    Borders move to the next cut point, so the head may grow and the tail may shrink by the rest of
    a unit. Events that must stay are in the tail: no cut point follows a call that waits. A
    negative ``keep_last`` gives None.
    """
    if keep_last < 0:
        return None
    start = next_cut(view.cut_points, keep_first)
    last = last_cut(view)
    stop = next_cut(view.cut_points, len(view) - keep_last)
    stop = last if stop is None else min(stop, last)
    return slice(start, stop) if start is not None and start < stop else None


def ends(view: View, keep_first: int, keep_last: int) -> set[int]:
    """Return the indices of the first ``keep_first`` and of the last ``keep_last`` events, counted
    one by one.
    """
    count = len(view)
    return {*range(min(keep_first, count)), *range(max(0, count - keep_last), count)}


def unkept(view: View, kept: Set[int], *, summaries: bool = False) -> tuple[Event, ...]:
    """Return the events to forget if a strategy keeps the events at the indices ``kept``.

    The choice is extended to whole units, so only more events stay: an event stays if one event of
    its unit is kept. Calls that wait and the events from ``kept_place`` on stay too, and summaries
    of forgotten events, which belong to no unit, unless ``summaries`` says that they are chosen
    like other events.
    """
    events: list[Event] = []
    points = view.cut_points
    start = 0
    for unit in sorted(
        {bisect_right(points, index) for index in (*kept, *range(kept_place(view), len(view)))}
    ):
        events += view.events[start : points[unit - 1]]
        start = points[unit] if unit < len(points) else len(view)
    events += view.events[start : points[-1]]
    return apart(
        view,
        events if summaries else [event for event in events if not stands_for_forgotten(event)],
    )


def held(view: View, action: CondensationAction) -> CondensationAction:
    """Return a condensation without the events that must stay: those from ``kept_place`` on, calls
    that wait or may have run, and of each unit that is sent all, where one stays. A summary then
    stands in the place of the first event that goes.

    Raises ``NoCondensationAvailable`` where no event of the log may go, or what stays could not be
    sent.
    """
    shown = {event.id for event in view.events}
    named = ids_named(action, shown)
    ids = named.difference(event.id for event in view[min(view.cut_points[-1], kept_place(view)) :])
    ids.difference_update(view.kept, in_doubt(view.events))
    sent = sent_ids(view)  # parts of abandoned calls may go alone: no model is sent the others
    while parted := left_behind_by_ids(view.events, view.left_behind, shown - ids) & sent:
        ids -= parted
    chosen = tuple(event for event in view.events if event.id in ids)
    going = apart(view, chosen) if action.summary is None else chosen
    if not real(going):
        why = (
            f"the condensation names {len(named)} of {len(view)} events, which stay, alone or with"
            " their unit"
        )
        raise NoCondensationAvailable(f"nothing can be forgotten: {why}{unseen_in(view)}")
    if whole := len(named) - len(going):
        offset = None if action.summary is None else view.events.index(going[0])
        metadata = {**action.metadata, "events_kept_whole": whole}
        action = forget(going, metadata, summary=action.summary, offset=offset)
    after = view.then((action,))
    lost = sent - sent_ids(after) - {event.id for event in going}
    if lost or (_has_message(view) and not _has_message(after)):
        if lost:
            what = f"{len(lost)} events that stay could not"
        else:
            what = "no message could"
        raise NoCondensationAvailable(f"without the {len(going)} events to forget {what} be sent")
    return action


def _has_message(view: View) -> bool:
    """Return whether a model is sent more of a View than a system prompt."""
    sent = (
        event
        for event in map(view.__getitem__, view.fit_positions)
        if not isinstance(event, SystemMessage)
    )
    return any(
        says_something(getattr(event, "content", "…")) and not is_unseen(event) for event in sent
    )


def apart(view: View, forgotten: Iterable[Event]) -> tuple[Event, ...]:
    """Return ``forgotten`` without the events that must stay because no summary takes their place.

    A tool loop ends at the next event that is neither an action nor an observation. If that event
    is forgotten, the loop continues into the next calls. A loop with an abandoned call is then
    dropped together with them (docs/internals/decisions/0031-joined-loops.md). So if an event would
    be lost, such an event stays after every loop.
    """
    going = {event.id: event for event in forgotten}
    after = view.with_events(event for event in view.events if event.id not in going)
    if sent_ids(view) <= sent_ids(after) | going.keys():
        return tuple(going.values())
    in_a_loop = False
    for event in view.events:
        if isinstance(event, Action | Observation):
            in_a_loop = in_a_loop or event.id not in going
        elif not is_unseen(event) and event.id not in view.left_behind:
            if in_a_loop:
                going.pop(event.id, None)
            in_a_loop = False
    return tuple(going.values())


def after_system_prompt(view: View) -> int:
    """Return the index after the first system prompt, which a model always needs; 0 without a
    system prompt.
    """
    return next(
        (index + 1 for index, event in enumerate(view.events) if isinstance(event, SystemMessage)),
        0,
    )


def stands_for_forgotten(event: Event) -> bool:
    """Return whether this is the summary of a condensation. A summary in an imported log is an
    ordinary event: the log holds it and the events that it summarizes.
    """
    return isinstance(event, CondensationSummary) and event.id < 0


def sent_ids(view: View) -> set[int]:
    """Return the ids of the events of a View that a model is sent."""
    return {view[position].id for position in view.fit_positions}


def ids_named(action: CondensationAction, shown: Iterable[int]) -> set[int]:
    """Return those of these ids of events and summaries that a condensation forgets."""
    intervals, summaries = action.forgotten
    return {each for each in shown if each in summaries or contains(intervals, each)}


def real(events: Iterable[Event]) -> int:
    """Count these events without summaries, which are not in the log."""
    return sum(event.id >= 0 for event in events)


def forget(
    events: Sequence[Event],
    metadata: Mapping[str, Any],
    *,
    summary: str | None = None,
    offset: int | None = None,
) -> CondensationAction:
    """Return the condensation that forgets ``events`` and summaries, by their ids.

    It has a range if the ids are consecutive, else a list: a range never names an event that stays.
    """
    ids = sorted(event.id for event in events)
    named: dict[str, Any] = {"forgotten_event_ids": tuple(ids)}
    if len(ids) > 1 and ids[0] >= 0 and ids[-1] - ids[0] == len(ids) - 1:
        named = {"forgotten_events_start_id": ids[0], "forgotten_events_end_id": ids[-1]}
    return CondensationAction(
        **named, summary=summary, summary_offset=offset, metadata=dict(metadata)
    )
