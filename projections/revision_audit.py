"""Fold a conversation from its first event, and compare every stored revision with the result, byte
for byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.eventstore import ReadTransaction, Store
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Record
from foldlog.projections.stored.loading import fold_whole
from foldlog.projections.stored.revision_codec import CODE, PROJECTION


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a stored revision. ``Views.rebuild`` replaces a revision that has a
    problem.
    """

    version: int
    problem: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the audit of one conversation. ``missing`` is the number of revisions that are
    not stored. A revision is missing if its structural event was appended without the projection,
    or if an earlier version of foldlog stored it in an older form. A missing revision is not a
    finding, because the next structural event stores all missing revisions.
    """

    conversation: str
    version: int
    revisions: int
    missing: int
    findings: tuple[Finding, ...]


def audit(store: Store, conversation: str) -> Audit:
    """Fold a conversation from its first event, and compare the fold with every stored revision.
    Missing events of an import are not made, because a check writes nothing.

    Raises the errors of ``Views.current``. Cost: reading the log, in one read transaction. Memory:
    the View, and a few hundred bytes for each structural event.
    """
    database = store.database

    def read(reader: Reader) -> Audit:
        state = find_existing(database, reader, conversation, as_stored=True)
        return _audit(ReadTransaction(reader, state, database))

    return database.recorder.query(read)


def _audit(reading: ReadTransaction) -> Audit:
    """Return the audit of the conversation that ``reading`` reads."""
    _, records = fold_whole(reading)
    rebuilt = {record.version: record for record in records}
    stored = {record.version: record for record in reading.records(PROJECTION)}
    damaged = set(reading.damaged_records(PROJECTION))
    missing = 0
    findings = list[Finding]()
    for version in sorted({*rebuilt, *stored, *damaged}):
        expected = rebuilt.get(version)
        found_record = stored.get(version)
        if version in damaged:
            findings.append(Finding(version, "its bytes were changed after it was stored"))
        elif expected is None:
            findings.append(Finding(version, "the log has no structural event with this version"))
        elif found_record is None or found_record.code < CODE:
            # The next structural event stores a missing revision, and replaces a revision in an
            # older form.
            missing += 1
        elif problem := _describe_difference(found_record, expected):
            findings.append(Finding(version, problem))
    return Audit(reading.conversation, reading.version, len(stored), missing, tuple(findings))


def _describe_difference(stored: Record, expected: Record) -> str | None:
    """Return what is wrong with a stored revision, or None."""
    if stored.code != CODE:
        return f"it was made by version {stored.code} of the fold; this is version {CODE}"
    if stored.body != expected.body:
        return "it differs from the fold of the log"
    return None
