"""Recognize that the older rows of a session in OpenCode's database have not changed.

OpenCode may change any row: it clears old results, and it adds a summary to a user's message after
the turn. The times of the rows are no proof, because other programs change rows too. So an import
hashes the texts of the rows that were imported before, which SQLite joins. This is faster than to
read, convert and compare each row.

A *point* is such a hash, with the row ids up to which it goes. A *mark* has two points: one before
the newest messages, and one after them. If the second point holds, an import reads only what is
new. OpenCode often changes its newest messages, and then only the first point holds, so that an
import compares these messages again. If an older row was changed, added or deleted, no point holds.
The import then compares all records, and the first record that differs begins a fork.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from foldlog.formats.json_text import bytes_of

if TYPE_CHECKING:
    from hashlib import _Hash

_NEWEST: Final = 32
"""The number of messages between the points of a new mark."""
_NEWEST_MAX: Final = 48
"""If more messages come after its first point, an import makes another mark."""
NEWEST_MAX: Final = 1_000
"""An import that finds so many records behind a point reads all records, so that it need not hold
the new records in memory.
"""
_ROWS: Final = 8_192
"""The number of row ids in one query, so that not all texts are in memory at once."""
_ROW_ID_MAX: Final = 2**24
"""Rows with higher ids have no mark: the queries for all row ids before them would take too
long.
"""
_COLUMNS: Final = {
    "message": ("id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}
"""All columns on which the records and their order depend."""
_FOREIGN_PART: Final = """SELECT 1 FROM message JOIN part ON part.message_id = message.id
WHERE message.session_id = ? AND message.rowid > ?
AND part.session_id IS NOT message.session_id LIMIT 1"""
_LATE_PART: Final = """SELECT 1 FROM {} ON message.id = part.message_id
WHERE part.rowid > ? AND message.session_id = ? AND message.rowid <= ? LIMIT 1"""
_LATE_MESSAGE: Final = """SELECT 1 FROM message
WHERE session_id = ? AND rowid > ? AND NOT ifnull(time_created > ?, 0) LIMIT 1"""
_LAST_PART: Final = """SELECT min(part.rowid) - 1 FROM message
JOIN part ON part.message_id = message.id WHERE message.session_id = ? AND message.rowid > ?"""
_LAST_MESSAGES: Final = """SELECT count(*), ifnull(max(rowid), 0), ifnull(max(time_created), 0)
FROM message WHERE session_id = ? AND rowid > ?"""
_LAST_TIME: Final = """SELECT ifnull(max(time_created), 0) FROM message
WHERE session_id = ? AND rowid <= ?"""
_FEW_PARTS: Final = 1_000
"""If at most this number of parts comes after a point, a query looks at the parts first."""


class Point(NamedTuple):
    """The hash of the messages and parts of a session up to these row ids. They are the first
    ``records`` records of the session. ``time`` is the latest time of these messages.
    """

    message: int
    part: int
    records: int
    time: int
    digest: bytes


class Mark(NamedTuple):
    """The two points of a mark. ``newest`` is None if the newest rows cannot have a point."""

    older: Point
    newest: Point | None

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


class SessionRows:
    """The rows of a session in one transaction. ``about`` is the record of the session itself."""

    def __init__(self, database: sqlite3.Connection, session: str, about: Any) -> None:
        self._database = database
        self._session = session
        self._about = bytes_of(about)
        self._hash_of_older = sha256()
        """The hash of the record of the session and of the rows up to the first point."""

    def holding(self, mark: Mark) -> Point | None:
        """Return the last point of a mark that holds: no row up to this point has changed, and all
        other rows come after it.
        """
        older, newest = mark
        with suppress(sqlite3.Error):
            if self._is_newer() or self._digest_of_older(older.message, older.part) != older.digest:
                return None
            if newest is not None and self._holds(older, newest):
                return newest
            if not self._is_late(older.message, older.part, older.time):
                return older
        return None

    def new_mark(self, before: Mark | None = None) -> Mark | None:
        """Return the mark of the present rows, or None if these rows cannot have a mark. ``before``
        is a mark of which a point holds.
        """
        with suppress(sqlite3.Error):
            older = None if before is None else before.older
            if older is None or self._messages_after(older)[0] > _NEWEST_MAX:
                older = self._older_point()
            return None if older is None else Mark(older, self._newest_point(older))
        return None

    def _holds(self, older: Point, newest: Point) -> bool:
        """Return whether the second point of a mark holds, if the first does."""
        digest = self._digest_of_newest(older, newest.message, newest.part)
        is_late = self._is_late(newest.message, newest.part, newest.time)
        return digest == newest.digest and not is_late

    def _older_point(self) -> Point | None:
        """Return a point before the newest messages, or None if there can be none."""
        ids = [row_id for (row_id,) in self._messages()]
        if self._is_newer() or self._asks(_FOREIGN_PART, self._session, 0):
            return None
        newest = ids[-_NEWEST:]
        message = min(newest, default=1) - 1
        if sum(row_id > message for row_id in ids) != len(newest):
            return None
        (part,) = self._ask(_LAST_PART, self._session, message)
        if part is None:
            part = self._last_part()
        (time,) = self._ask(_LAST_TIME, self._session, message)
        digest = self._digest_of_older(message, part)
        if digest is None or type(time) is not int or self._is_late(message, part, time):
            return None
        return Point(message, part, 1 + len(ids) - len(newest), time, digest)

    def _newest_point(self, older: Point) -> Point | None:
        """Return a point after the newest messages, or None if there can be none."""
        count, message, time = self._messages_after(older)
        message = max(message, older.message)
        part = max(self._last_part(), older.part)
        digest = self._digest_of_newest(older, message, part)
        if digest is None or type(time) is not int:
            return None
        if self._asks(_FOREIGN_PART, self._session, older.message):
            return None
        return Point(message, part, older.records + count, max(time, older.time), digest)

    def _messages_after(self, point: Point) -> tuple[int, int, Any]:
        """Return the number of messages after a point, their last row id and their latest time."""
        count, message, time = self._ask(_LAST_MESSAGES, self._session, point.message)
        return count, message, time

    def _last_part(self) -> int:
        """Return the last row id of the parts of all sessions."""
        (part,) = self._ask("SELECT ifnull(max(rowid), 0) FROM part")
        return int(part)

    def _messages(self) -> sqlite3.Cursor:
        """Return the row ids of the messages, in the order of their records."""
        return self._database.execute(
            "SELECT rowid FROM message WHERE session_id = ? ORDER BY time_created, id",
            (self._session,),
        )

    def _is_newer(self) -> bool:
        """Return whether version 2 of OpenCode, which writes other tables, has the session."""
        table = "SELECT 1 FROM sqlite_schema WHERE name = 'session_message'"
        return self._asks(table) and self._asks(
            "SELECT 1 FROM session_message WHERE session_id = ? LIMIT 1", self._session
        )

    def _is_late(self, message: int, part: int, time: int) -> bool:
        """Return whether a row after a point may belong to the records before it, or between them.
        OpenCode orders messages with equal times by their ids. Ids are not looked at, so a later
        row with an equal time counts as late.
        """
        # The planner of SQLite does not know how many parts come after the point.
        is_few = self._last_part() - part <= _FEW_PARTS
        tables = "part CROSS JOIN message" if is_few else "message CROSS JOIN part"
        return self._asks(_LATE_PART.format(tables), part, self._session, message) or self._asks(
            _LATE_MESSAGE, self._session, message, time
        )

    def _digest_of_older(self, message: int, part: int) -> bytes | None:
        """Return the hash of the rows up to these row ids, and keep it for
        ``_digest_of_newest``.
        """
        self._hash_of_older = sha256(self._about)
        return self._digest(self._hash_of_older, (0, message), (0, part))

    def _digest_of_newest(self, older: Point, message: int, part: int) -> bytes | None:
        """Return the hash of all rows up to these row ids, from the hash of the older rows."""
        hashed = self._hash_of_older.copy()
        return self._digest(hashed, (older.message, message), (older.part, part))

    def _digest(
        self, hashed: _Hash, messages: tuple[int, int], parts: tuple[int, int]
    ) -> bytes | None:
        """Add the rows between these row ids to a hash. Return None if one of them has no value in
        a column.
        """
        for table, (start, last) in (("message", messages), ("part", parts)):
            if last > _ROW_ID_MAX:
                return None
            columns = _COLUMNS[table]
            counts = ", ".join(f"count({column})" for column in columns)
            query = (
                f"SELECT {_joined(columns)}, count(*), {counts}"
                f" FROM {table} WHERE session_id = ? AND rowid > ? AND rowid <= ?"
            )
            for first in range(start, last, _ROWS):
                stop = min(first + _ROWS, last)
                cells = self._ask(query, self._session, first, stop)
                texts = cells[: len(columns)]
                rows, *complete = cells[len(columns) :]
                if {*complete} != {rows}:
                    return None
                for text in texts:
                    hashed.update(b"%d\x1e%b" % (rows, text or b""))
            hashed.update(b"\0")
        return hashed.digest()

    def _ask(self, query: str, *arguments: int | str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = self._database.execute(query, arguments).fetchone()
        return row

    def _asks(self, query: str, *arguments: int | str) -> bool:
        return self._database.execute(query, arguments).fetchone() is not None


def _joined(columns: Sequence[str]) -> str:
    """Return the SQL that joins the values of each column. SQLite takes twice as long to join the
    columns of each row first, or with a separator that is an expression: see ``python -m
    benchmarks.hooks --rows growth --format opencode``.
    """
    return ", ".join(f"CAST(group_concat({column}, '\x1e') AS BLOB)" for column in columns)
