"""Make the revision after a retraction from two earlier revisions: no event of the View is read for it."""

from __future__ import annotations

from eventstore.events import Event, Retraction, is_structural
from eventstore.recorders.types import Record
from eventstore.stored.read_transaction import ReadTransaction
from projections.retractions import target
from projections.stored.loading import StoredPast, stored_revision
from projections.stored.revision_codec import Revision, encode_revision
from projections.stored.tail import shown_backwards

_NEAR = 4
"""The number of events that are read first in search of a shown one."""


def returned_revision(reading: ReadTransaction, retraction: Retraction, past: StoredPast) -> Record | None:
    """Return the revision after ``retraction``, the newest event of ``reading``: the same bytes that a fold gives.

    None where a fold is needed: revisions are missing, or the conversation is of the V0 dialect. Cost: two revisions,
    and the annotations around the place where the retraction cuts.
    """
    version = target(retraction)
    now, earlier = stored_revision(retraction.id, past), stored_revision(version, past)
    if now is None or earlier is None or now[1].structural + 1 != reading.structural:
        return None
    (_, before, base), (since, revision, _) = now, earlier
    if revision.tomb or revision.register:
        return None
    returned = Revision(
        kept=_closed(reading, revision.kept, since, version),
        summaries=revision.summaries,
        left_behind=revision.left_behind,
        requested=before.requested or revision.requested,
        structural=before.structural + 1,
        condensations=revision.condensations,
    )
    record, _ = encode_revision(retraction.id + 1, returned, base)
    return record


def _closed(reading: ReadTransaction, kept: tuple[int, ...], since: int, version: int) -> tuple[int, ...]:
    """Return the ends of the kept intervals that a revision of version ``since`` has once the shown events up to
    ``version`` follow it. Later events are in no interval.
    """
    if len(kept) % 2:
        last = last_shown(reading, kept[-1], version)
        return kept if last is None else (*kept, last.id + 1)
    first, last = first_shown(reading, since, version), last_shown(reading, since, version)
    return kept if first is None or last is None else (*kept, first.id, last.id + 1)


def first_shown(reading: ReadTransaction, start: int, stop: int) -> Event | None:
    """Return the first shown event with ``start <= id < stop``. Cost: the annotations before it."""
    size = _NEAR
    while start < stop:
        end = min(start + size, stop)
        for event in reading.shown_events([(start, end - 1)]):
            if not is_structural(event):
                return event
        start, size = end, 2 * size
    return None


def last_shown(reading: ReadTransaction, start: int, stop: int) -> Event | None:
    """Return the last shown event with ``start <= id < stop``. Cost: the annotations after it."""
    pages = shown_backwards(reading, ((start, stop - 1),), _NEAR) if start < stop else ()
    return next((event for page in pages for event in page), None)
