"""The index of imported events, by source id. Writers ask for the index of source ids with
``dedupe="origin"``.

The index stores each source id as an idempotency key, which leads to one event. Copies, erasures
and encryption therefore need no extra code for the ids of a source. The key contains a digest of
the source's id, because idempotency keys are not encrypted.

When an append first asks for the index, all events of the conversation are read once. Events that
are later appended without ``dedupe`` are not in the index. See
docs/internals/decisions/0082-source-ids-are-idempotency-keys.md.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from foldlog.eventstore.arguments import check_text
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.errors import InvalidArgument, InvalidEvent
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import find_begun
from foldlog.eventstore.log.reading import SOURCE_KEYS, ReadTransaction
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import RecalledKey, utf8

INDEXED: Final = "foldlog:sources"
"""The idempotency key that marks a conversation as indexed."""
_RESERVED: Final = "foldlog:source"
"""``INDEXED`` and ``SOURCE_KEYS`` begin with this text. A caller's idempotency key may not begin
with ``foldlog:source``.
"""
_CHUNK = 500


class FoundEvent(NamedTuple):
    """An event that was found by its source id."""

    conversation: str
    event_id: int


class NotIndexed(Exception):
    """The conversation has no index yet. The store makes the index and tries again, so no caller of
    the store gets ``NotIndexed``.
    """


class PartlyKnown(InvalidEvent):
    """The conversation already has some, but not all, events of an append. The append also writes
    data about all its events, so no event may be left out.
    """


class NewEvents(NamedTuple):
    """The events of an append that are new. An event without a source id has the key None."""

    batch: list[Encoded]
    keys: list[str | None]

    def remember(self, writing: WriteTransaction, version: int, *, begins: bool) -> None:
        """Store the source ids of the events, which begin at ``version``. If ``begins`` is true,
        the events are the first of the conversation, which is then marked as indexed.
        """
        for event_id, key in enumerate(self.keys, version):
            if key is not None:
                writing.remember(key, RecalledKey(event_id, 1))
        if begins:
            writing.remember(INDEXED, RecalledKey(0, len(self.keys)))


def check_own_key(idempotency_key: str) -> None:
    """Check an idempotency key that a caller has chosen. Raises ``TypeError`` or
    ``InvalidArgument``.
    """
    if type(idempotency_key) is not str:
        raise TypeError(f"an idempotency key must be a text, not {idempotency_key!r}")
    if not idempotency_key:
        raise InvalidArgument(
            "the idempotency key is empty; give a text that names this append, or leave it out"
        )
    if idempotency_key.startswith(_RESERVED):
        raise InvalidArgument(
            f"idempotency key {idempotency_key!r} begins with {_RESERVED!r}; use another key"
        )


def source_key(format: str, source_id: Any) -> str | None:
    """Return the idempotency key for a source id, or None for the id null, which does not
    distinguish events.
    """
    if source_id is None:
        return None
    text = utf8(f"{format}\0{source_id!r}")
    return SOURCE_KEYS + urlsafe_b64encode(blake2b(text, digest_size=18).digest()).decode()


def select_new(
    reading: ReadTransaction | None, batch: Sequence[Encoded], *, all_or_none: bool = False
) -> NewEvents:
    """Return the new events of a batch: the events that a conversation does not have. If several
    events of the batch have the same id, return only the first event. If an event without an id
    continues a record, it is new if the record's first event is new.

    With ``all_or_none``, raises ``PartlyKnown`` if the conversation has some of the events, or if
    the batch contains an event twice.
    """
    keys = [_key_of(encoded.event) for encoded in batch]
    stored_keys = set() if reading is None else _recorded_keys(reading, keys)
    new_events = NewEvents([], [])
    is_new = True
    for encoded, key in zip(batch, keys, strict=True):
        if key is not None or not _continues_record(encoded.event):
            is_new = key is None or key not in stored_keys
        if is_new:
            new_events.batch.append(encoded)
            new_events.keys.append(None if key in stored_keys else key)
            stored_keys.add(key)
    if all_or_none and 0 < len(new_events.batch) < len(batch):
        raise PartlyKnown(
            f"only {len(new_events.batch)} of {len(batch)} events are new: the other events are in"
            " the store already, or twice in this append; append each new event once"
        )
    return new_events


def _continues_record(event: Event) -> bool:
    """Return whether the event is a later event of its record. Then ``origin.rest`` is its number
    in the record.
    """
    return event.origin is not None and type(event.origin.rest) is int


def find_known(
    database: Database, conversation: str, format: str, source_ids: Iterable[Any]
) -> list[bool]:
    """Return, for each source id, whether the conversation has an event with it. Cost: one query,
    and reading all events of the conversation if it has no index yet.
    """
    keys = [source_key(format, source_id) for source_id in source_ids]

    def read(reader: Reader) -> Collection[str | None]:
        state = find_begun(database, reader, conversation)
        if state is None:
            return ()
        return _recorded_keys(ReadTransaction(reader, state, database), keys)

    while True:
        try:
            stored_keys = database.recorder.query(read)
            return [key is not None and key in stored_keys for key in keys]
        except NotIndexed:
            index(database, conversation)


def find(database: Database, format: str, source_id: Any) -> tuple[FoundEvent, ...]:
    """Return the events with the source id ``source_id`` in all indexed conversations. Cost: one
    query for the list, and one for each returned event.
    """
    key = source_key(check_text("format", format), source_id)

    def read(reader: Reader) -> tuple[FoundEvent, ...]:
        events = list[FoundEvent]()
        if key is not None:
            for owner, _, recalled in reader.recalled_among(None, [key]):
                state = database.find_key(reader, owner)
                if state is not None and state.visible and state.erasure is None:
                    events.append(FoundEvent(state.id, recalled.first_id))
        return tuple(sorted(events))

    return database.recorder.query(read)


def index(database: Database, conversation: str) -> None:
    """Make the index of a conversation, in small transactions. After an interruption, the next
    append that asks for the index begins again.
    """
    indexed_key: int | None = None
    indexed_until = 0

    def add_chunk(transaction: Transaction) -> tuple[int, int] | None:
        state = find_begun(database, transaction, conversation)
        if state is None:
            return None
        writing = WriteTransaction(transaction, state, database)
        # If the conversation has another key, its id now belongs to a new conversation: begin
        # again.
        first = indexed_until if state.key == indexed_key else 0
        stop = min(first + _CHUNK, writing.version)
        events = list(writing.events(first, stop))
        keys = [_key_of(event) for event in events]
        stored_keys = writing.recalled_among([*filter(None, keys), INDEXED])
        if INDEXED in stored_keys:
            return None  # another writer has finished the index
        for event, key in zip(events, keys, strict=True):
            if key is not None and key not in stored_keys:
                writing.remember(key, RecalledKey(event.id, 1))
                stored_keys.add(key)
        if stop == writing.version:
            writing.remember(INDEXED, RecalledKey(0, stop))
        writing.end()
        return (state.key, stop) if stop < writing.version else None

    while (progress := database.recorder.transact(add_chunk)) is not None:
        indexed_key, indexed_until = progress


def index_fork(database: Database, conversation: str, fork: str) -> None:
    """Make the index of a fork if the conversation from which it was forked has one."""

    def is_indexed(reader: Reader) -> bool:
        state = find_begun(database, reader, conversation)
        return state is not None and bool(
            ReadTransaction(reader, state, database).recalled_among([INDEXED])
        )

    if database.recorder.query(is_indexed):
        index(database, fork)


def _recorded_keys(reading: ReadTransaction, keys: Iterable[str | None]) -> set[str | None]:
    """Return those of the keys that the conversation has. Raises ``NotIndexed``."""
    names = reading.recalled_among([INDEXED, *dict.fromkeys(filter(None, keys))])
    if INDEXED not in names:
        raise NotIndexed
    return {*names}


def _key_of(event: Event) -> str | None:
    if event.origin is None:
        return None
    return source_key(event.origin.format, event.origin.id)
