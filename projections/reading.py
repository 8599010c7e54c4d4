"""The fold of a stored conversation, from what one snapshot holds: its events, and the revisions that were kept."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from eventstore.events import Event, is_structural
from eventstore.transaction import Record, Snapshot
from projections.revising import Revised, condensations_named, intervals, restored, revise
from projections.revisions import CODE, PROJECTION, Base, Revision, Undecodable, decoded

__all__ = ["CHUNK", "Progress", "changes", "folded", "gone_on", "is_stored", "opened"]

Progress = Callable[[int, int], None]
"""Is told how many events are done, of how many."""

CHUNK = 1_000
"""Events of the log between two reads, so that memory does not grow with it."""


def changes(snapshot: Snapshot, start: int, stop: int) -> Sequence[Event]:
    """Of ``start <= id < stop`` the events that matter to a View, in order: those shown, and the structural ones.

    Cost: these.
    """
    structural = list(snapshot.structural_events(start, stop))
    return _in_order(snapshot.shown_events([(start, stop - 1)]), structural)


def gone_on(start: Revised, events: Sequence[Event]) -> tuple[Revised, list[Record]]:
    """The fold after ``events``, all that follow ``start``, and the records in between."""
    matter = [event for event in events if event.shown or is_structural(event)]
    return revise(start, matter, start.version + len(events))


def folded(snapshot: Snapshot, start: Revised, version: int) -> Iterator[tuple[Revised, list[Record]]]:
    """Fold on from ``start`` up to ``version``, and yield now and then how far it came, with the records since."""
    revised = start
    while revised.version < version:
        stop = min(version, revised.version + CHUNK)
        revised, records = revise(revised, changes(snapshot, revised.version, stop), stop)
        yield revised, records


def opened(snapshot: Snapshot, version: int) -> tuple[Revised, list[Record]] | None:
    """The fold at ``version``, or at most a chunk after the last revision before it, and the records missing
    in between; None where there is no revision that this code made and can read.

    Cost: one ranged read, of what the revision keeps and of what came since.
    """
    record = snapshot.record_at(PROJECTION, version)
    if record is None or record.code != CODE:
        return None
    base = None if record.base is None else snapshot.record_at(PROJECTION, record.base)
    try:
        return _read(snapshot, record.version, *decoded(record, base), min(version, record.version + CHUNK))
    except Undecodable:
        return None  # it is made again, from the log; an audit says where that is needed


def is_stored(snapshot: Snapshot, record: Record) -> bool:
    """Whether the revisions up to this one are there: its writer kept them, and with it those before."""
    stored = snapshot.record_at(PROJECTION, record.version)
    return stored is not None and stored.version == record.version and stored.code == CODE


def _read(snapshot: Snapshot, version: int, revision: Revision, base: Base, stop: int) -> tuple[Revised, list[Record]]:
    structural = list(snapshot.structural_events(version, stop))
    wanted = intervals(revision.kept, stop)
    if len(revision.kept) % 2 == 0 and version < stop:
        wanted = (*wanted, (version, stop - 1))
    shown = [event for event in snapshot.shown_events(wanted) if not is_structural(event)]
    since = next((place for place, event in enumerate(shown) if event.id >= version), len(shown))
    revised = restored(version, revision, base, shown[:since], list(_named(snapshot, revision)))
    return revise(revised, _in_order(shown[since:], structural), stop)


def _named(snapshot: Snapshot, revision: Revision) -> Iterator[Event]:
    """The condensations whose summaries a revision shows. Cost: those, and a read for each run of neighbours."""
    for first, last in condensations_named(revision):
        if first == last:
            yield from snapshot.events(first, first + 1)
        else:
            yield from snapshot.structural_events(first, last + 1)


def _in_order(shown: Sequence[Event], structural: Sequence[Event]) -> Sequence[Event]:
    """Both together, by id. One that is shown and structural is in both, and comes once."""
    events: list[Event] = []
    start = 0
    for event in structural:
        place = bisect_left(shown, event.id, start, key=_id)
        events += shown[start:place]
        events.append(event)
        start = place + (place < len(shown) and shown[place].id == event.id)
    events += shown[start:]
    return events


def _id(event: Event) -> int:
    return event.id
