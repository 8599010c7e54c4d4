"""Compare the events of an import with the records from which they were made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from foldlog._reports.records.decoding import decode_records
from foldlog.eventstore import Event, Store
from foldlog.eventstore.codec import encode
from foldlog.eventstore.errors import count
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import is_redacted
from foldlog.eventstore.maintenance.archive_objects import address_of_object, read_archived
from foldlog.eventstore.maintenance.verify import Unmade, Verdict, VerifyFinding, of_all
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.sources.reading import continued
from foldlog.eventstore.sources.tables import Made, Source, Sources, query_sources
from foldlog.formats.record_decoding import READER

_PAGE = 250
_UNLISTED = (
    "the list of the events that its records became lacks {}, which came from its source; an export"
    " may repeat them"
)
_OTHERWISE = "since the checkpoint, record {} of its source became other events than it has"
_ADDED = "since the checkpoint, it was put before the events of record {} of its source"
_BETWEEN = frozenset({"document_changes", "redaction"})
"""The kinds of events that may come between the events of records, because all records of an import
become events before anybody appends: facts that no record contains, and receipts.
"""
_NOT_COMPARED = (
    "the events that record {} of its source became since the checkpoint were not compared: {}"
)
_CONTINUES = (
    "its source says that it continues another conversation, but this conversation is no fork"
)
_TWICE = "the list of the events that its records became gives event {} to two records"


def find_wrong_events_of_records(store: Store, conversation: str) -> Iterator[str]:
    """Yield what is wrong with the list of the events that records became. Only events that name
    the format of the source are compared, which almost all imported events do.

    Raises the errors of reading. Cost: reading the conversation, if it has a source.
    """

    def read(sources: Sources) -> tuple[int, Source | None, Made]:
        state = sources.find(conversation)
        source = sources.of_state(state)
        if state is None or source is None:
            return 0, None, {}
        return state.begins, source, sources.made(source)

    begins, source, made = query_sources(store.database, read)
    if source is None or source.made < source.records:
        return
    spans = sorted(made.values())
    for (first, events), (next_first, _) in pairwise(spans):
        if next_first < first + events:
            yield _TWICE.format(next_first)
            return
    listed = {event_id for first, events in spans for event_id in range(first, first + events)}
    unlisted = [
        event.id
        for event in store.events(conversation, begins)
        if event.origin is not None
        and event.origin.format == source.format
        and event.id not in listed
    ]
    if unlisted:
        is_one = len(unlisted) == 1
        lacking = f"event {unlisted[0]}" if is_one else count(len(unlisted), "event")
        yield _UNLISTED.format(lacking)


def verify_with_records(store: Store, note: StoreCheckpoint) -> Iterator[Verdict]:
    """Yield the verdicts of ``verify_against``. If the records of an import became events since the
    checkpoint, which covers only the records, decode them again, and compare the events.

    Raises the errors of reading. Cost: decoding the source of each such import.
    """
    for verdict in verify_against(store, note):
        if verdict.conversation is None or verdict.unmade_then is None:
            yield verdict
            continue
        found = _find_other_events(store, verdict.conversation, verdict.unmade_then)
        yield verdict._replace(findings=(*verdict.findings, *found))


def _find_other_events(store: Store, conversation: str, unmade: Unmade) -> Iterator[VerifyFinding]:
    """Yield a finding for the first record that had no events at a checkpoint, and became other
    events than its decoder makes.
    """

    def read(sources: Sources) -> _Opened | None:
        source = sources.of(conversation)
        state = sources.find(conversation)
        if state is None or source is None:
            return None
        return _Opened(state, source, sources.made(source), sources.all_redacted(source))

    opened = query_sources(store.database, read)
    if opened is None:
        return
    if opened.is_continued and not opened.state.parent_version:
        # Records that were handed over have no events, but only a fork gets such records.
        yield of_all(_CONTINUES)
        return
    if (opened.source.made, opened.state.version) != (unmade.made, unmade.version):
        yield from _compare(store, opened, unmade)


class _Opened(NamedTuple):
    """An import, and the events of its records."""

    state: Conversation
    source: Source
    made: Made
    redacted: set[int]

    @property
    def is_continued(self) -> bool:
        return continued(self.source) is not None

    def first_unmade(self, unmade: Unmade) -> int:
        """Return the first record that had no events at the checkpoint."""
        if unmade.made is not None:
            return unmade.made
        # The list of the events of records is not proved, but nothing else says it.
        before = (number for number, (first, _) in self.made.items() if first < unmade.version)
        return max(before, default=-1) + 1

    def added_among(self, rows: Sequence[Row]) -> list[int]:
        """Return the ids of rows that may not come before the events of a record."""
        of_redacted = {
            event_id
            for number in self.redacted
            for first, events in [self.made.get(number, (0, 0))]
            for event_id in range(first, first + events)
        }
        return [
            row.id
            for row in rows
            if not (self.is_continued or row.kind in _BETWEEN or row.id in of_redacted)
        ]

    def why_not_compared(self, number: int) -> str:
        """Return why events of a record may differ from the events of its decoder, although nobody
        changed the record. Return an empty text if they must be equal.
        """
        first_redacted = min(self.redacted, default=number)
        if first_redacted < number:
            return f"record {first_redacted} before it was redacted"
        if self.source.reader != READER:
            return "an earlier version of foldlog made them"
        return ""


def _compare(store: Store, opened: _Opened, unmade: Unmade) -> Iterator[VerifyFinding]:
    """Yield a finding as ``_find_other_events`` does."""
    source = opened.source
    start = opened.first_unmade(unmade)
    stop = min(unmade.records, source.made)
    rows = _rows_since(store.database, opened.state, unmade.version)
    for number, events in decode_records(store, source, opened.made, source.records, 0, []):
        if number < min(start, stop) or (number < stop and number in opened.redacted):
            continue
        if number < stop:
            own, before = _rows_of(rows, *opened.made.get(number, (0, 0)))
        else:
            # Before the last record has its events, nobody can append.
            own, before = [], [*rows] if number < unmade.records else []
        if before and (added := opened.added_among(before)):
            yield VerifyFinding(added[0], added[0], _ADDED.format(number))
            return
        if number >= stop:
            return
        if not _are_same(own, events):
            problem = opened.why_not_compared(number)
            text = _NOT_COMPARED.format(number, problem) if problem else _OTHERWISE.format(number)
            yield of_all(text, unproved=bool(problem))
            return


def _rows_since(database: Database, state: Conversation, start: int) -> Iterator[Row]:
    """Yield the conversation's own rows from the event ``start`` on, decrypted."""
    codec = database.codec_of(state)
    start = max(start, state.begins)
    if state.archived:
        archived = read_archived(
            state.id, database.recorder.query(partial(address_of_object, key=state.key))
        )
        yield from codec.decode_rows([row for row, _ in archived if row.id >= start])
        start = max(start, archived[-1][0].id + 1)

    def page(reader: Reader) -> Sequence[Row]:
        return reader.rows(state.key, start, state.version, _PAGE)

    while rows := database.recorder.query(page):
        yield from codec.decode_rows(rows)
        start = rows[-1].id + 1


def _rows_of(rows: Iterator[Row], first: int, events: int) -> tuple[list[Row], list[Row]]:
    """Return the rows of ``events`` events from the event ``first`` on, and the rows before them.
    ``rows`` goes on behind them.
    """
    found = list[Row]()
    before = list[Row]()
    while len(found) < events:
        row = next(rows, None)
        if row is None:
            break
        if first <= row.id < first + events:
            found.append(row)
        else:
            before.append(row)
    return found, before


def _are_same(rows: Sequence[Row], events: Sequence[Event]) -> bool:
    """Return whether the rows have these events. A redacted row may have any event."""
    return len(rows) == len(events) and all(
        is_redacted(row.proof) or _has_event(row, event)
        for row, event in zip(rows, events, strict=True)
    )


def _has_event(row: Row, event: Event) -> bool:
    """Return whether a row has the kind, the flags and the bytes of an event."""
    stored = encode(event, ours=True)
    return (row.kind, row.schema, row.shown, row.structural, row.body) == (
        stored.kind,
        stored.schema,
        stored.shown,
        stored.structural,
        stored.body,
    )
