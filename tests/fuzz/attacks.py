"""The attacks on an encrypted store by somebody who can write its file and has no key.

Each function yields names of attacks with functions that make them through a connection.
"""

import os
import re
import struct
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path

from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.recorders.types import Row
from foldlog.projections.stored.revision_codec import CODE
from tests.stored_rows import FIELDS, meta_field, meta_with, with_fields

_KEYS = {
    "conversations": ("key",),
    "events": ("position",),
    "records": ("conversation", "projection", "version"),
    "idempotency_keys": ("conversation", "key"),
    "attachments": ("conversation", "name", "encoding"),
    "attached": ("conversation", "event", "name", "encoding"),
    "store": ("name",),
}
"""Maps each table to the columns that identify a row."""
_TEXT = Path(__file__).with_suffix(".txt").read_text()
_CHOICES = re.findall(r"^{(\w+)}: (.+)$", _TEXT, re.MULTILINE)
"""The values for a name in braces that are the same for each store."""
_SCRIPTS = re.findall(r"^-- (.+)\n((?:.+\n)+)", _TEXT, re.MULTILINE)
"""The names of attacks and their SQL statements."""


def of_columns(connection):
    """Change each column of each row: to neighbouring and extreme values, and to the values of other
    rows.
    """
    for table, keys in _KEYS.items():
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(
            f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(keys)}"
        ).fetchall()
        for row in rows:
            place = [row[names.index(key)] for key in keys]
            for n, name in enumerate(names):
                if name == "checksum":
                    continue
                for other in _others(row[n], [other_row[n] for other_row in rows]):
                    statement = f"UPDATE {table} SET {name} = ? WHERE {_where(table)}"
                    yield (
                        f"{table} {place}: {name} {row[n]!r} -> {other!r}",
                        _run(statement, other, *place),
                    )
    for position, meta in connection.execute(
        "SELECT position, meta FROM events ORDER BY position"
    ).fetchall():
        for field in (*FIELDS, "kind"):
            value = "message" if field == "kind" else meta_field(meta, field)
            for other in _others(value, []):
                if other is None:
                    continue
                with suppress(struct.error):  # the field has no room for this number
                    changed = meta_with(meta, field, other)
                    yield (
                        f"the {field} in the meta of event {position} -> {other!r}",
                        _run("UPDATE events SET meta = ? WHERE position = ?", changed, position),
                    )


def of_rows(connection):
    """Delete each row."""
    for table, keys in _KEYS.items():
        for place in connection.execute(
            f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)}"
        ).fetchall():
            yield (
                f"delete {table} {place}",
                _run(f"DELETE FROM {table} WHERE {_where(table)}", *place),
            )


def of_statements(connection, length):
    """Run the SQL of ``attacks.txt`` on conversations of ``length`` events: delete, double, swap, move
    and cut off rows, and insert forged ones. ``own`` is a plain store of the attacker, with the same
    conversations and other texts.
    """
    rows = connection.execute("SELECT position FROM events ORDER BY position").fetchall()
    positions = [position for (position,) in rows]
    choices = {
        "key": (1, 2),
        "left": range(length),
        "pair": [
            *pairwise(positions),
            *zip(positions, positions[length:], strict=False),
            *((position, positions[length - 1]) for position in positions[: length - 1]),
        ],
        "position": positions,
        "version": (5, 9, length - 1, length),
        "nth": range(length),
        "first": (0, 5, 7, length - 1),
        "mark": [
            f"{kept:016x}{keys:016x}{until:016x}"
            for kept, keys, until in (
                (0, 0, length),
                (length, 0, length),
                (length, 0, 1),
                (0, 0, 0),
                (length + 1, 0, 0),
            )
        ],
    }
    for name, values in _CHOICES:
        choices[name] = values.replace("{length}", str(length)).split("; ")
    for name, script in _SCRIPTS:
        fields = list(dict.fromkeys(re.findall(r"{(\w+)", name)))
        for values in product(*(choices[field] for field in fields)):
            choice = dict(zip(fields, values, strict=True))
            yield name.format(**choice), _run_all(script.format(**choice, code=CODE, length=length))


def of_proofs(connection):
    """Forge a redaction or a salt of each event."""
    for (position,) in connection.execute("SELECT position FROM events").fetchall():
        yield f"make event {position} look redacted", lambda c, p=position: _give_proof(c, p, 32)
        yield f"give event {position} another salt", lambda c, p=position: _give_proof(c, p, 16)


def make_checksums_right(connection):
    """Correct the checksums of all rows, which needs no key. A row keeps its checksum if a column has a
    wrong type.
    """
    names = dict(connection.execute("SELECT key, id FROM conversations").fetchall())
    events = connection.execute(
        "SELECT position, conversation, id, meta, body FROM events"
    ).fetchall()
    for position, key, event_id, meta, body in events:
        row = Row(event_id, meta, body.encode() if isinstance(body, str) else body)
        try:
            (right,) = hash_chain.with_checksums(
                hash_chain.checksum_seed(str(names.get(key))), [row]
            )
        except Exception:  # noqa: BLE001
            continue
        connection.execute("UPDATE events SET meta = ? WHERE position = ?", (right.meta, position))
    for key, *columns in connection.execute(
        "SELECT conversation, projection, version, code, body, encoding FROM records"
    ).fetchall():
        checksum = hash_chain.record_checksum(
            hash_chain.checksum_seed(str(names.get(key))), *columns
        )
        place = (checksum, key, *columns[:2])
        connection.execute(
            "UPDATE records SET checksum = ? WHERE conversation = ? AND projection = ? AND"
            " version = ?",
            place,
        )


def _where(table):
    return " AND ".join(f"{key} IS ?" for key in _KEYS[table])


def _run(statement, *parameters):
    return lambda connection: connection.execute(statement, parameters)


def _run_all(script):
    return lambda connection: [
        connection.execute(statement) for statement in script.split(";\n") if statement.strip()
    ]


def _give_proof(connection, position, size):
    """Put ``size`` random bytes behind the head of an event."""
    (meta,) = connection.execute(
        "SELECT meta FROM events WHERE position = ?", (position,)
    ).fetchone()
    row = Row(0, meta, b"")
    changed = with_fields(row, proof=row.head + os.urandom(size)).meta
    connection.execute("UPDATE events SET meta = ? WHERE position = ?", (changed, position))


def _others(value, column):
    """Return the values to try in place of a value."""
    others = [None, *column]
    if isinstance(value, int):
        others += [value + 1, value - 1, 0, 1, -value, value ^ 4, value ^ 8, 2**31, 2**62]
    elif isinstance(value, bytes):
        others += [b"", value[:-1], value + b"\0", bytes(len(value))]
        others += [
            _flip_bit(value, place) for place in (0, len(value) // 2, len(value) - 1) if value
        ]
    elif isinstance(value, str):
        others += ["", value + "x", value[:-1]]
    else:
        others += [0, 1, b"x" * 16]
    return (other for other in dict.fromkeys(others) if other != value)


def _flip_bit(value, place):
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
