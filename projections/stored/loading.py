"""Load a View from a stored conversation: from its revisions where it can, and the events since."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from foldlog.eventstore import Event, ReadTransaction, Retraction
from foldlog.eventstore.inside import Record, is_structural
from foldlog.projections.intervals import normalize
from foldlog.projections.retractions import target
from foldlog.projections.stored.revision import (
    EMPTY_FOLD,
    ViewFold,
    fold_on,
    from_revision,
    intervals_of,
    named_condensations,
    returned,
    spanned,
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
"""The least number of events of the log between two reads: memory then grows with the View, not
with the log.
"""


class StoredPast:
    """The folds of a stored conversation at earlier versions, made from stored revisions or from
    given ones.

    ``stored=False`` trusts no stored revision: for callers that compare or replace them.
    ``records`` are revisions that the caller made before. Use it while the read transaction of
    ``reading`` is open.
    """

    def __init__(
        self, reading: ReadTransaction, *, stored: bool = True, records: Iterable[Record] = ()
    ) -> None:
        self._reading = reading
        self._stored = stored
        self._records = {record.version: record for record in records}
        self._versions = sorted(self._records)

    def at(self, version: int) -> ViewFold:
        """Return the fold at a version. Cost: its View, and the events since the last revision
        before it.
        """
        loaded = load_revision(self._reading, version, self)
        folded = EMPTY_FOLD if loaded is None else loaded[0]
        for further, _ in fold_log(self._reading, folded, version, self):
            folded = further
        return folded

    def revision_at(self, version: int) -> tuple[int, Revision] | None:
        found = stored_revision(version, self)
        if found is None or any(self._reading.structural_events(found[0], version)):
            return None
        return found

    def keep(self, record: Record) -> None:
        """Remember a revision that was just made, and may not be stored yet."""
        if record.version not in self._records:
            self._records[record.version] = record
            insort(self._versions, record.version)

    def record_at(self, version: int) -> Record | None:
        """Return the last revision at or before a version. Without structural events there is
        none.
        """
        place = bisect_right(self._versions, version)
        own = self._records[self._versions[place - 1]] if place else None
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
    """Fold on over ``events``, which follow ``start`` without a gap. Return the fold, and the
    revisions in between.
    """
    changes = [event for event in events if event.shown or is_structural(event)]
    return fold_on(start, changes, start.version + len(events), past)


def fold_log(
    reading: ReadTransaction, start: ViewFold, version: int, past: StoredPast
) -> Iterator[tuple[ViewFold, list[Record]]]:
    """Fold on from ``start`` to ``version``. Yield the fold after each chunk, with the revisions of
    that chunk.

    Each chunk costs the View once more. So a chunk grows with the View, and the cost of all chunks
    is that of the events.
    """
    folded = start
    while (at := folded.state.version) < version:
        if version - at <= CHUNK:
            stop = version
        else:
            stop = min(version, at + max(CHUNK, len(folded.state.items) // 2))
        changes = reading.flagged_events([(at, stop - 1)])  # a View depends on no other events
        folded, records = fold_on(folded, changes, stop, past)
        yield folded, records


def fold_whole(reading: ReadTransaction) -> tuple[ViewFold, list[Record]]:
    """Fold the log from its first event, and trust no stored revision. Return the fold, and all
    revisions.
    """
    folded = EMPTY_FOLD
    records = list[Record]()
    for further, some in fold_log(
        reading, EMPTY_FOLD, reading.version, StoredPast(reading, stored=False)
    ):
        folded = further
        records += some
    return folded, records


def load_revision(
    reading: ReadTransaction, version: int, past: StoredPast
) -> tuple[ViewFold, list[Record]] | None:
    """Load the last revision at or before ``version``, and fold on to ``version``, but at most by
    one chunk.

    Return the fold, and the revisions that are missing in between; None where the conversation has
    no revision that this code made and can read. Cost: one ranged read, of the events that the
    revision keeps and of those since.
    """
    found = stored_revision(version, past)
    if found is None or found[0] == 0:
        return None
    stored_at, revision = found
    try:
        return _load(reading, stored_at, revision, min(version, stored_at + CHUNK), past)
    except UnreadableRevision:
        return None  # it is rebuilt from the log; an audit says where that was needed


def stored_revision(version: int, past: StoredPast) -> tuple[int, Revision] | None:
    """Return the last revision at or before a version, with its own version. Before the first
    structural event it is an empty one, of version 0. None where the stored one is of another code
    or unreadable.
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
    """Return the revision after a retraction without an event of its View; None where one that it
    needs is missing.
    """
    now = past.revision_at(retraction.id)
    earlier = past.revision_at(target(retraction))
    if now is None or earlier is None:
        return None
    revision = returned(now[1], earlier[1], earlier[0], target(retraction))
    return encode_revision(retraction.id + 1, revision)


def is_stored(reading: ReadTransaction, record: Record) -> bool:
    """Return whether a revision can be read: a writer that stores one has stored those before
    it.
    """
    stored = stored_revision(record.version, StoredPast(reading))
    return stored is not None and stored[0] == record.version


def _load(
    reading: ReadTransaction, version: int, revision: Revision, stop: int, past: StoredPast
) -> tuple[ViewFold, list[Record]]:
    kept = intervals_of(spanned(revision.kept, version, stop))
    named = ((condensation, condensation) for condensation in named_condensations(revision))
    events = reading.flagged_events(normalize([*kept, *named]))
    shown: list[Event] = []
    structural: list[Event] = []
    since: list[Event] = []
    for event in events:
        if event.id >= version:
            since.append(event)
        elif is_structural(event):
            structural.append(event)
        else:
            shown.append(event)
    folded = from_revision(version, revision, shown, structural)
    return fold_on(folded, since, stop, past)
