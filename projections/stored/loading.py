"""Load the View of a stored conversation from its last revision and the later events, or from all
events.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from foldlog.eventstore import Event, ReadTransaction, Retraction
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.recorders.types import Record
from foldlog.projections.intervals import normalize
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision import (
    EMPTY_FOLD,
    ViewFold,
    fold_on,
    from_revision,
    intervals_of,
    named_condensations,
    revision_after_retraction,
    spans_at,
)
from foldlog.projections.stored.revision_codec import (
    CODE,
    PROJECTION,
    Revision,
    UnreadableRevision,
    decode_revision,
    encode_revision,
)

CHUNK = 1_000
"""The smallest number of events in one read of the log. The log is read in chunks, so the memory
grows with the View and not with the log.
"""


class StoredPast:
    """The folds of a stored conversation at earlier versions.

    If ``stored`` is false, no stored revision is used. Callers that compare or replace stored
    revisions pass false. ``records`` contains revisions that the caller made but has not stored.
    Use a ``StoredPast`` only while the read transaction of ``reading`` is open.
    """

    def __init__(
        self, reading: ReadTransaction, *, stored: bool = True, records: Iterable[Record] = ()
    ) -> None:
        self._reading = reading
        self._stored = stored
        self._records = {record.version: record for record in records}
        self._versions = sorted(self._records)

    def at(self, version: int) -> ViewFold:
        """Return the fold at ``version``."""
        loaded = load_revision(self._reading, version, self)
        folded = EMPTY_FOLD if loaded is None else loaded[0]
        for folded_further, _ in fold_log(self._reading, folded, version, self):
            folded = folded_further
        return folded

    def revision_at(self, version: int) -> tuple[int, Revision] | None:
        """Return the last revision at or before ``version``, with its own version. Return None if
        this revision is missing or unreadable.
        """
        revision = stored_revision(version, self)
        if revision is None or any(self._reading.structural_events(revision[0], version)):
            return None
        return revision

    def keep(self, record: Record) -> None:
        """Remember a revision that was just made, and may not be stored yet."""
        if record.version not in self._records:
            self._records[record.version] = record
            insort(self._versions, record.version)

    def record_at(self, version: int) -> Record | None:
        """Return the last known record at or before ``version``, or None."""
        index = bisect_right(self._versions, version)
        own = self._records[self._versions[index - 1]] if index else None
        if self._stored and self._reading.structural:
            stored = self._reading.record_at(PROJECTION, version)
        else:
            stored = None
        if own is None or (stored is not None and stored.version > own.version):
            return stored
        return own


def fold_events(
    start: ViewFold, events: Sequence[Event], past: StoredPast
) -> tuple[ViewFold, list[Record]]:
    """Continue the fold with the next events of the log. Return the fold, and a record for each
    structural event.
    """
    changes = [event for event in events if event.shown or is_structural(event)]
    return fold_on(start, changes, start.version + len(events), past)


def fold_log(
    reading: ReadTransaction, start: ViewFold, version: int, past: StoredPast
) -> Iterator[tuple[ViewFold, list[Record]]]:
    """Yield the fold after each chunk of events, with the revisions of the chunk. A chunk costs one
    pass over the View. The chunks grow with the View, so all chunks together cost at most one pass
    over the events.
    """
    folded = start
    while folded.state.version < version:
        start_id = folded.state.version
        if version - start_id <= CHUNK:
            stop = version
        else:
            stop = min(version, start_id + max(CHUNK, len(folded.state.items) // 2))
        # A View depends only on events that are shown or structural.
        changes = reading.flagged_events([(start_id, stop - 1)])
        folded, records = fold_on(folded, changes, stop, past)
        yield folded, records


def fold_whole(reading: ReadTransaction) -> tuple[ViewFold, list[Record]]:
    """Fold the log from its first event, without the stored revisions. Return the fold, and all
    revisions.
    """
    folded = EMPTY_FOLD
    records = list[Record]()
    for folded_further, chunk_records in fold_log(
        reading, EMPTY_FOLD, reading.version, StoredPast(reading, stored=False)
    ):
        folded = folded_further
        records += chunk_records
    return folded, records


def load_revision(
    reading: ReadTransaction, version: int, past: StoredPast
) -> tuple[ViewFold, list[Record]] | None:
    """Load the last revision at or before ``version``, and fold the events after it, up to
    ``version``, but at most one chunk.

    Without a revision, fold from the first event. Return the fold, and the revisions that are
    missing before ``version``. Return None if the last revision is unreadable or was made by
    another version of the code. Cost: reading the events that the revision shows, and at most one
    chunk of later events.
    """
    stored = stored_revision(version, past)
    if stored is None:
        return None
    stored_at, revision = stored
    try:
        return _load(reading, stored_at, revision, min(version, stored_at + CHUNK), past)
    except UnreadableRevision:
        # The caller rebuilds the View from the log, and ``audit`` reports the revision.
        return None


def stored_revision(version: int, past: StoredPast) -> tuple[int, Revision] | None:
    """Return the last revision at or before a version, and the version of the revision. Return None
    if the revision is unreadable, or if another version of the code made it.
    """
    record = past.record_at(version)
    if record is None:
        return 0, Revision()
    if record.code != CODE:
        return None
    try:
        return record.version, decode_revision(record)
    except UnreadableRevision:
        return None


def returned_record(retraction: Retraction, past: StoredPast) -> Record | None:
    """Return the revision after a retraction, without reading an event. Return None if an earlier
    revision that this needs is missing.
    """
    present = past.revision_at(retraction.id)
    earlier = past.revision_at(target(retraction))
    if present is None or earlier is None:
        return None
    revision = revision_after_retraction(present[1], earlier[1], earlier[0], target(retraction))
    return encode_revision(retraction.id + 1, revision)


def is_stored(reading: ReadTransaction, record: Record) -> bool:
    """Return whether the store has a readable revision of the record's version."""
    stored = stored_revision(record.version, StoredPast(reading))
    return stored is not None and stored[0] == record.version


def _load(
    reading: ReadTransaction, version: int, revision: Revision, stop: int, past: StoredPast
) -> tuple[ViewFold, list[Record]]:
    """Load the revision of ``version``, and continue the fold up to ``stop``. Return the fold, and
    the revisions after ``version``. Raises ``UnreadableRevision``.
    """
    shown_intervals = intervals_of(spans_at(revision.kept, version, stop))
    condensation_intervals = (
        (condensation, condensation) for condensation in named_condensations(revision)
    )
    events = reading.flagged_events(normalize([*shown_intervals, *condensation_intervals]))
    shown: list[Event] = []
    structural: list[Event] = []
    later: list[Event] = []
    for event in events:
        if event.id >= version:
            later.append(event)
        elif is_structural(event):
            structural.append(event)
        else:
            shown.append(event)
    folded = from_revision(version, revision, shown, structural)
    return fold_on(folded, later, stop, past)
