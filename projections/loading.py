"""Load a View from a stored conversation: from its revisions where it can, and the events since."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from eventstore.events import Event, is_structural
from eventstore.transaction import Record, Snapshot
from projections.revision import ViewFold, fold_on, from_revision, kept_intervals, named_condensations
from projections.revision_codec import CODE, PROJECTION, Base, Revision, UnreadableRevision, decode_revision

__all__ = ["CHUNK", "Progress", "fold_events", "fold_log", "is_stored", "load_revision", "read_changes"]

Progress = Callable[[int, int], None]
"""Is told how many events are done, of how many."""

CHUNK = 1_000
"""Events of the log between two reads, so that memory does not grow with it."""


def read_changes(snapshot: Snapshot, start: int, stop: int) -> Sequence[Event]:
    """Return the shown and the structural events with ``start <= id < stop``, in order: those that matter to a View.

    Cost: these events.
    """
    structural = list(snapshot.structural_events(start, stop))
    return _in_order(snapshot.shown_events([(start, stop - 1)]), structural)


def fold_events(start: ViewFold, events: Sequence[Event]) -> tuple[ViewFold, list[Record]]:
    """Fold on over ``events``, all that follow ``start``. Return the fold, and the revisions in between."""
    changes = [event for event in events if event.shown or is_structural(event)]
    return fold_on(start, changes, start.version + len(events))


def fold_log(snapshot: Snapshot, start: ViewFold, version: int) -> Iterator[tuple[ViewFold, list[Record]]]:
    """Fold on from ``start`` to ``version``. Yield the fold after each chunk, with the revisions of that chunk."""
    folded = start
    while folded.version < version:
        stop = min(version, folded.version + CHUNK)
        folded, records = fold_on(folded, read_changes(snapshot, folded.version, stop), stop)
        yield folded, records


def load_revision(snapshot: Snapshot, version: int) -> tuple[ViewFold, list[Record]] | None:
    """Load the last revision at or before ``version``, and fold on to ``version``, but at most by one chunk.

    Return the fold, and the revisions that are missing in between; None where the conversation has no revision that
    this code made and can read. Cost: one ranged read, of the events that the revision keeps and of those since.
    """
    record = snapshot.record_at(PROJECTION, version)
    if record is None or record.code != CODE:
        return None
    base = None if record.base is None else snapshot.record_at(PROJECTION, record.base)
    try:
        stop = min(version, record.version + CHUNK)
        return _load(snapshot, record.version, *decode_revision(record, base), stop)
    except UnreadableRevision:
        return None  # it is rebuilt from the log; an audit says where that was needed


def is_stored(snapshot: Snapshot, record: Record) -> bool:
    """Return whether the revisions up to this one are stored: a writer that stores one has stored those before it."""
    stored = snapshot.record_at(PROJECTION, record.version)
    return stored is not None and stored.version == record.version and stored.code == CODE


def _load(snapshot: Snapshot, version: int, revision: Revision, base: Base, stop: int) -> tuple[ViewFold, list[Record]]:
    structural = list(snapshot.structural_events(version, stop))
    wanted = kept_intervals(revision.kept, stop)
    if len(revision.kept) % 2 == 0 and version < stop:
        wanted = (*wanted, (version, stop - 1))
    shown = [event for event in snapshot.shown_events(wanted) if not is_structural(event)]
    since = next((place for place, event in enumerate(shown) if event.id >= version), len(shown))
    folded = from_revision(version, revision, base, shown[:since], list(_read_named(snapshot, revision)))
    return fold_on(folded, _in_order(shown[since:], structural), stop)


def _read_named(snapshot: Snapshot, revision: Revision) -> Iterator[Event]:
    """Read the condensations whose summaries a revision shows. Cost: those, and a read for each run of neighbours."""
    for first, last in named_condensations(revision):
        if first == last:
            yield from snapshot.events(first, first + 1)
        else:
            yield from snapshot.structural_events(first, last + 1)


def _in_order(shown: Sequence[Event], structural: Sequence[Event]) -> Sequence[Event]:
    """Return both together, by id. An event that is shown and structural is in both, and comes once."""
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
