"""Check that a file is a store, and migrate its schema."""

from __future__ import annotations

import sqlite3
from typing import Final

from foldlog.eventstore.errors import StoreDamaged, StoreRefused
from foldlog.eventstore.recorders.statements import migrations
from foldlog.eventstore.recorders.types import new_store_uuid
from foldlog.eventstore.recorders.versions import (
    MADE_BY,
    THIS_VERSION,
    development_store,
    newer_store,
)

_APPLICATION_ID: Final = 0x666C6F67  # the letters "flog"
FIRST: Final = min(migrations("sqlite"))
NEWEST: Final = max(migrations("sqlite"))


def check_unchanged(connection: sqlite3.Connection, path: str) -> None:
    """Check within a transaction that no newer version of foldlog has migrated the open file.
    Checking the number of the schema takes less than 1 µs.
    """
    if connection.execute("PRAGMA user_version").fetchone()[0] != NEWEST:
        checked_number(connection, path)


def has_our_mark(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID)


def has_our_mark_in_header(path: str) -> bool:
    """Return whether the beginning of a file that SQLite cannot read has our mark."""
    with open(path, "rb") as file:
        file.seek(68)
        return file.read(4) == _APPLICATION_ID.to_bytes(4, "big")


def migrate(connection: sqlite3.Connection, path: str, inode: int) -> None:
    """Migrate the schema in one transaction, so that a killed process leaves the older schema
    complete.
    """
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    try:
        present = checked_number(connection, path)
        for number, script in migrations("sqlite").items():
            if number <= present:
                continue
            # A script would commit the transaction.
            for statement in script.split(";\n"):
                execute(statement)
            if number == FIRST:
                execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                execute(
                    "INSERT INTO store VALUES ('uuid', ?), ('file', ?), (?, ?)",
                    (new_store_uuid(), str(inode), MADE_BY, THIS_VERSION),
                )
            execute(f"PRAGMA user_version = {number}")
        execute("COMMIT")
    finally:
        connection.rollback()  # does nothing after a commit


def checked_number(connection: sqlite3.Connection, path: str) -> int:
    """Return the number of a file's schema. An empty file has the number 0. Call ``checked_number``
    within a transaction.

    Raises ``StoreRefused`` if the file is not a foldlog store, or if it has a newer schema or a
    schema of a development version.
    """
    schema, application = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("user_version", "application_id")
    )
    if application == 0 and connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is None:
        return 0
    if application != _APPLICATION_ID:
        raise StoreRefused(
            f"{path} is a SQLite database, but not a foldlog store; choose another file",
            kind="foreign",
        )
    facts = "SELECT 1 FROM store WHERE name = ?"
    if connection.execute(facts, (MADE_BY,)).fetchone() is None:
        raise development_store(path, schema)
    if schema > NEWEST:
        raise newer_store(path, schema, NEWEST)
    if schema < FIRST:
        raise StoreDamaged(
            f"the header of {path} names schema {schema}, but schemas begin at {FIRST}: the file is"
            " damaged; restore a backup, or recover it with SQLite (docs/how-to/damaged.md)"
        )
    return int(schema)
