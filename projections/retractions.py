"""Find the events of a log that retractions took back.

See docs/internals/decisions/0033-tails.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldlog.eventstore import Event, Retraction
from foldlog.projections.intervals import Intervals


def target(retraction: Retraction) -> int:
    """Return the version to which a recorded retraction returns. An imported retraction may name a
    version after itself, and then takes nothing back.
    """
    return min(retraction.version, retraction.id)


def intervals_kept(structural: Iterable[Event], version: int) -> Intervals:
    """Return the ids of the events that made the View at ``version``, as ascending intervals. The
    result contains no events that a retraction took back, unless a later retraction brought them
    back.

    ``structural`` contains the structural events of the log, at least up to ``version``.
    """
    intervals: list[tuple[int, int]] = []
    stop = version
    for retraction in reversed([event for event in structural if isinstance(event, Retraction)]):
        if retraction.id < stop:
            intervals.append((retraction.id + 1, stop - 1))
            stop = target(retraction)
    intervals.append((0, stop - 1))
    return tuple((first, last) for first, last in reversed(intervals) if first <= last)
