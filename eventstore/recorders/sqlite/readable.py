"""Copy the rows that SQLite can read from a damaged file to a new file, for ``foldlog salvage``.

A table is read in the order of its keys, without its indexes. Where a read fails, the copy goes on at the next key from
which SQLite can read. So a damaged page costs the rows on that page, and a damaged index costs nothing. The copy has
whole indexes; a row in it may still be damaged, and its checksum says so.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

from foldlog.eventstore.errors import StoreUnusable
from foldlog.eventstore.recorders.sqlite.errors import translated
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.sqlite.recorder import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.store_file import file_uri

_TABLES: Final = {
    "conversations": "key",
    "events": "position",
    "idempotency_keys": "conversation",
    "attachments": "rowid",
    "attached": "conversation",
}
"""The tables that a copy needs, each with the number that orders its rows. Projections make their records again."""
_READ_AROUND: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_IOERR)
_ONE_BY_ONE: Final = 256
"""This many keys are tried one by one behind a key that cannot be read; then the steps become longer."""
_KEY_MAX: Final = 2**62


class Readable(NamedTuple):
    """What was copied: the number of conversations, and the number of those of which only events were found, without
    their ids. What was not: the tables that can be read only in part; and by key the last event that the index names of
    a conversation whose last events were not found, or None where the index cannot be read.
    """

    conversations: int
    nameless: int
    tables: Sequence[str]
    ends: Mapping[int, int | None]


def copy_readable(path: str, into: str) -> Readable:
    """Copy every row that SQLite can read of the file at ``path``, and of its log, to a new store at ``into``.

    Raises ``StoreUnavailable`` or ``StoreUnusable`` where SQLite cannot open the file, where its tables have other
    columns, and where the new file cannot be written. Cost: one reading of the file, and some hundred queries for each
    place that cannot be read.
    """
    SQLiteRecorder(into).close()
    with (
        translated(f"salvage {path} into {into}"),
        closing(_opened(path)) as source,
        closing(sqlite3.connect(into, isolation_level=None)) as target,
    ):
        target.execute("PRAGMA synchronous = OFF")
        target.execute("BEGIN")
        tables = [table for table in _TABLES if not _copied(source, target, table)]
        if "conversations" in tables:
            with suppress(sqlite3.DatabaseError):
                target.executemany(SQL["salvage_name"], source.execute(SQL["names_in_index"]))
        conversations, nameless = target.execute(SQL["salvaged_conversations"]).fetchone()
        ends = dict(_lost_ends(source, target)) if "events" in tables else {}
        target.execute("COMMIT")
    return Readable(conversations, nameless, tables, ends)


def _opened(path: str) -> sqlite3.Connection:
    """Open the file to read only; a file without a log so that SQLite makes no file beside it."""
    log = f"{path}-wal"
    has_log = os.path.exists(log) and os.path.getsize(log) > 0
    connection = sqlite3.connect(f"{file_uri(path)}?{'mode=ro' if has_log else 'immutable=1'}", uri=True)
    connection.text_factory = bytes
    connection.execute("PRAGMA writable_schema = ON")  # else SQLite reads nothing of a file that lost its last pages
    return connection


def _copied(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> bool:
    """Copy the rows of a table. Return whether all of it can be read."""
    columns = {name: kind for _, name, kind, *_ in target.execute(f"PRAGMA table_info({table})")}
    _check_columns(source, table, columns)
    names, key = ", ".join(columns), _TABLES[table]
    values = ", ".join("CAST(? AS TEXT)" if kind == "TEXT" else "?" for kind in columns.values())
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({values})"
    rows = _Rows(source, f"SELECT {key}, {names} FROM {table} NOT INDEXED WHERE {key}", key)

    def copy(start: int, step: int) -> None:
        for _, *row in rows.read(start, step):
            with suppress(sqlite3.IntegrityError):  # a column of another type: such a row was not written
                target.execute(insert, row)

    copy(0, -1)  # imported events have negative positions
    copy(1, 1)
    if not rows.are_all:  # the rest of a conversation of which a page cannot be read
        copy(target.execute(f"SELECT coalesce(max({key}), 0) FROM {table}").fetchone()[0], -1)
    return rows.are_all


def _check_columns(source: sqlite3.Connection, table: str, columns: Iterable[str]) -> None:
    """Raise ``StoreUnusable`` for a table of another schema. Its number is in the header, which may be damaged."""
    try:
        found = [str(name, "utf-8", "replace") for _, name, *_ in source.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError as error:
        _raise_unless_read_around(error)
        return
    if found and found != list(columns):
        raise StoreUnusable(
            f"its table {table!r} has the columns {', '.join(found)}, not those of this version of foldlog; salvage it "
            f"with the version that made it",
            kind="schema",
        )


class _Rows:
    """The rows of a table in the order of a number, as far as SQLite can read them."""

    def __init__(self, source: sqlite3.Connection, select: str, key: str) -> None:
        self._execute = source.execute
        self._select = {1: f"{select} >= ? ORDER BY {key}", -1: f"{select} <= ? ORDER BY {key} DESC"}
        self.are_all = True
        """Whether no read has failed."""

    def read(self, start: int, step: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows from a number on, up (``step`` 1) or down (-1)."""
        at: int | None = start
        while at is not None:
            try:
                for row in self._execute(self._select[step], (at,)):
                    if (row[0] - at) * step < -1:  # a damaged tree leads back; rows may share a number
                        break
                    yield row
                    at = row[0] + step
                else:
                    return
            except sqlite3.DatabaseError as error:
                _raise_unless_read_around(error)
            self.are_all = False
            at = self._next(at, step)

    def _next(self, at: int, step: int) -> int | None:
        """Return the next number from which SQLite can read; None if there is none."""
        for ahead in range(1, _ONE_BY_ONE):
            if self._can_read(at + ahead * step, step):
                return at + ahead * step
        bad, good = _ONE_BY_ONE - 1, _ONE_BY_ONE
        while not self._can_read(at + good * step, step):
            bad, good = good, 2 * good
            if good > _KEY_MAX:
                return None
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (bad, middle) if self._can_read(at + middle * step, step) else (middle, good)
        return at + good * step

    def _can_read(self, start: int, step: int) -> bool:
        try:
            row = self._execute(self._select[step], (start,)).fetchone()
        except sqlite3.DatabaseError as error:
            _raise_unless_read_around(error)
            return False
        return row is None or (row[0] - start) * step >= 0


def _raise_unless_read_around(error: sqlite3.DatabaseError) -> None:
    if error.sqlite_errorcode & 0xFF not in _READ_AROUND:
        raise error


def _lost_ends(source: sqlite3.Connection, target: sqlite3.Connection) -> Iterator[tuple[int, int | None]]:
    """Yield the conversations whose last events were not found, or may not have been."""
    for key, last in target.execute(SQL["salvaged_ends"]).fetchall():
        try:
            (named,) = source.execute(SQL["last_in_index"], (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            _raise_unless_read_around(error)
            yield key, None
        else:
            if named is not None and (last is None or named > last):
                yield key, named
