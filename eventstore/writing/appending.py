"""The work of one append in its transaction: find, decide, link, insert, tell the projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import count, repeat

from eventstore.codec import Encoded
from eventstore.conversation import (
    ANY_VERSION,
    Append,
    State,
    check_changes,
    check_version,
    decide,
    is_simple,
    number,
    summaries_named,
)
from eventstore.documents.listing import list_again
from eventstore.errors import CorruptEvent, IdempotencyConflict
from eventstore.events import ATTRIBUTES, CondensationAction, DocumentChanges, Event, summary_of
from eventstore.recorders.base import Transaction
from eventstore.recorders.types import Place, RecalledKey
from eventstore.stored.beginning import begin_new
from eventstore.stored.database import Database
from eventstore.stored.read_transaction import ReadTransaction, find_begun
from eventstore.stored.redacted import can_be_redacted, without_content
from eventstore.stored.results import Recorded
from eventstore.stored.rows import (
    chained,
    dense_events,
    event_of,
    from_microseconds,
    set_times,
    stored_event_of,
    with_times,
    without_time,
)
from eventstore.stored.write_transaction import WriteTransaction
from eventstore.writing import origins
from eventstore.writing.generation import Generation, find_meant

__all__ = ["Appending"]

_NO_SUMMARIES: frozenset[int] = frozenset()
_new = tuple.__new__  # what Recorded(...) calls, without the call around it


class Appending:
    """One append. It is called with the transaction, and again with another one where the first is taken back. It
    returns how to know what was recorded, once it is committed.
    """

    def __init__(
        self,
        database: Database,
        conversation: str,
        batch: list[Encoded],
        command: Append,
        idempotency_key: str | None,
        guard: Callable[[ReadTransaction], object] | None,
        project: Callable[[WriteTransaction, Sequence[Event]], None],
        *,
        dedupe: bool,
        generation: Generation | None = None,
    ) -> None:
        self._database = database
        self._conversation = conversation
        self._batch = batch
        self._command = command
        self._key = idempotency_key
        self._guard = guard
        self._project = project
        self._dedupe = dedupe and bool(batch)
        self._generation = generation
        self.met: int | None = None
        """The key of the conversation that it appends to."""
        self._simple = not dedupe and is_simple(command.events)
        """Whether no rule applies to the events but the expected version: then they get ids and times in place."""
        self._untimed: Sequence[Event] = without_time(command.events) if self._simple else ()
        self._named = _NO_SUMMARIES if self._simple else summaries_named(command.events)

    def __call__(self, transaction: Transaction) -> Callable[[], tuple[Recorded, ...]]:
        given, command, new, reading = self._batch, self._command, None, None
        if self._generation is None:
            found, replaces = find_begun(self._database, transaction, self._conversation), None
        else:
            found, replaces = find_meant(self._database, transaction, self._conversation, self._generation)
        self.met = None if found is None else found.key
        if found is not None and not (self._simple and self._key is None and self._guard is None):
            reading = ReadTransaction(transaction, found, self._database)
            earlier = self._earlier(reading)
            if earlier is not None:
                return partial(tuple, earlier)
            if self._guard is not None:
                self._guard(reading)
        if self._dedupe:
            new = origins.unknown(reading, given)
            if not new.batch:
                return tuple
            given, command = new.batch, command._replace(events=[encoded.event for encoded in new.batch])
        version = 0 if found is None else found.version
        decided = self._decided(version, command, reading)
        now = self._database.now()
        if found is None:
            found = begin_new(transaction, self._conversation, now, replaces=replaces)
            self.met = found.key
        rows = chained(found, given, now)
        writing = WriteTransaction(transaction, found, self._database)
        place = writing.insert(rows)
        if self._key is not None:
            writing.remember(self._key, RecalledKey(version, len(rows)))
        if new is not None:
            new.remember(writing, version, begins=version == 0)
        recorded_at = from_microseconds(rows[0].recorded_at)
        if not self._simple:
            with_times(decided, recorded_at)
            self._project(writing, decided)
            if any(isinstance(event, DocumentChanges) for event in decided):
                _keep_documents(writing, version, decided)
        elif self._untimed:
            set_times(self._untimed, recorded_at)
        writing.end()
        return partial(_recorded, place, self._conversation, recorded_at, decided)

    def _decided(self, version: int, command: Append, reading: ReadTransaction | None) -> Sequence[Event]:
        if self._simple:
            check_version(State(self._conversation, version), command.expected_version)
            number(command.events, version)
            return command.events
        existing = _NO_SUMMARIES
        if self._named and reading is not None:
            existing = frozenset(i for i in self._named if _brings_summary(reading, i))
        return decide(State(self._conversation, version, existing), command)

    def _earlier(self, reading: ReadTransaction) -> tuple[Recorded, ...] | None:
        """Return what was recorded under the idempotency key before; None if it is new. Raises ``IdempotencyConflict``
        if it was other events.
        """
        earlier = None if self._key is None else reading.recall(self._key)
        if earlier is None:
            return None
        conversation = reading.conversation
        first_id, count, _, position = earlier
        rows = reading.rows(first_id, first_id + count, count)
        recorded = list(dense_events(conversation, rows, first_id, first_id + count))
        set_times(self._untimed, None)  # an earlier run of this may have set them
        given = self._decided(first_id, Append(self._command.events, ANY_VERSION), reading)
        stored = [stored_event_of(conversation, row) for row in rows]
        if stored != list(given) and not _are_what_was_given(stored, given, self._batch):
            raise IdempotencyConflict(conversation, str(self._key), first_id)
        if position is None:
            raise CorruptEvent(conversation, first_id, "its position cannot be found")
        return tuple(
            Recorded(position + n, conversation, from_microseconds(row.recorded_at), event)
            for n, (row, event) in enumerate(zip(rows, recorded, strict=True))
        )


def _are_what_was_given(stored: Sequence[Event], given: Sequence[Event], batch: Sequence[Encoded]) -> bool:
    """Return whether stored events, some of them redacted, are those that are given again. Of a redacted one its size,
    its kind and the other fields that stay can be compared, and nothing else.
    """
    return len(stored) == len(given) and all(
        one == other
        if one.redacted is None
        else one.redacted.bytes == len(encoded.body)
        and can_be_redacted(other)
        and without_content(other, one.redacted) == one
        for one, other, encoded in zip(stored, given, batch, strict=True)
    )


def _brings_summary(reading: ReadTransaction, synthetic_id: int) -> bool:
    condensation = summary_of(synthetic_id)
    if condensation >= reading.version:
        return False
    rows = reading.structural_rows(condensation, condensation + 1, 1)
    event = event_of(reading.conversation, rows[0]) if rows and rows[0].id == condensation else None
    return isinstance(event, CondensationAction) and event.summary is not None


def _recorded(place: Place, conversation: str, recorded_at: datetime, events: Sequence[Event]) -> tuple[Recorded, ...]:
    if len(events) == 1:
        return (_new(Recorded, (place(), conversation, recorded_at, events[0])),)
    columns = zip(count(place()), repeat(conversation), repeat(recorded_at), events, strict=False)
    return tuple(map(_new, repeat(Recorded), columns))


def _keep_documents(writing: WriteTransaction, version: int, events: Sequence[Event]) -> None:
    """Check changes of documents among events that were appended at a version, and list the attributes that they give.

    Raises ``DocumentsChanged``, ``InvalidEvent``.
    """
    before = writing.documents_before(version)
    check_changes(writing.conversation, before[1].newest() if before else {}, events)
    for event in events:
        if isinstance(event, DocumentChanges) and ATTRIBUTES in event.changed:
            list_again(writing, event.changed[ATTRIBUTES].get("value"))
