"""Find the events of a log that retractions took back."""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.eventstore import Event, Retraction
from foldlog.projections.intervals import Intervals


def target(retraction: Retraction) -> int:
    """Return the version to which a recorded retraction returns. An imported one that names a later
    version than its own returns to its own, and so takes nothing back.
    """
    return min(retraction.version, retraction.id)


def intervals_kept(structural: Iterable[Event], version: int) -> Intervals:
    """Return the ids of the events that made the View at ``version``, as ascending intervals:
    events that no retraction took back, and events that a later retraction brought back.

    ``structural`` are the structural events of the log, up to ``version`` at least.
    """
    kept: list[tuple[int, int]] = []
    stop = version
    for retraction in reversed([each for each in structural if isinstance(each, Retraction)]):
        if retraction.id < stop:
            kept.append((retraction.id + 1, stop - 1))
            stop = target(retraction)
    kept.append((0, stop - 1))
    return tuple((first, last) for first, last in reversed(kept) if first <= last)
