"""Make rows of events and events of rows, by codec, hash chain and clock. Pure except for the salts of events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from os import urandom
from struct import Struct

from msgspec.structs import force_setattr

from eventstore import codec
from eventstore.arguments import YEAR_10000, moment
from eventstore.codec import Encoded, encode_ours
from eventstore.errors import ConversationErased, CorruptEvent
from eventstore.events import Erased, Event, UnknownEvent
from eventstore.log import hash_chain
from eventstore.log.hash_chain import SALT_BYTES, link_with
from eventstore.log.row_codec import PLAIN, Limit, RowCodec
from eventstore.recorders.types import Conversation, Erasure, Row

__all__ = [
    "EPOCH",
    "beginning_with_an_event",
    "chained",
    "dense_events",
    "dense_events_of",
    "event_of",
    "events_of_rows",
    "events_of_stored",
    "from_microseconds",
    "not_erased",
    "numbered",
    "present",
    "sound",
    "stored_event_of",
    "with_times",
]

_body, _encoding = attrgetter("body"), itemgetter(6)
_structural, _data_key, _seed = attrgetter("structural"), attrgetter("data_key"), attrgetter("checksum_seed")
_id, _timestamp, _origin = attrgetter("id"), attrgetter("timestamp"), attrgetter("origin")
_new = tuple.__new__  # what Row(...) calls, without the call around it
_each_salt = Struct(f"{SALT_BYTES}s").iter_unpack
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = range(YEAR_10000)
"""The moments that can be recorded: 1970 to 9999."""


def present() -> int:
    """Return the present moment in microseconds since 1970, UTC. Raises ``InvalidArgument`` outside of 1970 to 9999."""
    now = time.time_ns() // 1_000
    return now if now in _YEARS else moment(now)


def chained(conversation: Conversation, batch: Sequence[Encoded], now: int) -> tuple[list[Row], Conversation]:
    """Return the rows that append ``batch`` to ``conversation``, and the conversation as they leave it: ids dense,
    heads linked, the clock never running backwards.

    Each event has a new salt of its own. Cost: one hash and one checksum of each body.
    """
    key, name, created_at, salt, event_id, updated_at, head, before, turns, *others = conversation
    if head is None:
        head = hash_chain.seed(name, salt)
    if event_id == conversation.parent_version:
        head = hash_chain.border(name, salt, event_id, head)
    recorded_at = now if updated_at is None or updated_at < now else updated_at
    salts = _each_salt(urandom(SALT_BYTES * len(batch)))
    columns = []
    for (kind, schema, shown, structural, body, _), (event_salt,) in zip(batch, salts, strict=True):
        committed = hash_chain.commitment(event_salt, body)
        head = link_with(head, salt, event_id, kind, schema, shown, structural, recorded_at, committed)
        proof = head + event_salt
        columns.append((event_id, kind, schema, shown, structural, recorded_at, PLAIN, body, proof, before, turns, 0))
        event_id += 1
        before += shown
        turns += structural
    rows = hash_chain.with_checksums(hash_chain.checksum_seed(name), columns)
    left = _new(Conversation, (
        key, name, created_at, salt, event_id, recorded_at, head, before, turns, *others
    ))  # fmt: skip
    return rows, left


def erasure_row(conversation: str, erasure: Erasure) -> Row:
    """Return an erasure as a follower reads it."""
    kind, schema, shown, structural, body, _ = encode_ours(Erased(reason=erasure.reason))
    proof = erasure.head
    row = Row(erasure.events, kind, schema, shown, structural, erasure.erased_at, PLAIN, body, proof)
    return row._replace(checksum=hash_chain.checksum(hash_chain.checksum_seed(conversation), *row[:-1]))


def event_of(conversation: str, row: Row, position: int | None = None) -> Event:
    """Return the event of a stored row. An event of a known kind that is stored without a time gets the time of its
    recording.

    Raises ``CorruptEvent``, with ``position``, where the bytes are not an event.
    """
    event = stored_event_of(conversation, row, position)
    if event.timestamp is None and event.origin is None:
        with_times((event,), from_microseconds(row.recorded_at))
    return event


def events_of_stored(
    rows: Sequence[Row], codecs: Sequence[RowCodec], numbers: Sequence[int], limit: Limit | None = None
) -> list[Event] | None:
    """Return the events of stored rows, each with its time; None where a row needs ``event_of``.

    ``numbers`` say how many of them, in their order, were written with each codec. All must be what was written,
    without attachments. With ``limit``, rows are decrypted and decompressed, all at once; without it, they must be
    plain. Cost: a checksum each.
    """
    are_plain = not any(map(_data_key, codecs)) and not any(map(_encoding, rows))
    seeds = chain.from_iterable(map(repeat, map(_seed, codecs), numbers))
    if (limit is None and not are_plain) or not hash_chain.are_sound(seeds, rows):
        return None
    if are_plain or limit is None:
        return events_of_rows(rows)
    bodies: list[bytes] = []
    for codec_of_some, number in zip(codecs, numbers, strict=True):
        some = codec_of_some.bodies(rows[len(bodies) : len(bodies) + number], limit)
        if some is None:
            return None
        bodies += some
    return events_of_rows(rows, bodies)


def events_of_rows(rows: Sequence[Row], bodies: Sequence[bytes] | None = None) -> list[Event] | None:
    """Return the events of plain rows, each with its time; None where a row needs ``event_of``. ``bodies`` are the
    plain bodies of rows that are not. Cost: that of decoding the bodies; no bytecode is executed for a row.
    """
    if not rows:
        return []
    ids, kinds, schemas, _, _, times, _, stored, *_ = zip(*rows, strict=True)
    events = codec.decode_all(kinds, schemas, stored if bodies is None else bodies, ids)
    if events is not None:
        without_time = list(map(_timestamp, events)).count(None)
        if without_time == len(events) and not any(map(_origin, events)):
            deque(map(force_setattr, events, repeat("timestamp"), map(from_microseconds, times)), maxlen=0)
        elif without_time:
            for event, recorded_at in zip(events, times, strict=True):
                if event.timestamp is None and event.origin is None:
                    force_setattr(event, "timestamp", from_microseconds(recorded_at))
    return events


def dense_events_of(codec: RowCodec, limit: Limit, stored: Sequence[Row], start: int, stop: int) -> Iterable[Event]:
    """Return the events ``start`` to ``stop``, made of a recorder's rows for these ids. Iterating raises
    ``CorruptEvent`` where an event is missing or unreadable.
    """
    events = events_of_stored(stored, [codec], [len(stored)])
    if events is not None and list(map(_id, events)) == list(range(start, stop)):
        return events
    return dense_events(codec.conversation, codec.decoded(stored, limit), start, stop)


def with_times(events: Sequence[Event], recorded_at: datetime) -> Sequence[Event]:
    """Give ``events``, which belong to the caller, the times that a reader will see: see ``event_of``."""
    for event in events:
        # Of an unknown event it cannot be said whether it has a time.
        if event.timestamp is None and event.origin is None and type(event) is not UnknownEvent:
            force_setattr(event, "timestamp", recorded_at)
    return events


def numbered(batch: Sequence[Encoded], first_id: int, recorded_at: datetime) -> Sequence[Event]:
    """Return the encoding's own events, with the ids and times that a reader will see."""
    events = [encoded.event for encoded in batch]
    for event_id, event in enumerate(events, first_id):
        force_setattr(event, "id", event_id)
    return with_times(events, recorded_at)


