"""What a store keeps as columns, packed in PostgreSQL's binary form for parameters. Ids and names are UTF-8 bytes.

psycopg turns the columns of results into Python's values (``wire.Wire.rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from foldlog.eventstore.recorders.types import Row, utf8

Parameter = int | str | bytes | None
"""A parameter; one of another type than bigint, text as bytes, boolean and bytea is packed already."""

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


def integer(number: int) -> bytes:
    """Return a signed or unsigned number of 32 bits."""
    return _unsigned(number & _UNSIGNED)


def packed(value: Parameter) -> bytes | None:
    """Return a parameter in its binary form."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    return bigint(value)


def array(kind: int, values: Sequence[Parameter]) -> bytes:
    """Return an array of one dimension. ``kind`` is the OID of the type of its values."""
    items = [_array_header(1, 1, kind, len(values), 1)]
    for value in map(packed, values):
        items += (_NULL,) if value is None else (_length(len(value)), value)
    return b"".join(items)


def bigints(numbers: Iterable[int | None]) -> bytes:
    return array(BIGINT, list(numbers))


def row_columns(row: Row, position: int | None) -> tuple[bytes | None, ...]:
    """Return a row in the order of the INSERT."""
    return (
        bigint(row.id),
        utf8(row.kind),
        integer(row.schema),
        packed(row.shown),
        packed(row.structural),
        bigint(row.recorded_at),
        smallint(row.encoding),
        row.body,
        row.proof,
        integer(row.shown_before),
        integer(row.structural_before),
        integer(row.checksum),
        packed(position),
    )
