"""Protect every stored event twice: heads show who changed a history, checksums show decayed bytes. Pure.

    head(-1)   = SHA-256("foldlog" || salt || id of the conversation)
    head(n)    = SHA-256(head(n-1) || salt || "salted " || id, schema, shown, structural, recorded_at, kind ||
                         commitment)
    commitment = SHA-256(salt of the event || body)

Each event has a salt of its own, which is stored after its head (``Row.proof``). A redaction replaces the body, and it
replaces the salt by the commitment. So the head stays unchanged, and no reader can test a guess of the erased body.
The first own event of a fork follows this border, and not its parent's head:

    border   = SHA-256("foldlog fork" || salt || version || parent's head || id of the fork)

Each head proves its event and every event before it. It is computed from the plain text as first written, so
encryption, compression, copying and upcasting do not change it. With a published head, its keeper can detect every
later change to that history. Without the salt, which is erased with the conversation, a head reveals nothing about the
events.

A checksum (CRC-32) covers one row as it is stored, and needs no other row. Every read checks it, so a flipped bit
becomes an error and never a wrong text. ``docs/STORED_BYTES.md`` gives the bytes of both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from operator import add, itemgetter
from os import urandom
from typing import Any, NamedTuple

from eventstore.log.crc import crc32
from eventstore.recorders.types import HEAD_BYTES, Record, Row

__all__ = [
    "COMMITMENT_BYTES",
    "HEAD_BYTES",
    "SALT_BYTES",
    "Chain",
    "are_sound",
    "border",
    "checksum",
    "checksum_seed",
    "checksums",
    "commitment",
    "commitment_of",
    "is_redacted",
    "is_sound_record",
    "link",
    "link_of",
    "link_with",
    "new_salt",
    "record_checksum",
    "seed",
    "sound_rows",
    "unsound",
    "with_checksums",
]

SALT_BYTES = 16
"""The size of the salt of a conversation, and of an event."""
COMMITMENT_BYTES = 32

pack = struct.Struct(">8q").pack
_checksum = itemgetter(11)
_new = tuple.__new__  # what Row(...) calls, without the call around it


def new_salt() -> bytes:
    """Return bytes that make heads of equal histories differ. Once they are erased, heads reveal nothing of events."""
    return urandom(SALT_BYTES)


def seed(conversation: str, salt: bytes) -> bytes:
    """Return the head of an empty conversation."""
    return sha256(b"foldlog" + salt + _bytes(conversation)).digest()


def border(conversation: str, salt: bytes, version: int, head: bytes) -> bytes:
    """Return the border before a fork's first own event: ``head`` is its parent's at ``version``, ``salt`` its own."""
    return sha256(b"foldlog fork%b%b%b%b" % (salt, version.to_bytes(8), head, _bytes(conversation))).digest()


def link(
    head: bytes,
    salt: bytes,
    event_id: int,
    kind: str,
    schema: int,
    shown: bool,
    structural: bool,
    recorded_at: int,
    body: bytes,
    proof: bytes,
) -> bytes:
    """Return the head after one more event. ``recorded_at`` is in microseconds since 1970, UTC; ``salt`` is that of the
    conversation, ``proof`` the row's: its end is the salt of the event, or the commitment of a redacted one. Cost: one
    pass over the body.

    The fields before the body are separated by spaces and closed by a line feed; only the kind is text, its length
    stands before it, so no two events have the same bytes. Raises ``ValueError`` for a proof that cannot be one.
    """
    return link_with(head, salt, event_id, kind, schema, shown, structural, recorded_at, commitment_of(proof, body))


def link_with(
    head: bytes,
    salt: bytes,
    event_id: int,
    kind: str,
    schema: int,
    shown: bool,
    structural: bool,
    recorded_at: int,
    committed: bytes,
) -> bytes:
    """Return the head after one more event with this commitment."""
    name = kind.encode("utf-8", "surrogatepass")
    return sha256(b"%b%bsalted %d %d %d %d %d %d %b\n%b" % (
        head, salt, event_id, schema, shown, structural, recorded_at, len(name), name, committed
    )).digest()  # fmt: skip


def link_of(head: bytes, salt: bytes, row: Row) -> bytes:
    """Return the head after a plain row. Raises ``TypeError``, ``ValueError``, ``AttributeError`` for wrong columns."""
    event_id, kind, schema, shown, structural, recorded_at, _, body, proof, *_ = row
    return link(head, salt, event_id, kind, schema, shown, structural, recorded_at, body, proof)


def commitment(event_salt: bytes, body: bytes) -> bytes:
    """Return the commitment that a head is computed from in the place of the body."""
    return sha256(event_salt + body).digest()


def commitment_of(proof: bytes, body: bytes) -> bytes:
    """Return the commitment of a row with this proof and this plain body. Raises ``ValueError`` for a proof that cannot
    be one.
    """
    rest = proof[HEAD_BYTES:]
    if len(rest) == SALT_BYTES:
        return commitment(rest, body)
    if len(rest) == COMMITMENT_BYTES:
        return rest
    raise ValueError(f"the proof of an event has {len(proof)} bytes")


def is_redacted(proof: bytes) -> bool:
    """Return whether a row with this proof says that its body was redacted."""
    return len(proof) == HEAD_BYTES + COMMITMENT_BYTES


@lru_cache(1_024)  # every append of a conversation asks for it
def checksum_seed(conversation: str) -> int:
    """Return the start of the checksums of a conversation's rows, so that another conversation's do not match."""
    return crc32(_bytes(conversation))


def checksum(seed: int, *columns: Any) -> int:
    """Return the checksum of the row with these columns."""
    return checksums((seed,), ((*columns, 0),))[0]


def checksums(seeds: Iterable[int], rows: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
    """Return the checksum of each of these rows (at least one), with its body as it is stored, from its seed.

    Column by column, because every read and every append does this. Cost: one pass over each body, four times as fast
    as a link. Raises ``struct.error``, ``TypeError``, ``ValueError`` for columns of wrong types.
    """
    ids, kinds, schemas, shown, structural, times, encodings, bodies, proofs, befores, turns_before, _ = zip(
        *rows, strict=True
    )
    packed = map(pack, ids, schemas, shown, structural, times, encodings, befores, turns_before)
    names = map(str.encode, kinds, repeat("utf-8"), repeat("surrogatepass"))
    beginnings = map(crc32, map(add, map(add, packed, names), proofs), seeds)
    return tuple(map(crc32, bodies, beginnings))


def with_checksums(seed: int, rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return the rows with these columns, of which the checksum is replaced by the right one."""
    checks = checksums(repeat(seed), rows)
    return [_new(Row, (*row[:-1], check)) for row, check in zip(rows, checks, strict=True)]