def stored_event_of(conversation: str, row: Row, position: int | None = None) -> Event:
    """Return the event of a stored row exactly as it is stored. Raises ``CorruptEvent``."""
    event_id, kind, schema, shown, structural, _, encoding, body, *_ = row
    if encoding != PLAIN:
        sound(conversation, row, position)
    try:
        return codec.decode(kind, schema, body, event_id, shown, structural)
    except codec.Undecodable as error:
        raise CorruptEvent(conversation, event_id, str(error), position) from error


def sound(conversation: str, row: Row, position: int | None = None) -> Row:
    """Return the row if it is readable and unchanged. Raises ``CorruptEvent``."""
    if row.encoding != PLAIN:  # the guard opens what it can
        raise CorruptEvent(conversation, row.id, row.body.decode(errors="replace"), position)
    return row


def dense_events(conversation: str, rows: Iterable[Row], start: int, stop: int) -> Iterator[Event]:
    """Return the events ``start`` to ``stop`` of rows in that order. Raises ``CorruptEvent`` at a missing one.

    Rows of a list that are all plain are decoded together, which takes half of the time.
    """
    ids = range(start, stop)
    if ids and isinstance(rows, list) and list(map(_id, rows)) == list(ids) and not any(map(_encoding, rows)):
        events = events_of_rows(rows)
        if events is not None:
            yield from events
            return
    expected = start
    for row in rows:
        if row.id != expected:
            problem = "it is missing" if row.id > expected else "another one is in its place"
            raise CorruptEvent(conversation, expected, problem)
        yield event_of(conversation, row)
        expected += 1
    if expected != stop:
        raise CorruptEvent(conversation, expected, "it is missing")


def not_erased(conversation: Conversation | None) -> Conversation | None:
    """Return the conversation if it was found. Raises ``ConversationErased`` if only a tombstone is left."""
    if conversation is not None and conversation.erasure is not None:
        erasure = conversation.erasure
        raise ConversationErased(conversation.id, from_microseconds(erasure.erased_at).isoformat(), erasure.reason)
    return conversation


def beginning_with_an_event(conversation: Conversation | None) -> Conversation | None:
    """Return the conversation if it was found. A conversation begins with its first event. So one without events has
    lost them all, and this raises ``CorruptEvent``: unreadable must not look like empty.
    """
    if conversation is not None and conversation.version == 0:
        raise CorruptEvent(conversation.id, 0, "it is missing, as all of the conversation is")
    return conversation


@lru_cache(64)  # the events of one batch have one time
def from_microseconds(moment: int) -> datetime:
    return EPOCH + timedelta(microseconds=moment)
