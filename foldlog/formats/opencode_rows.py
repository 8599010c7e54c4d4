"""Recognize that the older rows of a session in OpenCode's database have not changed.

OpenCode may change any row: it clears old results, and it adds a summary to a user's message after
the turn. So an import hashes the texts of the older rows, which SQLite joins. This is faster than
to read, convert and compare each row. A *mark* is this hash, with the row ids up to which it goes.
It leaves out the newest messages, which each import reads again.

If an older row was changed, added or deleted, the mark does not hold. The import then compares all
records, and the first record that differs begins a fork.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from foldlog.formats.json_text import bytes_of

_NEWEST: Final = 32
"""The number of messages that a new mark leaves out."""
NEWEST_OF_MARK: Final = 48
"""After so many messages behind a mark, an import makes another mark."""
NEWEST_MAX: Final = 1_000
"""An import that finds so many records behind a mark reads all records, so that it need not hold
the new records in memory.
"""
_ROWS: Final = 8_192
"""The number of row ids in one query, so that not all texts are in memory at once."""
_ROW_ID_MAX: Final = 2**24
_COLUMNS: Final = {
    "message": ("id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}
"""All columns on which the records and their order depend."""
_FOREIGN_PART: Final = """SELECT 1 FROM message JOIN part ON part.message_id = message.id
WHERE message.session_id = ? AND part.session_id IS NOT message.session_id LIMIT 1"""
_LATE_PART: Final = """SELECT 1 FROM part JOIN message ON message.id = part.message_id
WHERE part.rowid > ? AND message.session_id = ? AND message.rowid <= ? LIMIT 1"""
_LATE_MESSAGE: Final = """SELECT 1 FROM message AS older
WHERE session_id = ?1 AND rowid <= ?2 AND (time_created, id) >= (
    SELECT ifnull(time_created, -9e999), ifnull(id, '') FROM message
    WHERE session_id = ?1 AND rowid > ?2 ORDER BY time_created, id LIMIT 1
) LIMIT 1"""
_LAST_PART: Final = """SELECT min(part.rowid) - 1 FROM message
JOIN part ON part.message_id = message.id WHERE message.session_id = ? AND message.rowid > ?"""


class Mark(NamedTuple):
    """The hash of the older rows of a session: the messages and parts up to these row ids. They are
    the first ``records`` records of the session.
    """

    message: int
    part: int
    records: int
    digest: bytes

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


class SessionRows:
    """The rows of a session in one transaction. ``about`` is the record of the session itself."""

    def __init__(self, database: sqlite3.Connection, session: str, about: Any) -> None:
        self._database = database
        self._session = session
        self._about = bytes_of(about)

    def new_mark(self) -> Mark | None:
        """Return the mark of the present rows, or None if these rows cannot have a mark."""
        with suppress(sqlite3.Error):
            ids = [row_id for (row_id,) in self._messages()]
            if self._is_newer() or self._asks(_FOREIGN_PART, self._session):
                return None
            newest = ids[-_NEWEST:]
            message = min(newest, default=1) - 1
            if sum(row_id > message for row_id in ids) != len(newest):
                return None
            (part,) = self._database.execute(_LAST_PART, (self._session, message)).fetchone()
            if part is None:
                (part,) = self._database.execute(
                    "SELECT ifnull(max(rowid), 0) FROM part"
                ).fetchone()
            digest = self._digest(message, part)
            if digest is not None and not self._is_late(message, part):
                return Mark(message, part, 1 + len(ids) - len(newest), digest)
        return None

    def holds(self, mark: Mark) -> bool:
        """Return whether the older rows have not changed, and all other rows come after them."""
        with suppress(sqlite3.Error):
            return (
                not self._is_newer()
                and self._digest(mark.message, mark.part) == mark.digest
                and not self._is_late(mark.message, mark.part)
            )
        return False

    def _messages(self) -> sqlite3.Cursor:
        return self._database.execute(
            "SELECT rowid FROM message WHERE session_id = ? ORDER BY time_created, id",
            (self._session,),
        )

    def _is_newer(self) -> bool:
        # Version 2 of OpenCode writes other tables.
        table = "SELECT 1 FROM sqlite_schema WHERE name = 'session_message'"
        return self._asks(table) and self._asks(
            "SELECT 1 FROM session_message WHERE session_id = ? LIMIT 1", self._session
        )

    def _is_late(self, message: int, part: int) -> bool:
        """Return whether a row after a mark belongs to the records before it, or between them."""
        return self._asks(_LATE_PART, part, self._session, message) or self._asks(
            _LATE_MESSAGE, self._session, message
        )

    def _digest(self, message: int, part: int) -> bytes | None:
        """Return the hash of the older rows, or None if a value is missing in one of them."""
        if max(message, part) > _ROW_ID_MAX:
            return None
        hashed = sha256(self._about)
        for table, last in (("message", message), ("part", part)):
            columns = _COLUMNS[table]
            joined = "||x'1f'||".join(columns)
            counts = ", ".join(f"count({column})" for column in columns)
            query = (
                f"SELECT CAST(group_concat({joined}, x'1e') AS BLOB), count(*), {counts}"
                f" FROM {table} WHERE session_id = ? AND rowid > ? AND rowid <= ?"
            )
            for first in range(0, last, _ROWS):
                stop = min(first + _ROWS, last)
                text, rows, *complete = self._database.execute(
                    query, (self._session, first, stop)
                ).fetchone()
                if {*complete} != {rows}:
                    return None
                hashed.update(b"%d\x1e%b" % (rows, text or b""))
            hashed.update(b"\0")
        return hashed.digest()

    def _asks(self, query: str, *arguments: int | str) -> bool:
        return self._database.execute(query, arguments).fetchone() is not None
