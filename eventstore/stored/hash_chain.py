"""Two guards over every stored event: heads, against those who change a history, and checksums, against decay. Pure.

    head(-1) = SHA-256("foldlog" || salt || id of the conversation)
    head(n)  = SHA-256(head(n-1) || salt || id, schema, shown, structural, recorded_at, kind || body)

The first event of a fork's own follows, in the place of its parent's head:

    border   = SHA-256("foldlog fork" || salt || version || parent's head || id of the fork)

Each head vouches for its event and for every event before it. It is over the plain text as first written, so that
encryption, compression, copying and upcasting leave it whole. Publishing one head makes every change to that history
visible to its keeper; without the salt, which is erased with the conversation, it says nothing of what it covers.

A checksum (CRC-32) is of one row as it is stored, and needs no other row: every read checks it, so that a flipped bit
is an error and not another text. ``docs/STORED_BYTES.md`` gives the bytes of both.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from operator import add
from typing import Any, NamedTuple

from eventstore.recorders.types import Row
from eventstore.stored.crc import crc32

__all__ = [
    "HEAD_BYTES",
    "SALT_BYTES",
    "Chain",
    "border",
    "checksum",
    "checksum_seed",
    "link",
    "linked",
    "new_salt",
    "record_checksum",
    "seed",
    "sound_rows",
    "unsound",
]

HEAD_BYTES = 32
SALT_BYTES = 16

_pack = struct.Struct(">8q").pack
_new = tuple.__new__  # what Row(...) calls, without the call around it


def new_salt() -> bytes:
    """Random bytes that make the heads of equal histories differ, and, once erased, say nothing of what they
    covered.
    """
    return secrets.token_bytes(SALT_BYTES)


def seed(conversation: str, salt: bytes) -> bytes:
    """Return the head of an empty conversation."""
    return sha256(b"foldlog" + salt + _bytes(conversation)).digest()


def border(conversation: str, salt: bytes, version: int, head: bytes) -> bytes:
    """Return what a fork's first own event follows: ``head`` is its parent's at ``version``, ``salt`` its own."""
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
) -> bytes:
    """Return the head after one more event. ``recorded_at`` is in microseconds since 1970, UTC. Cost: one pass over the
    body.

    The fields before the body are separated by spaces and closed by a line feed; only the kind is text, its length
    stands before it, so no two events have the same bytes.
    """
    name = _bytes(kind)
    return sha256(
        b"%b%b%d %d %d %d %d %d %b\n%b"
        % (head, salt, event_id, schema, shown, structural, recorded_at, len(name), name, body)
    ).digest()


@lru_cache(1_024)  # every append of a conversation asks for it
def checksum_seed(conversation: str) -> int:
    """Where the checksums of a conversation's rows start, so that a row of another one does not pass for its own."""
    return crc32(_bytes(conversation))


def checksum(
    seed: int,
    event_id: int,
    kind: str,
    schema: int,
    shown: bool,
    structural: bool,
    recorded_at: int,
    encoding: int,
    body: bytes,
    head: bytes,
    shown_before: int,
    structural_before: int,
) -> int:
    """Return the checksum of a row, ``body`` as it is stored. Cost: one pass over the body, four times as fast as a
    link.
    """
    fields = _pack(event_id, schema, shown, structural, recorded_at, encoding, shown_before, structural_before)
    return crc32(body, crc32(fields + _bytes(kind) + head, seed))


def unsound(seed: int, rows: Sequence[Sequence[Any]]) -> list[int]:
    """Return the places of rows with a wrong checksum. It repeats ``checksum`` inline because every read does this."""
    if not rows:
        return []
    try:  # by columns, in which no bytecode is executed for a row
        columns = tuple(zip(*rows, strict=True))
        ids, kinds, schemas, shown, structural, times, encodings, bodies, heads, befores, turns_before, checks = columns
        packed = map(_pack, ids, schemas, shown, structural, times, encodings, befores, turns_before)
        beginnings = map(crc32, map(add, map(add, packed, kinds), heads), repeat(seed))
        if tuple(map(crc32, bodies, beginnings)) == checks:
            return []
    except (struct.error, TypeError, ValueError):  # a column of another type
        pass
    places = []
    for place, row in enumerate(rows):
        (event_id, kind, schema, shown, structural, at, encoding, body, head, before, turns, check) = row
        try:
            fields = _pack(event_id, schema, shown, structural, at, encoding, before, turns)
            if check != crc32(body, crc32(fields + kind + head, seed)):
                places.append(place)
        except (struct.error, TypeError, AttributeError):  # a column of another type
            places.append(place)
    return places


class Chain(NamedTuple):
    """What the next row must follow: the head before it, its id, and how many shown and structural ones are before."""

    head: bytes
    next_id: int
    shown: int
    structural: int


def linked(
    chain: Chain, salt: bytes, seed: int, recorded_at: int, events: Iterable[tuple[str, int, bool, bool, bytes, object]]
) -> list[Row]:
    """Return the rows of plain events that follow ``chain``, given as (kind, schema, shown, structural, body, extra).

    It is ``link`` and ``checksum`` of each, written out once more because every batch does this.
    """
    head, event_id, before, turns = chain
    names: dict[str, bytes] = {}
    rows = []
    for kind, schema, shown, structural, body, _ in events:
        name = names.get(kind)
        if name is None:
            name = names[kind] = _bytes(kind)
        link = sha256(b"%b%b%d %d %d %d %d %d %b\n" % (
            head, salt, event_id, schema, shown, structural, recorded_at, len(name), name
        ))  # fmt: skip
        link.update(body)
        head = link.digest()
        fields = _pack(event_id, schema, shown, structural, recorded_at, 0, before, turns)
        check = crc32(body, crc32(fields + name + head, seed))
        rows.append(
            _new(Row, (event_id, kind, schema, shown, structural, recorded_at, 0, body, head, before, turns, check))
        )
        event_id += 1
        before += shown
        turns += structural
    return rows


def sound_rows(chain: Chain, salt: bytes, seed: int, rows: Iterable[Sequence[Any]]) -> tuple[int, Chain]:
    """How many plain rows, from the first, are what was written and in their places, and the chain behind them. The
    rows are bare: their kinds are UTF-8 bytes.

    It is ``link`` and ``checksum`` of each, written out once more because this is where a verification spends its time.
    """
    head, expected, shown_count, structural_count = chain
    try:
        for event_id, kind, schema, shown, structural, at, encoding, body, own, before, turns, check in rows:
            link = sha256(b"%b%b%d %d %d %d %d %d %b\n" % (
                head, salt, event_id, schema, shown, structural, at, len(kind), kind
            ))  # fmt: skip
            link.update(body)
            if (
                link.digest() != own
                or event_id != expected
                or encoding
                or before != shown_count
                or turns != structural_count
                or check != crc32(body, crc32(_pack(
                    event_id, schema, shown, structural, at, encoding, before, turns
                ) + kind + own, seed))
            ):  # fmt: skip
                break
            head = own
            expected += 1
            shown_count += shown
            structural_count += structural
    except (TypeError, ValueError, AttributeError, struct.error):
        pass  # a column of another type: this row is not what was written
    return expected - chain.next_id, Chain(head, expected, shown_count, structural_count)


def record_checksum(
    seed: int, projection: str, version: int, code: int, base: int | None, body: bytes, encoding: int
) -> int:
    """Return the checksum of a projection's record for one version, ``body`` as it is stored."""
    fields = f"{projection} {version} {code} {base} {encoding} "
    return crc32(body, crc32(_bytes(fields), seed))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
