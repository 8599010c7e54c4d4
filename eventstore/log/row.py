"""Make rows from events and events from rows. Heads reveal changes of a history, and checksums
reveal damaged bytes.

    head(-1)   = SHA-256("foldlog" || salt || id of the conversation)
    head(n)    = SHA-256(head(n-1) || salt || "salted " || id, schema, shown, structural,
                         recorded_at, kind || commitment)
    commitment = SHA-256(salt of the event || body)

Each event has its own salt, which is stored after the event's head (``Row.proof``) or before an
encrypted body. A redaction replaces the body by a body without content, and the event's salt by the
commitment. A redaction does not change the head. Without the event's salt, no reader can check a
guess of the erased body. A fork has the salt of its parent, and the fork's first own event
continues the parent's chain of heads.

A head proves its event and all events before it. A head is computed from the plain text as it was
first written. Encryption, compression, copies and upgrades of old schema versions therefore do not
change a head. With a published head, a reader can detect every later change of the events up to the
head. Without the salt, which is erased with the conversation, a head reveals nothing about the
events.

A stored row has two checksums (CRC-32): one of the body, and one of ``meta``. ``meta`` contains the
checksum of the body. Every read checks both checksums, so a flipped bit becomes an error and never
a wrong text. ``docs/internals/STORED_BYTES.md`` defines the stored bytes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import repeat
from operator import itemgetter
from os import urandom
from typing import Final

from msgspec.structs import force_setattr

from foldlog.eventstore.arguments import YEAR_10000, check_moment
from foldlog.eventstore.codec import BodySums, Encoded, decode, decode_all
from foldlog.eventstore.codec_json import Undecodable
from foldlog.eventstore.errors import CorruptEvent, StoreDamaged
from foldlog.eventstore.events import Event, UnknownEvent
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Chunk,
    Conversation,
    Row,
    packed,
    to_decode,
    unpacked,
    utf8,
)
from foldlog.eventstore.times import EPOCH

try:
    from isal.isal_zlib import crc32  # for 2 KB, an eighth of zlib's time
except ImportError:
    from zlib import crc32

# ``tuple.__new__`` makes a named tuple in less time than a call of the tuple's class.
_new: Final = tuple.__new__
_id_of: Final = itemgetter(0)
PLAIN: Final = 0
"""The encoding of a row whose body is JSON text."""


class NotAsWritten(ValueError):
    """The stored bytes are not the bytes that were written. A reader of events catches
    ``NotAsWritten``, and adds the event's id.
    """


LONG_BODY: Final = 100_000
"""A body of so many bytes is hashed before the transaction (see ``with_sums``), and without a copy.
For a shorter one, the copy takes less time than a second call (``benchmarks/append.py``).
"""
SALT_BYTES = 16
COMMITMENT_BYTES = 32
_PROOF_BYTES: Final = HEAD_BYTES + SALT_BYTES


def new_salt() -> bytes:
    """Return a random salt, which makes the heads of equal histories differ. When the salt is
    erased, heads reveal nothing about the events.
    """
    return urandom(SALT_BYTES)


def seed(conversation: str, salt: bytes) -> bytes:
    return sha256(b"foldlog" + salt + utf8(conversation)).digest()


def first_head(conversation: Conversation, salt: bytes) -> bytes:
    # A fork takes its first head from the conversation that recorded event 0.
    return conversation.seed or seed(conversation.id, salt)


_Linked = tuple[int, str, int, bool, bool, int]
"""The first columns of a row: id, kind, schema, shown, structural, time."""


def link(head: bytes, salt: bytes, columns: _Linked, committed: bytes) -> bytes:
    """Return the head after the next event. The length of the kind comes before the kind, so two
    different events never give the same bytes to hash.
    """
    event_id, kind, schema, shown, structural, recorded_at = columns
    name = kind.encode()
    return sha256(b"%b%bsalted %d %d %d %d %d %d %b\n%b" % (
        head, salt, event_id, schema, shown, structural, recorded_at, len(name), name, committed
    )).digest()  # fmt: skip


def link_of(head: bytes, salt: bytes, row: Row) -> bytes:
    """Return the head after the event of a decrypted row, if ``head`` is the head before it."""
    _, event_id, _, _, recorded_at, schema, shown, structural, _, _ = unpacked(row.meta)
    columns = event_id, row.kind, schema, shown, structural, recorded_at
    return link(head, salt, columns, commitment_of(row.proof, row.body))


def commitment(event_salt: bytes, body: bytes) -> bytes:
    """Return the commitment to a body: see the beginning of this file."""
    if len(body) < LONG_BODY:
        return sha256(event_salt + body).digest()
    hashed = sha256(event_salt)
    hashed.update(body)
    return hashed.digest()


def with_sums(encoded: Encoded) -> Encoded:
    """Return an event of a long body with its salt, commitment and checksum, so that the write
    transaction does not spend the time to compute them.
    """
    body = encoded.body
    salt = urandom(SALT_BYTES)
    return encoded._replace(sums=BodySums(salt, commitment(salt, body), crc32(body)))


def commitment_of(proof: bytes, body: bytes) -> bytes:
    """Return the commitment to the body of a row, which the proof of a redacted row contains."""
    salt_or_commitment = proof[HEAD_BYTES:]
    if len(salt_or_commitment) == SALT_BYTES:
        return commitment(salt_or_commitment, body)
    if len(salt_or_commitment) == COMMITMENT_BYTES:
        return salt_or_commitment
    raise ValueError(f"the proof of an event has {len(proof)} bytes, not 48 or 64")


def is_redacted(proof: bytes) -> bool:
    return len(proof) == HEAD_BYTES + COMMITMENT_BYTES


@lru_cache(1_024)  # every append of a conversation calls this function
def checksum_seed(conversation: str) -> int:
    """Return the seed of a conversation. The checksums of its rows begin with the seed, so a row
    that was moved to another conversation has a wrong checksum.
    """
    return crc32(utf8(conversation))


_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of any bytes that end with their own CRC-32 (little-endian)."""
_body_checksum = struct.Struct(">I")
_own_checksum = struct.Struct("<I").pack


