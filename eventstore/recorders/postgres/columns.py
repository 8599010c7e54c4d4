"""What a store keeps as columns: packed in PostgreSQL's binary form for parameters, and taken from the rows of results.

Ids and names are their UTF-8 bytes. psycopg turns the columns of results into Python's values (``wire.Wire.rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

from foldlog.eventstore.recorders.types import HEAD_BYTES, Conversation, Erasure, Record, Row, kind_name, utf8

Parameter = bytes | None
Columns = tuple[Any, ...]
"""One row of a result."""

BIGINT: Final = 20
BOOLEAN: Final = 16
BYTEA: Final = 17
INTEGER: Final = 23
SMALLINT: Final = 21
OF_ROW: Final = (BIGINT, BYTEA, INTEGER, BOOLEAN, BOOLEAN, BIGINT, SMALLINT, BYTEA, BYTEA, INTEGER, INTEGER, INTEGER,
                 BIGINT)  # fmt: skip
"""The types of the columns that ``row_columns`` returns."""

bigint: Final = Struct("!q").pack
smallint: Final = Struct("!h").pack

_UNSIGNED: Final = 0xFFFF_FFFF
_unsigned: Final = Struct("!I").pack
_array_header: Final = Struct("!iiIii").pack
_length: Final = Struct("!i").pack
_NULL: Final = _length(-1)


# -- parameters --------------------------------------------------------------------------------------------------------


def integer(number: int) -> bytes:
    """Return a signed or unsigned number of 32 bits."""
    return _unsigned(number & _UNSIGNED)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def optional(number: int | None) -> Parameter:
    return None if number is None else bigint(number)


def array(kind: int, values: Sequence[Parameter]) -> bytes:
    """Return an array of one dimension, of values in their binary form. ``kind`` is the OID of their type."""
    return b"".join((_array_header(1, 1, kind, len(values), 1), *_items(values)))


def bigints(numbers: Iterable[int | None]) -> bytes:
    return array(BIGINT, [optional(number) for number in numbers])


def row_columns(row: Row, position: int | None) -> tuple[Parameter, ...]:
    """Return a row in the order of the INSERT."""
    return (
        bigint(row.id),
        utf8(row.kind),
        integer(row.schema),
        boolean(row.shown),
        boolean(row.structural),
        bigint(row.recorded_at),
        smallint(row.encoding),
        row.body,
        row.proof,
        integer(row.shown_before),
        integer(row.structural_before),
        integer(row.checksum),
        optional(position),
    )


def _items(values: Iterable[Parameter]) -> Iterable[bytes]:
    for value in values:
        if value is None:
            yield _NULL
        else:
            yield _length(len(value))
            yield value


# -- results -----------------------------------------------------------------------------------------------------------


def to_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def row_of(found: Columns) -> Row:
    event_id, kind, schema, shown, structural, at, encoding, body, proof, before, turns, checksum = found
    name, checksum = kind_name(kind), checksum & _UNSIGNED
    return Row(event_id, name, schema, shown, structural, at, encoding, body, proof, before, turns, checksum)


def record_of(found: Columns) -> Record:
    version, code, base, body, encoding, checksum, *projection = found
    return Record(version, code, base, body, encoding, checksum & _UNSIGNED, *map(to_text, projection))


def conversation_of(found: Columns) -> Conversation:
    (
        key, name, created_at, parent, parent_version, salt, key_id, sealed_key,
        erased_at, erased_reason, erased_events, erased_head, erased_position,
        last_id, updated_at, proof, shown_before, shown, structural_before, structural,
        visible, mark, parent_id, past, replaces, redactions,
    ) = found  # fmt: skip
    erasure = None
    if erased_at is not None:
        erasure = Erasure(erased_at, to_text(erased_reason), erased_events, erased_head, erased_position)
    is_empty = last_id is None
    return Conversation(
        key=key,
        id=to_text(name),
        created_at=created_at,
        salt=salt or b"",
        version=0 if is_empty else last_id + 1,
        updated_at=updated_at,
        head=None if is_empty else proof[:HEAD_BYTES],
        shown=0 if is_empty else shown_before + shown,
        structural=0 if is_empty else structural_before + structural,
        parent=parent,
        parent_version=parent_version,
        key_id=None if key_id is None else to_text(key_id),
        sealed_key=sealed_key,
        erasure=erasure,
        visible=visible,
        mark=mark,
        parent_id=None if parent_id is None else to_text(parent_id),
        past=past,
        replaces=replaces,
        redactions=redactions or 0,
    )
