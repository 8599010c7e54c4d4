"""Which events of a log retractions took back."""

from __future__ import annotations

from collections.abc import Iterable

from eventstore.events import Event, Retraction
from projections.intervals import Intervals

__all__ = ["intervals_kept", "target"]


def target(retraction: Retraction) -> int:
    """Return the version that a recorded retraction returns to. An imported one that names a later version than its own
    returns to its own: it takes nothing back.
    """
    return min(retraction.version, retraction.id)


def intervals_kept(structural: Iterable[Event], version: int) -> Intervals:
    """Return the ids of the events that made the View at ``version``, as ascending intervals: those that no retraction
    took back, or that a later one brought again.

    ``structural`` are the structural events of the log, up to ``version`` at least.
    """
    returns = {event.id: target(event) for event in structural if isinstance(event, Retraction) and event.id < version}
    kept: list[tuple[int, int]] = []
    stop = version
    for event_id in sorted(returns, reverse=True):
        if event_id >= stop:
            continue  # a later retraction took this one back
        if event_id + 1 < stop:
            kept.append((event_id + 1, stop - 1))
        stop = returns[event_id]
    if stop:
        kept.append((0, stop - 1))
    return tuple(reversed(kept))
