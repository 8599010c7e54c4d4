"""The rows of a result as values. Each function takes a result and, where it is about one row, the row's number."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from psycopg.pq.abc import PGresult

from eventstore.recorders.postgres.binary import to_text
from eventstore.recorders.types import HEAD_BYTES, Conversation, Erasure, PlacedRow, RecalledKey, Record, Row, kind_name

TRUE: Final = b"\1"
unsigned: Final = int.from_bytes  # big-endian and unsigned, as everything is that cannot be negative
_signed: Final = Struct("!q").unpack


def values(result: PGresult) -> Callable[[int, int], bytes]:
    """Return a function from (row, column) to a value, for columns that are never null."""
    return cast("Callable[[int, int], bytes]", result.get_value)


def moment(stored: bytes) -> int:
    return cast("int", _signed(stored)[0])


def integer_at(result: PGresult, row: int, column: int) -> int:
    return unsigned(values(result)(row, column))


def recalled_key(result: PGresult, row: int, column: int) -> RecalledKey:
    proof, position = result.get_value(row, column + 2), result.get_value(row, column + 3)
    first_id, events = integer_at(result, row, column), integer_at(result, row, column + 1)
    return RecalledKey(first_id, events, proof, None if position is None else unsigned(position))


def rows_of(result: PGresult) -> list[Row]:
    value = values(result)
    return [
        Row(
            unsigned(value(n, 0)),
            kind_name(value(n, 1)),
            unsigned(value(n, 2)),
            value(n, 3) == TRUE,
            value(n, 4) == TRUE,
            moment(value(n, 5)),
            unsigned(value(n, 6)),
            value(n, 7),
            value(n, 8),
            unsigned(value(n, 9)),
            unsigned(value(n, 10)),
            unsigned(value(n, 11)),
        )
        for n in range(result.ntuples)
    ]


def records_of(result: PGresult) -> list[Record]:
    named = result.nfields > 6
    records = [record_of(result, n, 0) for n in range(result.ntuples)]
    return [r._replace(projection=to_text(values(result)(n, 6))) for n, r in enumerate(records)] if named else records


def record_of(result: PGresult, n: int, first: int) -> Record:
    """Return the record in a row, from a column on."""
    value = values(result)
    return Record(
        unsigned(value(n, first)),
        unsigned(value(n, first + 1)),
        None if (base := result.get_value(n, first + 2)) is None else unsigned(base),
        value(n, first + 3),
        unsigned(value(n, first + 4)),
        unsigned(value(n, first + 5)),
    )


def placed_erasure(result: PGresult, n: int) -> PlacedRow:
    value = values(result)
    position = unsigned(value(n, 0))
    erasure = Erasure(moment(value(n, 2)), to_text(value(n, 3)), unsigned(value(n, 4)), value(n, 5), position)
    return PlacedRow(position, to_text(value(n, 1)), erasure)


def conversation_at(result: PGresult, n: int) -> Conversation:
    value, may_be_null = values(result), result.get_value
    parent, parent_version, key_id, erased_at = (may_be_null(n, column) for column in (3, 4, 6, 8))
    is_empty = may_be_null(n, 12) is None
    return Conversation(
        key=unsigned(value(n, 0)),
        id=to_text(value(n, 1)),
        created_at=moment(value(n, 2)),
        salt=may_be_null(n, 5) or b"",
        version=0 if is_empty else unsigned(value(n, 12)) + 1,
        updated_at=None if is_empty else moment(value(n, 13)),
        head=None if (proof := may_be_null(n, 14)) is None else proof[:HEAD_BYTES],
        parent=None if parent is None else unsigned(parent),
        parent_version=None if parent_version is None else unsigned(parent_version),
        key_id=None if key_id is None else to_text(key_id),
        sealed_key=may_be_null(n, 7),
        erasure=None
        if erased_at is None
        else Erasure(
            moment(erased_at),
            to_text(value(n, 9)),
            unsigned(value(n, 10)),
            value(n, 11),
            None if (position := may_be_null(n, 25)) is None else unsigned(position),
        ),
        shown=0 if is_empty else unsigned(value(n, 15)) + (value(n, 16) == TRUE),
        structural=0 if is_empty else unsigned(value(n, 17)) + (value(n, 18) == TRUE),
        visible=value(n, 19) == TRUE,
        mark=may_be_null(n, 20),
        parent_id=None if (parent_id := may_be_null(n, 21)) is None else to_text(parent_id),
        past=may_be_null(n, 22),
        replaces=None if (replaces := may_be_null(n, 23)) is None else unsigned(replaces),
        redactions=0 if (redactions := may_be_null(n, 24)) is None else unsigned(redactions),
    )