def with_checksums(seed: int, rows: Iterable[Row]) -> list[Row]:
    """Return the rows with the checksums of their bodies and of their ``meta``."""
    checked_rows = []
    for row in rows:
        meta = _body_checksum.pack(crc32(row.body)) + row.columns
        checked_rows.append(_new(Row, (row.id, meta + _own_checksum(crc32(meta, seed)), row.body)))
    return checked_rows


def unsound(seed: int, rows: Sequence[Row]) -> list[int]:
    """Return the indices of the rows with a wrong checksum, or with an id that differs from the id
    in ``meta``.
    """
    if not rows:
        return []
    ids, metas, bodies = zip(*rows, strict=True)
    try:
        bodies_and_ids = list(zip(map(crc32, bodies), ids, strict=True))
        are_sound = {_RESIDUE}.issuperset(map(crc32, metas, repeat(seed))) and (
            bodies_and_ids == list(map(_checksum_and_id, metas))
        )
    except (TypeError, ValueError):  # a body has another type than bytes
        are_sound = False
    if are_sound:
        return []
    if len(rows) == 1:
        return [0]
    return [index for index, row in enumerate(rows) if unsound(seed, (row,))]


def record_checksum(
    seed: int, projection: str, version: int, code: int, body: bytes, encoding: int
) -> int:
    fields = f"{projection} {version} {code} {encoding} "
    return crc32(body, crc32(utf8(fields), seed))


def chunk_checksum(seed: int, stream: int, chunk: Chunk) -> int:
    fields = f"stream {stream} {chunk.begins} {chunk.ends} {chunk.encoding} "
    return crc32(chunk.body, crc32(utf8(fields), seed))


_checksum_and_id = struct.Struct(">II").unpack_from
_YEARS = range(YEAR_10000)
"""The times that can be recorded, in microseconds since 1970."""


def present() -> int:
    """Return the present time in microseconds since 1970. Raises ``InvalidArgument`` if the clock
    shows a time that cannot be recorded.
    """
    now = time.time_ns() // 1_000
    return now if now in _YEARS else check_moment(now)


def make_rows(
    conversation: Conversation, batch: Sequence[Encoded], now: int, secret: bytes | None = None
) -> tuple[list[Row], Conversation]:
    """Make the rows that append ``batch`` to ``conversation``. Return the rows and the
    conversation's new state. The rows have the checksums of plain rows. Ids are dense, heads are
    linked, and recorded times never decrease.

    Each event has its own salt. The salt is random, or computed from ``secret`` and the event's id.
    Cost: one hash and one checksum of each body. ``link`` and ``with_checksums`` compute the heads
    and checksums of existing rows. A single loop for heads and checksums takes two thirds of the
    time of two loops (``benchmarks/append.py``).
    """
    _, name, _, salt, event_id, updated_at, head, shown_before, structural_before = conversation[:9]
    if head is None:
        head = first_head(conversation, salt)
    seed = checksum_seed(name)
    recorded_at = now if updated_at is None else max(now, updated_at)
    salts = (
        urandom(SALT_BYTES * len(batch)) if secret is None else _salts(secret, event_id, len(batch))
    )
    rows = []
    salt_at = 0
    for kind, schema, shown, structural, body, _, sums in batch:
        if sums is None or secret is not None:
            event_salt = salts[salt_at : salt_at + SALT_BYTES]
            committed = sha256(event_salt + body).digest()  # a call of ``commitment`` takes longer
            body_checksum = crc32(body)
        else:
            event_salt, committed, body_checksum = sums
        salt_at += SALT_BYTES
        kind_bytes, measured_kind = _kind_bytes(kind)
        head = sha256(b"%b%bsalted %d %d %d %d %d %b\n%b" % (
            head, salt, event_id, schema, shown, structural, recorded_at, measured_kind,
            committed,
        )).digest()  # fmt: skip
        fields = packed(
            body_checksum,
            event_id,
            shown_before,
            structural_before,
            recorded_at,
            schema,
            shown,
            structural,
            PLAIN,
            _PROOF_BYTES,
        )
        meta = fields + head + event_salt + kind_bytes
        rows.append(_new(Row, (event_id, meta + _own_checksum(crc32(meta, seed)), body)))
        event_id += 1
        shown_before += shown
        structural_before += structural
    end = event_id, recorded_at, head, shown_before, structural_before
    return rows, _new(Conversation, (*conversation[:4], *end, *conversation[9:]))


