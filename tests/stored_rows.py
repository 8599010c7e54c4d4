"""Change stored rows, as a flipped bit does, or somebody who can write the file."""

import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from foldlog.eventstore.log.row import checksum_seed, with_checksums
from foldlog.eventstore.recorders.types import Row, row_of, unpacked

FIELDS = (
    "body_checksum",
    "id",
    "shown_before",
    "structural_before",
    "recorded_at",
    "schema",
    "shown",
    "structural",
    "encoding",
    "proof_size",
)
"""The fields at the beginning of a ``meta``, in their order."""
_fields = struct.Struct(">IIIIqIBBBB")


def meta_with(meta: bytes, field: str, value: Any) -> bytes:
    """Return a ``meta`` with another value of one field, or another head, kind or checksum."""
    if field in FIELDS:
        fields = dict(zip(FIELDS, _fields.unpack_from(meta), strict=True))
        return _fields.pack(*(fields | {field: value}).values()) + meta[_fields.size :]
    kind_at = _fields.size + meta[_fields.size - 1]
    if field == "head":
        return meta[: _fields.size] + value + meta[_fields.size + 32 :]
    if field == "kind":
        return meta[:kind_at] + value.encode() + meta[-4:]
    assert field == "checksum"
    return meta[:-4] + bytes(byte ^ value for byte in meta[-4:])


def with_fields(row: Row, **fields: Any) -> Row:
    """Return a row with other values of these arguments of ``row_of``. It has no checksums."""
    _, event_id, shown_before, structural_before, at, schema, shown, structural, encoding, _ = (
        unpacked(row.meta)
    )
    present = {
        "event_id": event_id,
        "kind": row.kind,
        "schema": schema,
        "shown": shown,
        "structural": structural,
        "recorded_at": at,
        "encoding": encoding,
        "body": row.body,
        "proof": row.proof,
        "shown_before": shown_before,
        "structural_before": structural_before,
    }
    return row_of(**present | fields)


def meta_field(meta: bytes, field: str) -> int:
    """Return a field at the beginning of a ``meta``."""
    return int(dict(zip(FIELDS, _fields.unpack_from(meta), strict=True))[field])


def connect(path: Any, **options: Any) -> sqlite3.Connection:
    """Open a file of SQLite. Its statements can call ``meta_with`` and ``meta_field``."""
    connection = sqlite3.connect(path, **options)
    connection.create_function("meta_with", 3, meta_with)
    connection.create_function("meta_field", 2, meta_field)
    return connection


def execute(path: Any, *statements: str) -> list[Any]:
    """Execute statements on a file, each in a transaction; return the rows of the last one."""
    rows: list[Any] = []
    with closing(connect(path, isolation_level=None)) as connection:
        for statement in statements:
            rows = connection.execute(statement).fetchall()
    return rows


def replace(path: Any, conversation: str, row: Row) -> None:
    """Replace the row with the same id in a file, with right checksums."""
    with closing(connect(path, isolation_level=None)) as connection:
        put(connection, conversation, [row])


def put(
    connection: sqlite3.Connection, conversation: str, rows: Sequence[Row], where: str = ""
) -> None:
    """Replace the rows with the same ids, with right checksums and columns."""
    for row in with_checksums(checksum_seed(conversation), rows):
        body = "CAST(? AS TEXT)" if row.encoding == 0 else "?"
        connection.execute(
            f"UPDATE events SET kind = ?, shown = ?, structural = ?, meta = ?, body = {body} "
            f"WHERE conversation = (SELECT key FROM conversations WHERE id = ?) AND id = ? {where}",
            (row.kind, row.shown, row.structural, row.meta, row.body, conversation, row.id),
        )
