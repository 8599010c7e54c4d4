"""What somebody can do to an encrypted store who can write its file and has no key. Each attack has
a name.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.recorders.types import Row
from foldlog.projections.stored.revision_codec import CODE
from tests.stored_rows import FIELDS, meta_field, meta_with, with_fields

__all__ = ["Attack", "make_checksums_right", "of_columns", "of_forgery", "of_rows"]

Attack = Callable[[sqlite3.Connection], object]

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
_CONTENT = "kind, shown, structural, meta, body"
_EVENT = f"id, {_CONTENT}"


def of_columns(connection: sqlite3.Connection) -> Iterator[tuple[str, Attack]]:
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


def of_rows(connection: sqlite3.Connection, length: int) -> Iterator[tuple[str, Attack]]:
    """Rows of conversations of ``length`` events that are deleted, duplicated, swapped, moved, and
    cut off.
    """
    for table, keys in _KEYS.items():
        for place in connection.execute(
            f"SELECT {', '.join(keys)} FROM {table} ORDER BY {', '.join(keys)}"
        ).fetchall():
            yield (
                f"delete {table} {place}",
                _run(f"DELETE FROM {table} WHERE {_where(table)}", *place),
            )
    events = connection.execute(
        "SELECT position, conversation, id FROM events ORDER BY position"
    ).fetchall()
    positions = [position for position, _, _ in events]
    some = [*pairwise(positions), *zip(positions, positions[length:], strict=False)]
    for pair in [
        *some,
        *((position, positions[length - 1]) for position in positions[: length - 1]),
    ]:
        for what in ("body", "meta", "id", _CONTENT):
            yield f"swap {what} of events {pair}", lambda c, w=what, p=pair: _swap(c, w, p)
        content = f"SELECT {_CONTENT} FROM events WHERE position = ?"
        statement = f"UPDATE events SET ({_CONTENT}) = ({content}) WHERE position = ?"
        yield f"put event {pair[0]} in the place of {pair[1]}", _run(statement, *pair)
    for position, key, event_id in events:
        for changes in (
            {},
            {"shown": 0},
            {"shown": 1},
            {"id": event_id + 100},
            {"id": length},
            {"conversation": 3 - key},
            {"conversation": 3 - key, "id": length},
        ):
            yield (
                f"a second event {position}, with {changes}",
                lambda c, p=position, s=changes: _duplicate(c, p, s),
            )
        yield (
            f"move event {position} to the other",
            lambda c, p=position, k=3 - key, i=event_id: _move(c, p, k, i),
        )
    for key in (1, 2):
        for left in range(length):
            yield f"cut conversation {key} off at {left}", lambda c, k=key, n=left: _cut(c, k, n)
            yield (
                f"cut all of {key} off at {left}",
                lambda c, k=key, n=left, of=length: _cut_all(c, k, n, of),
            )
        for table in ("records", "idempotency_keys"):
            yield (
                f"delete all {table} of {key}",
                _run(f"DELETE FROM {table} WHERE conversation = ?", key),
            )
            yield f"move all {table} of {key}", lambda c, t=table, k=key: _move_all(c, t, k)


def of_forgery(
    connection: sqlite3.Connection, own: Path, length: int
) -> Iterator[tuple[str, Attack]]:
    """Rows, revisions, idempotency keys and marks that the attacker makes up. ``own`` is a store of
    his, plain, with the same conversations and other texts; it is attached under that name when an
    attack is run.
    """
    connection.execute("ATTACH ? AS own", (str(own),))
    forged = "(SELECT {0} FROM own.events o WHERE o.position = events.position)"
    for (position,) in connection.execute("SELECT position FROM events").fetchall():
        yield f"make event {position} look redacted", lambda c, p=position: _give_proof(c, p, 32)
        yield f"give event {position} another salt", lambda c, p=position: _give_proof(c, p, 16)
        for what in ("body", "meta", _EVENT, "body, kind, shown, structural"):
            statement = f"UPDATE events SET ({what}) = {forged.format(what)} WHERE position = ?"
            yield f"forge {what} of event {position}", _run(statement, position)
    for key in (1, 2):
        all_of_them = (
            f"UPDATE events SET ({_EVENT}) = {forged.format(_EVENT)} WHERE conversation = ?"
        )
        yield f"forge all events of {key}", _run(all_of_them, key)
        yield (
            f"forge all revisions of {key}",
            _run(
                "INSERT OR REPLACE INTO records SELECT * FROM own.records WHERE conversation = ?",
                key,
            ),
        )
        for body in (
            b'{"kept":[0]}',
            b'{"kept":[0,2,12]}',
            b'{"kept":[0],"requested":true}',
            b"{}",
        ):
            for version in (5, 9, length - 1, length):
                statement = (
                    f"INSERT OR REPLACE INTO records VALUES (?, 'views', ?, {CODE}, 0, 0, ?)"
                )
                yield (
                    f"forge the revision {body!r} of version {version} of {key}",
                    _run(statement, key, version, body),
                )
        keys = connection.execute(
            "SELECT key FROM idempotency_keys WHERE conversation = ?", (key,)
        ).fetchall()
        for (name,), first in product(keys, (0, 5, 7, length - 1)):
            for proof in ("NULL", "(SELECT proof FROM idempotency_keys LIMIT 1)"):
                statement = f"INSERT OR REPLACE INTO idempotency_keys VALUES (?, ?, ?, 1, {proof})"
                yield (
                    f"forge idempotency key {name} of {key} at {first}, {proof}",
                    _run(statement, key, name, first),
                )
        salt = "salt = (SELECT salt FROM own.conversations o WHERE o.key = conversations.key)"
        statement = (
            f"UPDATE conversations SET key_id = NULL, sealed_key = NULL, mark = NULL, {salt} WHERE"
            " key = ?"
        )
        yield f"take the key of {key} away", _run(statement, key)
        for mark in _marks(connection, key, length):
            changed = _run("UPDATE conversations SET mark = ? WHERE key = ?", mark, key)
            yield f"another mark of {key}: {mark[:25].hex()}", changed
            first_event = _run(f"{all_of_them} AND id = 0", key)
            yield (
                f"another mark of {key}, and a plain event: {mark[:25].hex()}",
                _both(changed, first_event),
            )
    for index in ("events_by_id", "events_of_views", "events_structural", "conversations_by_id"):
        yield f"drop index {index}", _run(f"DROP INDEX {index}")


def make_checksums_right(connection: sqlite3.Connection) -> None:
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


def _where(table: str) -> str:
    return " AND ".join(f"{key} IS ?" for key in _KEYS[table])


def _run(statement: str, *parameters: Any) -> Attack:
    return lambda connection: connection.execute(statement, parameters)


def _give_proof(connection: sqlite3.Connection, position: int, size: int) -> None:
    """Put ``size`` random bytes behind the head of an event."""
    (meta,) = connection.execute(
        "SELECT meta FROM events WHERE position = ?", (position,)
    ).fetchone()
    row = Row(0, meta, b"")
    changed = with_fields(row, proof=row.head + os.urandom(size)).meta
    connection.execute("UPDATE events SET meta = ? WHERE position = ?", (changed, position))


def _both(one: Attack, other: Attack) -> Attack:
    return lambda connection: (one(connection), other(connection))


def _others(value: Any, column: list[Any]) -> Iterator[Any]:
    """What may stand in the place of a value."""
    others: list[Any] = [None, *column]
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


def _flipped(value: bytes, place: int) -> bytes:
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]


def _without_uniqueness(connection: sqlite3.Connection) -> None:
    """The index that readers use, and that lets an id be there twice."""
    connection.execute("DROP INDEX events_by_id")
    connection.execute("CREATE INDEX events_by_id ON events (conversation, id)")


def _swap(connection: sqlite3.Connection, what: str, pair: tuple[int, int]) -> None:
    one, other = (
        connection.execute(f"SELECT {what} FROM events WHERE position = ?", (position,)).fetchone()
        for position in pair
    )
    _without_uniqueness(connection)
    statement = f"UPDATE events SET ({what}) = ({', '.join('?' * len(one))}) WHERE position = ?"
    connection.executemany(statement, [(*other, pair[0]), (*one, pair[1])])


def _duplicate(connection: sqlite3.Connection, position: int, changes: dict[str, int]) -> None:
    _without_uniqueness(connection)
    names = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
    row = dict(
        zip(
            names,
            connection.execute("SELECT * FROM events WHERE position = ?", (position,)).fetchone(),
            strict=True,
        )
    )
    row |= changes
    row["position"] = connection.execute("SELECT max(position) + 1 FROM events").fetchone()[0]
    connection.execute(
        f"INSERT INTO events VALUES ({', '.join('?' * len(row))})", list(row.values())
    )


def _move(connection: sqlite3.Connection, position: int, key: int, event_id: int) -> None:
    connection.execute("DELETE FROM events WHERE conversation = ? AND id = ?", (key, event_id))
    connection.execute("UPDATE events SET conversation = ? WHERE position = ?", (key, position))


def _cut(connection: sqlite3.Connection, key: int, left: int) -> None:
    connection.execute("DELETE FROM events WHERE conversation = ? AND id >= ?", (key, left))


def _cut_all(connection: sqlite3.Connection, key: int, left: int, length: int) -> None:
    """An end, with everything that knows of it."""
    _cut(connection, key, left)
    connection.execute("DELETE FROM records WHERE conversation = ? AND version > ?", (key, left))
    connection.execute(
        "DELETE FROM idempotency_keys WHERE conversation = ? AND first_id >= ?", (key, left)
    )
    connection.execute(
        "UPDATE store SET value = value - ? WHERE name = 'positions_given'", (length - left,)
    )
    (mark,) = connection.execute("SELECT mark FROM conversations WHERE key = ?", (key,)).fetchone()
    mark = mark[:1] + left.to_bytes(8, "big") + mark[9:]
    connection.execute("UPDATE conversations SET mark = ? WHERE key = ?", (mark, key))


def _move_all(connection: sqlite3.Connection, table: str, key: int) -> None:
    connection.execute(f"DELETE FROM {table} WHERE conversation = ?", (3 - key,))
    connection.execute(
        f"UPDATE {table} SET conversation = ? WHERE conversation = ?", (3 - key, key)
    )


def _marks(connection: sqlite3.Connection, key: int, length: int) -> Iterator[bytes]:
    """Marks that say something else, with the tag that is there."""
    (mark,) = connection.execute("SELECT mark FROM conversations WHERE key = ?", (key,)).fetchone()
    for says in (
        (0, 0, length),
        (length, 0, length),
        (length, 0, 1),
        (0, 0, 0),
        (length + 1, 0, 0),
    ):
        yield mark[:1] + b"".join(number.to_bytes(8, "big") for number in says) + mark[25:]
    yield b"\0" + mark[1:]
