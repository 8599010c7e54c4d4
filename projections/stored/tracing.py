"""Find the fate of a forgotten event in the revisions: a revision has a tenth of the size of its condensation.

Revisions tell it where all structural events since are condensations, and none of them came from V0. Then an event that
a View does not show any more never comes back, and a summary that is gone was summarized by the condensation that
forgot it, if that has a summary. In other cases, and where a revision is missing, the events themselves must be read.
"""

from __future__ import annotations

from eventstore.events import Event, summary_of
from eventstore.recorders.types import Record
from eventstore.stored.read_transaction import ReadTransaction
from projections.explain import Traced
from projections.intervals import contains
from projections.stored.revision import kept_intervals
from projections.stored.revision_codec import (
    CODE,
    PROJECTION,
    RUN,
    Ints,
    Revision,
    UnreadableRevision,
    decode_counts,
    decode_revision,
    decode_summaries,
)

_NOTHING = Revision()


class _NotTold(Exception):
    """The revisions do not tell the fate of the event."""


def are_only_condensations(reading: ReadTransaction, start: int, stop: int) -> bool:
    """Return whether the revisions prove that all structural events with ``start <= id < stop`` are condensations.

    Every other structural event increases the number of structural events and not that of condensations, which a
    retraction can even decrease. Cost: two revisions and an event.
    """
    try:
        before, after = (_counts(_record(reading, version)) for version in (start, stop))
    except (UnreadableRevision, _NotTold):
        return False
    is_complete = after.structural == reading.structural_before(stop)
    return is_complete and after.structural - after.condensations == before.structural - before.condensations


def trace(reading: ReadTransaction, event: Event, version: int) -> Traced | None:
    """Return the condensation that forgot an event or a summary, which was shown and is not shown at ``version``; and
    the id of the condensation whose summary stands for it at ``version``.

    None where the revisions do not tell. Cost: the revisions after the event, and two events.
    """
    came = event.id if event.id >= 0 else summary_of(event.id)
    if not are_only_condensations(reading, came + 1, version):
        return None
    try:
        forgotten_at = _first_without(reading, event.id, came + 1, version)
        stands_in = _last_instead(reading, forgotten_at, version)
    except (UnreadableRevision, _NotTold):
        return None
    (by,) = reading.events(forgotten_at - 1, forgotten_at)
    return Traced(by, stands_in)


def _first_without(reading: ReadTransaction, event_id: int, low: int, high: int) -> int:
    """Return the first version at which a View does not show an event that is shown at ``low`` and not at ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        if _is_shown(reading, event_id, middle):
            low = middle
        else:
            high = middle
    return high


def _is_shown(reading: ReadTransaction, event_id: int, version: int) -> bool:
    record = _record(reading, version)
    if record is None:
        return True
    base = None if record.base is None else _record(reading, record.base)
    revision, _ = decode_revision(record, base)
    if event_id < 0:
        return _shows(revision.summaries, summary_of(event_id))
    return contains(kept_intervals(revision.kept, version), event_id)


def _last_instead(reading: ReadTransaction, forgotten_at: int, version: int) -> int | None:
    """Follow the summaries that stood, one after the other, for the events that the condensation of ``forgotten_at``
    forgot. Return the last condensation of this chain; None where one of the chain has no summary.
    """
    expected = _counts(_record(reading, forgotten_at - 1)).structural + 1
    base = 0
    whole: Ints = ()
    followed = forgotten_at - 1
    for record in reading.records(PROJECTION, forgotten_at - 1):
        if record.version > version:
            break
        counts = _counts(record)
        if counts.structural != expected:
            raise _NotTold
        expected += 1
        if record.base is None:
            base, whole = record.version, decode_summaries(record, counts, ())
        elif record.base != base:
            full = _record(reading, record.base)
            base, whole = record.base, () if full is None else decode_summaries(full, _counts(full), ())
        summaries = whole if record.base is None else decode_summaries(record, counts, whole)
        if not _shows(summaries, followed):
            followed = record.version - 1
            if not _shows(summaries, followed):
                return None
    return followed


def _shows(summaries: Ints, condensation: int) -> bool:
    """Return whether the summary of a condensation is among these runs of a revision. A run has the summaries of all
    condensations from one id to another.
    """
    for place in range(0, len(summaries), RUN):
        first, last = summaries[place + 1], summaries[place + 3]
        if first <= condensation <= last or last <= condensation <= first:
            return True
    return False


def _record(reading: ReadTransaction, version: int) -> Record | None:
    record = reading.record_at(PROJECTION, version)
    if record is not None and record.code != CODE:
        raise _NotTold
    return record


def _counts(record: Record | None) -> Revision:
    """Return the fields that a record holds in full. The record belongs to no View of V0."""
    if record is None:
        return _NOTHING
    counts = decode_counts(record)
    if record.code != CODE or counts.register or counts.tomb:
        raise _NotTold
    return counts