def are_sound(seeds: Iterable[int], rows: Sequence[Row]) -> bool:
    """Return whether all rows have their checksums, each computed from its seed."""
    if not rows:
        return True
    try:
        return checksums(seeds, rows) == tuple(map(_checksum, rows))
    except (struct.error, TypeError, ValueError):  # a column of another type
        return False


def unsound(seed: int, rows: Sequence[Row]) -> list[int]:
    """Return the places of rows with a wrong checksum."""
    if are_sound(repeat(seed), rows):
        return []
    return [place for place, row in enumerate(rows) if not are_sound((seed,), (row,))]


class Chain(NamedTuple):
    """The values that the next row must match: the head before it, its id, and its counts of earlier events."""

    head: bytes
    next_id: int
    shown: int
    structural: int


def sound_rows(chain: Chain, salt: bytes, seed: int, rows: Sequence[Row]) -> tuple[int, Chain]:
    """Count the plain rows, from the first, that are unchanged and in their places. Return this number and the chain
    after these rows. A redacted row needs other checks, so the count ends before it. Cost: a link and a checksum each.
    """
    head, expected, shown_count, structural_count = chain
    try:
        checks = checksums(repeat(seed), rows) if rows else ()
        for row, check in zip(rows, checks, strict=True):
            if (
                check != row.checksum
                or row.id != expected
                or row.encoding
                or row.shown_before != shown_count
                or row.structural_before != structural_count
                or is_redacted(row.proof)
                or link_of(head, salt, row) != row.head
            ):
                break
            head = row.head
            expected += 1
            shown_count += row.shown
            structural_count += row.structural
    except (TypeError, ValueError, AttributeError, struct.error):
        pass  # a column of another type: this row is not what was written
    return expected - chain.next_id, Chain(head, expected, shown_count, structural_count)


def record_checksum(
    seed: int, projection: str, version: int, code: int, base: int | None, body: bytes, encoding: int
) -> int:
    """Return the checksum of a projection's record for one version, with ``body`` as it is stored."""
    fields = f"{projection} {version} {code} {base} {encoding} "
    return crc32(body, crc32(_bytes(fields), seed))


def is_sound_record(conversation: str, projection: str, record: Record) -> bool:
    """Return whether the checksum of a projection's record is that of ``record_checksum``, in one call."""
    version, code, base, body, encoding, checksum, _ = record
    beginning = f"{conversation}{projection} {version} {code} {base} {encoding} "
    return checksum == crc32(_bytes(beginning) + body)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
