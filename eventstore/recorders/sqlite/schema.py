"""Whose file it is, and bringing it up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from eventstore.recorders.errors import DatabaseError
from eventstore.recorders.identity import new_store_uuid
from eventstore.recorders.statements import migrations

__all__ = ["check_is_store", "check_unchanged", "is_current", "migrate"]

_APPLICATION_ID: Final = 0x666C6F67  # "flog"
_MIGRATIONS: Final = migrations("sqlite")
_NEWEST: Final = max(_MIGRATIONS)


def is_current(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the newest schema; False for an older one, and for an empty file.

    Raises ``DatabaseError`` where the file is no store of ours, or of a newer schema.
    """
    return _schema(connection, path) == _NEWEST


def check_is_store(connection: sqlite3.Connection, path: str) -> None:
    """Raises ``DatabaseError`` where the file is empty, no store of ours, or of a newer schema."""
    if _schema(connection, path) == 0:
        raise DatabaseError(f"{path} is empty, which no store is; choose another file")


def check_unchanged(connection: sqlite3.Connection, path: str) -> None:
    """Within a transaction, that no newer version has migrated the file since it was opened. Takes under 1 µs."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != _NEWEST:
        _schema(connection, path)


def migrate(connection: sqlite3.Connection, path: str, inode: int) -> None:
    """Bring the schema up to date, in one transaction: who is killed meanwhile leaves the older one whole. A new file
    gets to know its inode.
    """
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        for number in range(_schema(connection, path) + 1, _NEWEST + 1):
            for statement in _split(_MIGRATIONS[number]):
                execute(statement)
            if number == 1:
                execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                execute("INSERT INTO store VALUES ('uuid', ?), ('file', ?)", (new_store_uuid(), str(inode)))
            execute(f"PRAGMA user_version = {number}")
        execute("COMMIT")
    finally:
        connection.rollback()  # where it was not committed


def _schema(connection: sqlite3.Connection, path: str) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        return 0
    if application != _APPLICATION_ID:
        raise DatabaseError(f"{path} is a SQLite database, but not a foldlog store; choose another file")
    if schema > _NEWEST:
        raise DatabaseError(
            f"{path} has schema {schema}, this version of foldlog knows schemas up to {_NEWEST}; "
            f"upgrade foldlog to open it"
        )
    return schema


def _split(script: str) -> Iterator[str]:
    """The statements of a migration, so that each runs within our transaction (``executescript`` would commit it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
