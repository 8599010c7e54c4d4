"""What is done to the file as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from eventsourcing.persistence import OperationalError

from eventstore.recorders.sqlite.reader import SQL

__all__ = ["empty_wal", "findings"]

_PURGE_TIMEOUT_MS: Final = 20


def empty_wal(writer: sqlite3.Connection) -> None:
    """Write the WAL back and truncate it. The content of deleted cells was overwritten with zeros when they were
    deleted; with the WAL its last copy goes.

    Raises ``OperationalError`` while a reader needs the WAL.
    """
    # It waits for readers, and while it waits nobody can write: so it hardly waits, and is tried again.
    usual = writer.execute("PRAGMA busy_timeout").fetchone()[0]
    writer.execute(f"PRAGMA busy_timeout = {_PURGE_TIMEOUT_MS}")
    try:
        busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        writer.execute(f"PRAGMA busy_timeout = {usual}")
    if busy:
        raise OperationalError("the store is being read, so its WAL cannot be emptied now; try again")


def findings(reader: sqlite3.Connection) -> Iterator[str]:
    """What SQLite finds wrong with the file, and rows that belong to nobody. Cost: all of it."""
    for (finding,) in reader.execute("PRAGMA integrity_check"):
        if finding != b"ok":
            yield str(finding, "utf-8", "replace")
    for key, count in reader.execute(SQL["rows_of_nobody"]):
        yield f"{count} events are of conversation number {key}, which is not there"
    given, found = reader.execute(SQL["positions_given_and_found"]).fetchone()
    if found < given:
        yield f"{given - found} of the {given} events that were recorded are neither there nor in a receipt of erasure"
