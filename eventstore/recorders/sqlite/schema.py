"""Check that a file is a store, and migrate its schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from hashlib import blake2b
from typing import Any, Final

from eventstore.recorders.errors import DatabaseError
from eventstore.recorders.statements import migrations, newest_schema
from eventstore.recorders.types import new_store_uuid

_APPLICATION_ID: Final = 0x666C6F67  # "flog"
NEWEST: Final = newest_schema("sqlite")
FINGERPRINT: Final = "fea8bb3e330dd2264917133fb50b4993"
"""A fingerprint of the schema that the migrations make. It is compared instead of running them in memory, which takes
longer than opening a View. A test holds it to the migrations.
"""

_CONTENTS: Final = "SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL"


def is_current(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether the file has the newest schema. It may be empty.

    Raises ``DatabaseError`` if the file is not a store of ours, is of a newer schema, or has more in its schema than
    the migrations made.
    """
    # These two may be of two moments: then another process migrates the file, and they are not what is expected.
    if _number(connection) == NEWEST and _is_ours(connection):
        return True
    connection.execute("BEGIN")
    try:
        return checked_number(connection, path) == NEWEST
    finally:
        connection.rollback()


def check_is_store(connection: sqlite3.Connection, path: str) -> None:
    """Raise ``DatabaseError`` if the file is empty, not a store of ours, or of a newer schema."""
    if checked_number(connection, path) == 0:
        raise DatabaseError(f"{path} is an empty file, not a store; choose another file")


def has_our_mark(connection: sqlite3.Connection) -> bool:
    """Return whether the header of a database says that it is a store of ours."""
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID)


def migrate(connection: sqlite3.Connection, path: str, inode: int) -> None:
    """Migrate the schema in one transaction: a kill leaves the older schema complete. A new file records its inode."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        for number in range(checked_number(connection, path) + 1, NEWEST + 1):
            for statement in _split(migrations("sqlite")[number]):
                execute(statement)
            if number == 1:
                execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                execute("INSERT INTO store VALUES ('uuid', ?), ('file', ?)", (new_store_uuid(), str(inode)))
            execute(f"PRAGMA user_version = {number}")
        execute("COMMIT")
    finally:
        connection.rollback()  # where it was not committed


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def checked_number(connection: sqlite3.Connection, path: str) -> int:
    """Return the number of a file's schema, which is 0 for an empty file. Call it within a transaction.

    Raises ``DatabaseError`` if the file is not a store of ours, or of a newer schema, or has more in its schema than
    the migrations made.
    """
    schema, found = _number(connection), connection.execute(_CONTENTS).fetchall()
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == 0 and not found:
        return 0
    if application != _APPLICATION_ID:
        raise DatabaseError(f"{path} is a SQLite database, but not a foldlog store; choose another file")
    if schema > NEWEST:
        raise DatabaseError(
            f"{path} has schema {schema}, this version of foldlog knows schemas up to {NEWEST}; "
            f"upgrade foldlog to open it"
        )
    if schema < 1:
        raise DatabaseError(
            f"the header of {path} says that it has schema {schema}, and there is none below 1: the file is damaged; "
            f"restore a backup, or copy what is sound with 'foldlog salvage'"
        )
    _check_nothing_foreign(path, schema, found)
    return schema


def _check_nothing_foreign(path: str, schema: int, found: Sequence[tuple[Any, ...]]) -> None:
    """Raise ``DatabaseError`` for a trigger or a view that the migrations did not make, and for a table of theirs that
    is of another kind. A trigger, or a table that resolves conflicts, can accept an event and store nothing.
    """
    ours = _made_by_migrations(schema)
    for kind, name, statement in found:
        kind, name = _text(kind), _text(name)
        expected = ours.get((kind, name))
        is_one_of_ours = any(name == other for _, other in ours)
        if expected == _words(statement):
            continue
        if kind in ("table", "index") and not is_one_of_ours:
            continue
        raise DatabaseError(
            f"{path} has a {kind} {name!r} that foldlog did not make, so nothing was read or written: it could hide "
            f"events, or take them in and store nothing. Remove it with sqlite3, or copy the events with "
            f"'foldlog salvage'"
        )


def _is_ours(connection: sqlite3.Connection) -> bool:
    return fingerprint(connection.execute(_CONTENTS).fetchall()) == FINGERPRINT


def fingerprint(found: Sequence[tuple[bytes, ...]]) -> str:
    """Return a hash of the schema; an empty text where it cannot be one of ours."""
    try:
        return blake2b(b"\1".join(map(b"\0".join, found)), digest_size=16).hexdigest()
    except TypeError:  # a column of another type
        return ""


@cache
def _made_by_migrations(schema: int) -> dict[tuple[str, str], str]:
    """Return what the migrations up to this one make, by kind and name."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for number in range(1, schema + 1):
            connection.executescript(migrations("sqlite")[number])
        made = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL").fetchall()
    return {(kind, name): _words(statement) for kind, name, statement in made}


def _words(statement: str | bytes) -> str:
    return " ".join(_text(statement).split())


def _text(stored: str | bytes) -> str:
    return stored.decode(errors="replace") if isinstance(stored, bytes) else str(stored)


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a migration, to run in the caller's transaction: ``executescript`` would commit it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
