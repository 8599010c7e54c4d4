"""Select the part of a View to forget: one arithmetic over cut points, for all strategies.

A View may be cut only where no call is separated from its observation. A strategy says how much it wants to keep at
both ends. The borders are moved to cut points here, and the events between them become a condensation here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Observation,
    SystemMessage,
)
from foldlog.projections import View
from foldlog.projections.units import is_unseen


def next_cut(cut_points: Sequence[int], wanted: int) -> int | None:
    """Return the smallest cut point at or after ``wanted``; None if there is none."""
    place = bisect_left(cut_points, wanted)
    return cut_points[place] if place < len(cut_points) else None


def kept_place(view: View) -> int:
    """Return the index of the first event that must stay: see ``View.kept_from``. It is the length if each may go."""
    kept_from = view.kept_from
    if kept_from is None:
        return len(view)
    return next((index for index, event in enumerate(view.events) if event.id >= kept_from), len(view))


def unseen_in(view: View) -> str:
    """Return how many events must stay, for an error; empty if each may go."""
    unseen = len(view) - kept_place(view)
    return f"; its last {unseen} stay until a model was shown them" if unseen else ""


def last_cut(view: View) -> int:
    """Return the last cut point of the View before an event that must stay."""
    return view.cut_points[bisect_right(view.cut_points, kept_place(view)) - 1]


def middle(view: View, keep_first: int, keep_last: int) -> slice | None:
    """Return the span between the first ``keep_first`` and the last ``keep_last`` events; None if it is empty.

    Borders move to the next cut point, so the head may grow and the tail may shrink by the rest of a unit. The span
    ends at ``last_cut`` at most: no cut point follows a call that waits for its observation, so the tail keeps the
    call. A negative ``keep_last`` gives None.
    """
    if keep_last < 0:
        return None
    start = next_cut(view.cut_points, keep_first)
    stop = next_cut(view.cut_points, len(view) - keep_last)
    stop = last_cut(view) if stop is None else min(stop, last_cut(view))
    return slice(start, stop) if start is not None and start < stop else None


def ends(view: View, keep_first: int, keep_last: int) -> set[int]:
    """Return the indices of the first ``keep_first`` and of the last ``keep_last`` events, counted one by one."""
    count = len(view)
    return {*range(min(keep_first, count)), *range(max(0, count - keep_last), count)}


def unkept(view: View, kept: Set[int], *, summaries: bool = False) -> tuple[Event, ...]:
    """Return the events to forget if a strategy keeps the events at the indices ``kept``.

    The choice is extended to whole units, so only more events stay: an event stays if one event of its unit is kept.
    Open calls stay too, and the events from ``kept_place`` on. Summaries of forgotten events belong to no unit. They
    always stay, unless ``summaries`` says that they are chosen like other events.
    """
    events: list[Event] = []
    points, start = view.cut_points, 0
    for unit in sorted({bisect_right(points, index) for index in (*kept, *range(kept_place(view), len(view)))}):
        events += view.events[start : points[unit - 1]]
        start = points[unit] if unit < len(points) else len(view)
    events += view.events[start : points[-1]]
    return apart(view, events if summaries else [event for event in events if not stands_for_forgotten(event)])


def apart(view: View, forgotten: Iterable[Event]) -> tuple[Event, ...]:
    """Return ``forgotten`` without the events that must stay because no summary takes their place.

    A tool loop ends at the next event that is neither an action nor an observation. If that event is forgotten, the
    loop continues into the next calls. A loop with an abandoned call is then dropped together with them
    (docs/decisions/0031-joined-loops.md). So if an event would be lost, such an event stays after every loop.
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
    """Return the index after the first system prompt, which a model always needs; 0 without a system prompt."""
    return next((index + 1 for index, event in enumerate(view.events) if isinstance(event, SystemMessage)), 0)


def stands_for_forgotten(event: Event) -> bool:
    """Return whether this is the summary of a condensation. A summary in an imported log is an ordinary event: the log
    holds it and the events that it summarizes.
    """
    return isinstance(event, CondensationSummary) and event.id < 0


def sent_ids(view: View) -> set[int]:
    """Return the ids of the events of a View that a model is sent."""
    return {view[position].id for position in view.fit_positions}


def real(events: Iterable[Event]) -> int:
    """Count these events without summaries, which are not in the log."""
    return sum(event.id >= 0 for event in events)


def forget(
    events: Sequence[Event], metadata: Mapping[str, Any], *, summary: str | None = None, offset: int | None = None
) -> CondensationAction:
    """Return the condensation that forgets ``events`` and summaries, by their ids.

    It has a range if the ids are consecutive, else a list: a range never names an event that stays.
    """
    ids = sorted(event.id for event in events)
    named: dict[str, Any] = {"forgotten_event_ids": tuple(ids)}
    if len(ids) > 1 and ids[0] >= 0 and ids[-1] - ids[0] == len(ids) - 1:
        named = {"forgotten_events_start_id": ids[0], "forgotten_events_end_id": ids[-1]}
    return CondensationAction(**named, summary=summary, summary_offset=offset, metadata=dict(metadata))
