"""Read the last events of a View from the end of a stored conversation, without the rest of the View."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldlog.eventstore import (
    MAY_BE_STRUCTURAL,
    NOT_RECORDED,
    CondensationAction,
    Event,
    ReadTransaction,
    is_structural,
)
from foldlog.projections.fold import summary_event
from foldlog.projections.intervals import Intervals
from foldlog.projections.stored.loading import StoredPast
from foldlog.projections.stored.revision import Run, intervals_of, run_members, runs, spanned
from foldlog.projections.stored.revision_codec import Revision, UnreadableRevision


def read_tail(reading: ReadTransaction, version: int, count: int, past: StoredPast) -> tuple[Event, ...] | None:
    """Return the last ``count`` events of the View at a version, in order.

    None where the whole View is needed: revisions are missing, or the conversation is of the V0 dialect. Cost: these
    events, the revision, and for summaries among them, the neighbouring condensations.
    """
    if count <= 0:
        return ()
    found = past.revision_at(version)
    if found is None:
        return None
    since, revision, _ = found
    if revision.tomb or revision.register:
        return None
    wanted = intervals_of(spanned(revision.kept, since, version))
    try:
        return _last_items(reading, revision, wanted, count)
    except UnreadableRevision:
        return None


def _last_items(reading: ReadTransaction, revision: Revision, wanted: Intervals, count: int) -> tuple[Event, ...]:
    standing: dict[int, list[Run]] = {}
    for run in runs(revision):
        standing.setdefault(run.after, []).append(run)
    newest_first: list[Event] = []
    for shown in shown_backwards(reading, wanted, count):
        start = 0
        for place in [place for place, event in enumerate(shown) if event.id in standing] if standing else ():
            newest_first += shown[start:place]
            start = place
            if len(newest_first) >= count:
                break
            newest_first += _summaries(reading, standing[shown[place].id])
        newest_first += shown[start:]
        if len(newest_first) >= count:
            break
    else:
        newest_first += _summaries(reading, standing.get(NOT_RECORDED, ()))
    return tuple(reversed(newest_first[:count]))


def _summaries(reading: ReadTransaction, standing: Sequence[Run]) -> Iterator[Event]:
    """Yield the summaries of runs that stand after one event, the last one first."""
    for run in reversed(standing):
        first, last = sorted((run.first, run.last))
        stored = reading.events(first, last + 1) if first == last else reading.structural_events(first, last + 1)
        summaries = {event.id: summary_event(event) for event in stored if isinstance(event, CondensationAction)}
        members = run_members(reading.version, run, list(summaries))
        yield from (summaries[condensation] for condensation in reversed(members))


def shown_backwards(reading: ReadTransaction, intervals: Intervals, count: int) -> Iterator[Sequence[Event]]:
    """Yield the shown events in ascending intervals in pages, newest first. The first page is of about ``count``."""
    left, size = list(intervals), count
    while left:
        some: list[tuple[int, int]] = []
        room = size
        while left and room > 0:
            first, last = left.pop()
            start = max(first, last + 1 - room)
            some.append((start, last))
            room -= last + 1 - start
            if start > first:
                left.append((first, start - 1))
        shown = reading.shown_events(some[::-1])
        if not MAY_BE_STRUCTURAL.isdisjoint(map(type, shown)):
            shown = [event for event in shown if not is_structural(event)]
        yield shown[::-1]
        size *= 2
