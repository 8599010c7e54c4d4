"""The work of one append in its transaction: find, decide, link, insert, tell the projections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import count, repeat
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from eventstore.codec import Encoded
from eventstore.codec_json import size_of
from eventstore.conversation import (
    ANY_VERSION,
    UNRULED,
    AnyVersion,
    Append,
    State,
    check_changes,
    check_version,
    decide,
    summaries_named,
)
from eventstore.documents.listing import list_again
from eventstore.errors import CorruptEvent, IdempotencyConflict
from eventstore.events import ATTRIBUTES, NOT_RECORDED, CondensationAction, DocumentChanges, Event, summary_of
from eventstore.recorders.base import Transaction
from eventstore.recorders.nesting import note_committed
from eventstore.recorders.types import Conversation, Place, RecalledKey
from eventstore.stored.database import Database, Known
from eventstore.stored.read_transaction import ReadTransaction
from eventstore.stored.redacted import can_be_redacted, without_content
from eventstore.stored.results import Recorded
from eventstore.stored.rows import dense_events, event_of, from_microseconds, stored_event_of, with_times
from eventstore.stored.write_transaction import WriteTransaction, append_plain, begin_new
from eventstore.writing import origins
from eventstore.writing.generation import Generation, find_meant

_NO_SUMMARIES: frozenset[int] = frozenset()
_new = tuple.__new__  # what Recorded(...) calls, without the call around it
_event, _timestamp, _origin = attrgetter("event"), attrgetter("timestamp"), attrgetter("origin")

_what_matters = attrgetter("event.__class__", "event.id", "event.cause", "body.__class__")
_SIMPLE: Final = frozenset((kind, NOT_RECORDED, None, bytes) for kind in UNRULED)
"""The values of ``_what_matters`` for simple events: only the expected version is a rule for them, so that they get
their ids and times after the commit, and no bytes stand beside their bodies.
"""


class Appending(Struct, eq=False):
    """The work of one append. It is called with a transaction, and again with another one if the first is rolled back.
    It returns a function that gives the recorded events once the transaction is committed.
    """

    database: Database
    conversation: str
    batch: list[Encoded]
    expected_version: int | Literal[AnyVersion.ANY_VERSION]
    idempotency_key: str | None
    guard: Callable[[ReadTransaction], object] | None
    project: Callable[[WriteTransaction, Sequence[Event]], None]
    dedupe: Literal["origin"] | None
    generation: Generation | None
    any_thread: bool
    met: int | None = None
    """The key of the conversation that it appends to, where a generation did not know it."""

    def __call__(self, transaction: Transaction) -> Callable[[], tuple[Recorded, ...]]:
        database, batch, generation = self.database, self.batch, self.generation
        known: Known | None = transaction.known.get(self.conversation)
        if known is None or (generation is not None and generation.key != known.plain.key):
            return self._in_full(transaction, None)
        found = known.plain
        version = found.version
        if (
            self.idempotency_key is not None
            or self.guard is not None
            or self.dedupe is not None
            or not batch
            or not _SIMPLE.issuperset(map(_what_matters, batch))
            or not database.writes_plain
            or found.sealed_key is not None
            or version == found.parent_version
        ):
            return self._in_full(transaction, known)
        if self.expected_version is not ANY_VERSION and self.expected_version != version:
            check_version(State(self.conversation, version), self.expected_version)  # which raises
        place, recorded_at = append_plain(transaction, database, known, batch, database.now())
        return partial(_recorded_simple, place, self.conversation, recorded_at, batch, version)

    def recorded(self, recorded: Callable[[], tuple[Recorded, ...]]) -> tuple[Recorded, ...]:
        """Return the recorded events: now that they are committed, they have their positions."""
        if self.generation is not None:
            self.generation.key = self.met or self.generation.key
        try:
            return recorded()
        except BaseException as error:
            note_committed(error)
            raise

    def _in_full(self, transaction: Transaction, known: Known | None) -> Callable[[], tuple[Recorded, ...]]:
        """Append any events to any conversation. ``known`` is the conversation, if the transaction knows it."""
        database, batch, codec, replaces, decided, new = self.database, self.batch, None, None, None, None
        found: Conversation | None
        if known is None:
            found, replaces = find_meant(database, transaction, self.conversation, self.generation)
        else:
            _, found, codec = known
        version = 0
        if found is not None:
            self.met, version = found.key, found.version
        is_simple = self.dedupe is None and len(batch) > 0 and _SIMPLE.issuperset(map(_what_matters, batch))
        if not is_simple or self.idempotency_key is not None or self.guard is not None:
            reading = None if found is None else ReadTransaction(transaction, found, database)
            if reading is not None:
                earlier = self._earlier(reading)
                if earlier is not None:
                    return partial(tuple, earlier)
                if self.guard is not None:
                    self.guard(reading)
            if self.dedupe is not None and batch:
                new = origins.unknown(reading, batch)
                if not new.batch:
                    return tuple
                batch = new.batch
            if not is_simple:
                decided = self._decided(version, batch, self.expected_version, reading)
        if is_simple:
            check_version(State(self.conversation, version), self.expected_version)
        now = database.now()
        if found is None:
            found = begin_new(transaction, database, self.conversation, now, replaces=replaces)
            self.met = found.key
        writing = WriteTransaction(transaction, found, database, codec)
        place, recorded_at = writing.append(batch, now)
        if self.idempotency_key is not None:
            writing.remember(self.idempotency_key, RecalledKey(version, len(batch)))
        if new is not None:
            new.remember(writing, version, begins=version == 0)
        if decided is not None:
            with_times(decided, from_microseconds(recorded_at))
            self.project(writing, decided)
            if any(isinstance(event, DocumentChanges) for event in decided):
                _keep_documents(writing, version, decided)
        writing.end()
        if decided is None:
            return partial(_recorded_simple, place, self.conversation, recorded_at, batch, version)
        return partial(_recorded, place, self.conversation, from_microseconds(recorded_at), decided)

    def _decided(
        self,
        version: int,
        batch: list[Encoded],
        expected_version: int | Literal[AnyVersion.ANY_VERSION],
        reading: ReadTransaction | None,
    ) -> Sequence[Event]:
        """Return the events with their ids. Raises an error where one of them breaks a rule."""
        events = [encoded.event for encoded in batch]
        existing = _NO_SUMMARIES
        named = summaries_named(events)
        if named and reading is not None:
            existing = frozenset(i for i in named if _brings_summary(reading, i))
        return decide(State(self.conversation, version, existing), Append(events, expected_version))

    def _earlier(self, reading: ReadTransaction) -> tuple[Recorded, ...] | None:
        """Return the events that were recorded under the idempotency key before; None if the key is new. Raises
        ``IdempotencyConflict`` if they were other events.
        """
        earlier = None if self.idempotency_key is None else reading.recall(self.idempotency_key)
        if earlier is None:
            return None
        conversation = reading.conversation
        first_id, count, _, position = earlier
        rows = reading.rows(first_id, first_id + count, count)
        recorded = list(dense_events(conversation, rows, first_id, first_id + count))
        given = self._decided(first_id, self.batch, ANY_VERSION, reading)
        stored = [stored_event_of(conversation, row) for row in rows]
        if stored != list(given) and not _are_what_was_given(stored, given, self.batch):
            raise IdempotencyConflict(conversation, str(self.idempotency_key), first_id)
        if position is None:
            raise CorruptEvent(conversation, first_id, "its position cannot be found")
        return tuple(
            Recorded(position + n, conversation, from_microseconds(row.recorded_at), event)
            for n, (row, event) in enumerate(zip(rows, recorded, strict=True))
        )


def _are_what_was_given(stored: Sequence[Event], given: Sequence[Event], batch: Sequence[Encoded]) -> bool:
    """Return whether stored events, some of them redacted, equal the given events. For a redacted event only its size,
    its kind and the other fields that stay are compared.
    """
    return len(stored) == len(given) and all(
        one == other
        if one.redacted is None
        else one.redacted.bytes == size_of(encoded.body)
        and can_be_redacted(other)
        and without_content(other, one.redacted) == one
        for one, other, encoded in zip(stored, given, batch, strict=True)
    )


def _brings_summary(reading: ReadTransaction, synthetic_id: int) -> bool:
    condensation = summary_of(synthetic_id)
    if condensation >= reading.version:
        return False
    rows = reading.rows(condensation, condensation + 1, 1, "structural")
    event = event_of(reading.conversation, rows[0]) if rows and rows[0].id == condensation else None
    return isinstance(event, CondensationAction) and event.summary is not None


def _recorded_simple(
    place: Place, conversation: str, recorded_at: int, batch: Sequence[Encoded], version: int
) -> tuple[Recorded, ...]:
    """Give simple events, which belong to the caller, their ids and times: see ``rows.event_of``."""
    moment = from_microseconds(recorded_at)
    if len(batch) == 1:
        event = batch[0].event
        force_setattr(event, "id", version)
        if event.timestamp is None and event.origin is None:
            force_setattr(event, "timestamp", moment)
        return (_new(Recorded, (place(), conversation, moment, event)),)
    events = list(map(_event, batch))
    deque(map(force_setattr, events, repeat("id"), count(version)), maxlen=0)
    untimed = events
    if list(map(_timestamp, events)).count(None) < len(events) or any(map(_origin, events)):
        untimed = [event for event in events if event.timestamp is None and event.origin is None]
    deque(map(force_setattr, untimed, repeat("timestamp"), repeat(moment)), maxlen=0)
    return _recorded(place, conversation, moment, events)


def _recorded(place: Place, conversation: str, recorded_at: datetime, events: Sequence[Event]) -> tuple[Recorded, ...]:
    columns = zip(count(place()), repeat(conversation), repeat(recorded_at), events, strict=False)
    return tuple(map(_new, repeat(Recorded), columns))


def _keep_documents(writing: WriteTransaction, version: int, events: Sequence[Event]) -> None:
    """Check changes of documents among events that were appended at a version, and list their attributes.

    Raises ``DocumentsChanged``, ``InvalidEvent``.
    """
    before = writing.documents_before(version)
    check_changes(writing.conversation, before[1].newest() if before else {}, events)
    for event in events:
        if isinstance(event, DocumentChanges) and ATTRIBUTES in event.changed:
            list_again(writing, event.changed[ATTRIBUTES].get("value"))