def _salts(secret: bytes, first: int, count: int) -> bytes:
    # The salts are not random: all copies of a source make equal events, and so have equal heads.
    ids = (b"%d" % event_id for event_id in range(first, first + count))
    return b"".join(
        [blake2b(event_id, digest_size=SALT_BYTES, key=secret).digest() for event_id in ids]
    )


@lru_cache(1_000)  # there are few kinds and many rows
def _kind_bytes(kind: str) -> tuple[bytes, bytes]:
    """Return the bytes of a kind, and the same bytes after their length."""
    kind_bytes = kind.encode()
    return kind_bytes, b"%d %b" % (len(kind_bytes), kind_bytes)


def event_of(conversation: str, row: Row, position: int | None = None) -> Event:
    """Return the event of a row. An event of a known kind without a time gets the time at which it
    was recorded, unless it was imported.

    Raises ``CorruptEvent`` if the bytes are not an event. The error contains ``position``.
    """
    event = stored_event_of(conversation, row, position)
    if event.timestamp is None and event.origin is None:
        with_times((event,), from_microseconds(row.recorded_at))
    return event


def events_of(conversation: str, rows: Sequence[Row]) -> Iterable[Event]:
    """Return the events of rows in their order. Iterating raises ``CorruptEvent`` at a row that is
    not an event.

    Undamaged rows are decoded all at once, in half of the time that decoding them one by one would
    take.
    """
    # The body of a damaged row is the problem in words, which is not JSON.
    events = events_of_rows(rows)
    if events is None:
        return (event_of(conversation, row) for row in rows)
    return events


def events_of_rows(rows: Sequence[Row]) -> list[Event] | None:
    """Return the events of rows, or None if a row is not an event."""
    if not rows:
        return []
    ids, metas, bodies = zip(*rows, strict=True)
    kinds, schemas, times = to_decode(metas)
    events = decode_all(kinds, schemas, bodies, ids)
    if events is not None:
        for event, recorded_at in zip(events, times, strict=True):
            if event.timestamp is None and event.origin is None:
                force_setattr(event, "timestamp", from_microseconds(recorded_at))
    return events


def with_times(events: Sequence[Event], recorded_at: datetime) -> Sequence[Event]:
    """Set the time of each event without a time to ``recorded_at``, as ``event_of`` does. The
    events are changed in place, so no other code may use them.
    """
    for event in events:
        # For an unknown event, foldlog does not know whether it has a time.
        if event.timestamp is None and event.origin is None and type(event) is not UnknownEvent:
            force_setattr(event, "timestamp", recorded_at)
    return events


def stored_event_of(conversation: str, row: Row, position: int | None = None) -> Event:
    """Do as ``event_of``, but leave the time of the event as it was appended."""
    _, _, _, _, _, schema, shown, structural, encoding, _ = unpacked(row.meta)
    if encoding != PLAIN:
        sound(conversation, row, position)
    try:
        return decode(row.kind, schema, row.body, row.id, shown, structural)
    except Undecodable as error:
        raise CorruptEvent(conversation, row.id, str(error), position) from error


def sound(conversation: str, row: Row, position: int | None = None) -> Row:
    """Return a decoded row unchanged. Raises ``CorruptEvent`` if it is damaged."""
    if row.encoding != PLAIN:
        raise CorruptEvent(conversation, row.id, row.body.decode(errors="replace"), position)
    return row


def dense_events(conversation: str, rows: Sequence[Row], start: int, stop: int) -> Iterable[Event]:
    """Return the events of rows. Iterating raises ``CorruptEvent`` at a row that is missing, or is
    not an event.
    """
    if list(map(_id_of, rows)) == list(range(start, stop)):
        return events_of(conversation, rows)
    return (event_of(conversation, row) for row in dense_rows(conversation, rows, start, stop))


def dense_rows(conversation: str, rows: Sequence[Row], start: int, stop: int) -> Iterator[Row]:
    """Yield the rows with the ids from ``start`` to ``stop``. Raises ``CorruptEvent`` at a row that
    is missing.
    """
    for row in rows:
        if row.id != start:
            break
        yield row
        start += 1
    if start < stop:
        raise CorruptEvent(conversation, start, "it is missing")


def time_before(microseconds: int, span: timedelta) -> datetime:
    """Return the time that was ``span`` before ``microseconds``, but no time before the year 1."""
    try:
        return from_microseconds(microseconds) - span
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


@lru_cache(1)  # all events of one batch have the same time
def from_microseconds(moment: int) -> datetime:
    try:
        return EPOCH + timedelta(0, 0, moment)  # a keyword would double the time
    except (TypeError, OverflowError) as error:
        raise StoreDamaged(
            f"the store holds the impossible time {moment!r:.40}; run 'foldlog store verify', then"
            " 'foldlog store copy --damaged'"
        ) from error
