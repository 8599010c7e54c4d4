"""What somebody can do to an encrypted store who can write its file and has no key. Each attack has
a name.
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

__all__ = [
    "make_checksums_right",
    "of_columns",
    "of_proofs",
    "of_rows",
    "of_statements",
]


_KEYS = {
    "conversations": ("key",),
    "events": ("position",),
    "records": ("conversation", "projection", "version"),
    "idempotency_keys": ("conversation", "key"),
    "attachments": ("conversation", "name", "encoding"),
    "attached": ("conversation", "event", "name", "encoding"),
    "store": ("name",),
}
"""The tables, and what names a row of each."""
_TEXT = Path(__file__).with_suffix(".txt").read_text()
_CHOICES = re.findall(r"^{(\w+)}: (.+)$", _TEXT, re.MULTILINE)
"""What may stand in braces, where it is the same for each store."""
_SCRIPTS = re.findall(r"^-- (.+)\n((?:.+\n)+)", _TEXT, re.MULTILINE)
"""The attacks by their names, and what they do."""


def of_columns(connection):
    """Each column of each row, changed to its neighbours, to extremes, and to what other rows have
    there.
    """
    for table, keys in _KEYS.items():
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(
            f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(keys)}"
        ).fetchall()
        for row in rows:
            place = [row[names.index(key)] for key in keys]
            for n, name in enumerate(names):
                for other in (
                    [] if name == "checksum" else _others(row[n], [each[n] for each in rows])
                ):
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
            for other in [each for each in _others(value, []) if each is not None]:
                with suppress(struct.error):  # no such number fits in
                    changed = meta_with(meta, field, other)
                    yield (
                        f"the {field} in the meta of event {position} -> {other!r}",
                        _run("UPDATE events SET meta = ? WHERE position = ?", changed, position),
                    )


def of_rows(connection):
    """Each row, deleted."""
    for table, keys in _KEYS.items():
        for place in connection.execute(
            f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)}"
        ).fetchall():
            yield (
                f"delete {table} {place}",
                _run(f"DELETE FROM {table} WHERE {_where(table)}", *place),
            )


def of_statements(connection, length):
    """The attacks of ``attacks.txt`` on conversations of ``length`` events: rows that are deleted,
    doubled, swapped, moved and cut off, and what the attacker makes up. ``own`` is a store of his,
    plain, with the same conversations and other texts.
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
        named = list(dict.fromkeys(re.findall(r"{(\w+)", name)))
        for values in product(*(choices[each] for each in named)):
            chosen = dict(zip(named, values, strict=True))
            yield name.format(**chosen), _run_all(script.format(**chosen, code=CODE, length=length))


def of_proofs(connection):
    """Redactions and salts that the attacker makes up."""
    for (position,) in connection.execute("SELECT position FROM events").fetchall():
        yield f"make event {position} look redacted", lambda c, p=position: _give_proof(c, p, 32)
        yield f"give event {position} another salt", lambda c, p=position: _give_proof(c, p, 16)


def make_checksums_right(connection):
    """As anybody can. A row that cannot have a checksum, because a column is of another type, keeps
    the one it has.
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


# -- steps
# --------------------------------------------------------------------------------------------------


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
    """What may stand in the place of a value."""
    others = [None, *column]
    if isinstance(value, int):
        others += [value + 1, value - 1, 0, 1, -value, value ^ 4, value ^ 8, 2**31, 2**62]
    elif isinstance(value, bytes):
        others += [b"", value[:-1], value + b"\0", bytes(len(value))]
        others += [
            _flipped(value, place) for place in (0, len(value) // 2, len(value) - 1) if value
        ]
    elif isinstance(value, str):
        others += ["", value + "x", value[:-1]]
    else:
        others += [0, 1, b"x" * 16]
    return (other for other in dict.fromkeys(others) if other != value)


def _flipped(value, place):
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]
