"""The index of events by the id that their source gave them, for writers that ask for it with
``dedupe="origin"``.

The source's id of an event is stored as an idempotency key of its conversation, which stands for
this one event. So copies, erasure and encryption treat it like any idempotency key. The key holds a
digest of the id, because idempotency keys are not encrypted.

A conversation is indexed when an append asks for it the first time: its events are read once then.
Events that are appended later without asking are not in the index.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from foldlog.eventstore.arguments import check_text
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.errors import InvalidArgument
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import find_begun
from foldlog.eventstore.log.reading import SOURCE_KEYS, ReadTransaction
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import RecalledKey, utf8

_RESERVED: Final = SOURCE_KEYS[:-1]
INDEXED: Final = _RESERVED + "s"
"""The key that says that a conversation is indexed."""
_CHUNK = 500
"""The number of events that one transaction indexes, of a conversation that existed before its
index.
"""


class FoundEvent(NamedTuple):
    """An event that was found by the id that its source gave it."""

    conversation: str
    event_id: int


class NotIndexed(Exception):
    """The events of this conversation are not in the index yet. No caller of the store gets this
    error.
    """


class Unknown(NamedTuple):
    """The new events of a batch, with the key of each one; None where its source gave it no id."""

    batch: list[Encoded]
    keys: list[str | None]

    def remember(self, writing: WriteTransaction, version: int, *, begins: bool) -> None:
        """Add the events that were inserted from ``version`` on. ``begins``: they are the
        conversation's first.
        """
        for event_id, key in enumerate(self.keys, version):
            if key is not None:
                writing.remember(key, RecalledKey(event_id, 1))
        if begins:
            writing.remember(INDEXED, RecalledKey(0, len(self.keys)))


def check_own_key(idempotency_key: str) -> None:
    """Raise ``InvalidArgument`` for a caller's key that begins like those of the store,
    ``TypeError`` for no text.
    """
    if type(idempotency_key) is not str:
        raise TypeError(f"an idempotency key is a text, not {idempotency_key!r}")
    if not idempotency_key:
        raise InvalidArgument(
            "the idempotency key is empty; give a text that names this append, or leave it out"
        )
    if idempotency_key.startswith(_RESERVED):
        raise InvalidArgument(
            f"idempotency key {idempotency_key!r} begins with {_RESERVED!r}; use another one"
        )


def source_key(format: str, source_id: Any) -> str | None:
    """Return the key for a source's id; None for an id that is null, because such events cannot be
    told apart.
    """
    if source_id is None:
        return None
    text = utf8(f"{format}\0{source_id!r}")
    return SOURCE_KEYS + urlsafe_b64encode(blake2b(text, digest_size=18).digest()).decode()


def unknown(reading: ReadTransaction | None, batch: Sequence[Encoded]) -> Unknown:
    """Return the events of a batch that a conversation does not have, each id once; the events of a
    record without ids of their own go with its first. ``reading`` is None for a new conversation.

    Raises ``NotIndexed``.
    """
    keys = [_key_of(encoded.event) for encoded in batch]
    taken = set() if reading is None else _recalled(reading, keys)
    new = Unknown([], [])
    is_new = True
    for encoded, key in zip(batch, keys, strict=True):
        origin = encoded.event.origin
        is_of_record_before = origin is not None and type(origin.rest) is int
        if key is not None or not is_of_record_before:
            is_new = key is None or key not in taken
        if is_new:
            new.batch.append(encoded)
            new.keys.append(None if key in taken else key)
            taken.add(key)
    return new


def known(
    database: Database, conversation: str, format: str, source_ids: Iterable[Any]
) -> list[bool]:
    """Return for each id whether the conversation has an event with it; False for ids that are
    null.

    A conversation that is not indexed yet is indexed first. Cost: the ids, and the indexing.
    """
    keys = [source_key(format, source_id) for source_id in source_ids]

    def look(reader: Reader) -> Collection[str | None]:
        found = find_begun(database, reader, conversation)
        if found is None:
            return ()
        return _recalled(ReadTransaction(reader, found, database), keys)

    while True:
        try:
            taken = database.recorder.query(look)
            return [key is not None and key in taken for key in keys]
        except NotIndexed:
            index(database, conversation)


def find(database: Database, format: str, source_id: Any) -> tuple[FoundEvent, ...]:
    """Return the events that have this source id, in all indexed conversations. Cost: the events
    found.
    """
    key = source_key(check_text("format", format), source_id)

    def look(reader: Reader) -> tuple[FoundEvent, ...]:
        places = [] if key is None else reader.recalled_among(None, [key])
        found = [(database.find_key(reader, each), recalled) for each, _, recalled in places]
        living = (
            FoundEvent(conversation.id, recalled.first_id)
            for conversation, recalled in found
            if conversation is not None and conversation.visible and conversation.erasure is None
        )
        return tuple(sorted(living))

    return database.recorder.query(look)


def index(database: Database, conversation: str) -> None:
    """Add the events of a conversation that is not indexed yet. Other writers may append at the
    same time.

    Cost: the events, in small transactions. After an interruption, the next append that asks for
    the index begins again.
    """
    begun = start = 0

    def add(transaction: Transaction) -> tuple[int, int] | None:
        found = find_begun(database, transaction, conversation)
        if found is None:
            return None
        writing = WriteTransaction(transaction, found, database)
        # else the id was used again since
        if found.key == begun:
            first = start
        else:
            first = 0
        stop = min(first + _CHUNK, writing.version)
        events = list(writing.events(first, stop))
        keys = [_key_of(event) for event in events]
        taken = writing.recalled_among([*filter(None, keys), INDEXED])
        if INDEXED in taken:
            return None
        for event, key in zip(events, keys, strict=True):
            if key is not None and key not in taken:
                writing.remember(key, RecalledKey(event.id, 1))
                taken.add(key)
        if stop == writing.version:
            writing.remember(INDEXED, RecalledKey(0, stop))
        writing.end()
        return (found.key, stop) if stop < writing.version else None

    while (left := database.recorder.transact(add)) is not None:
        begun, start = left


def index_as(database: Database, conversation: str, fork: str) -> None:
    """Add the events of a fork, if those of its parent are in the index."""

    def look(reader: Reader) -> bool:
        found = find_begun(database, reader, conversation)
        return found is not None and bool(
            ReadTransaction(reader, found, database).recalled_among([INDEXED])
        )

    if database.recorder.query(look):
        index(database, fork)


def _recalled(reading: ReadTransaction, keys: Iterable[str | None]) -> set[str | None]:
    """Return those of the keys that the conversation has. Raises ``NotIndexed``."""
    names = reading.recalled_among([INDEXED, *dict.fromkeys(filter(None, keys))])
    if INDEXED not in names:
        raise NotIndexed
    return {*names}


def _key_of(event: Event) -> str | None:
    if event.origin is None:
        return None
    return source_key(event.origin.format, event.origin.id)
