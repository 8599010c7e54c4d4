"""Find the events of a log that retractions took back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldlog.eventstore import Event, Retraction
from foldlog.projections.intervals import Intervals


def target(retraction: Retraction) -> int:
    """Return the version to which a recorded retraction returns. An imported one that names a later version than its
    own returns to its own, and so takes nothing back.
    """
    return min(retraction.version, retraction.id)


def intervals_kept(structural: Iterable[Event], version: int) -> Intervals:
    """Return the ids of the events that made the View at ``version``, as ascending intervals: events that no retraction
    took back, and events that a later retraction brought back.

    ``structural`` are the structural events of the log, up to ``version`` at least.
    """
    kept: list[tuple[int, int]] = []
    stop = version
    for retraction in effective(structural, version):
        if retraction.id + 1 < stop:
            kept.append((retraction.id + 1, stop - 1))
        stop = target(retraction)
    if stop:
        kept.append((0, stop - 1))
    return tuple(reversed(kept))


def effective(structural: Iterable[Event], version: int) -> Iterator[Retraction]:
    """Yield the retractions that no later one took back, newest first, of the structural events up to ``version``."""
    retractions = [event for event in structural if isinstance(event, Retraction) and event.id < version]
    stop = version
    for retraction in reversed(retractions):
        if retraction.id < stop:
            yield retraction
            stop = target(retraction)
