"""The writes of a transaction, under the one write lock that SQLite has.

One object serves all transactions of the connection that writes. From one transaction to the next it keeps the state
that they left, so that an append after one of the same process need not ask for its conversation and its position.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache, partial
from itertools import count
from operator import attrgetter
from typing import Any

from foldlog.eventstore.codec_json import Body
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.sqlite.reader import SQL, SQLiteReader, as_bound
from foldlog.eventstore.recorders.types import Beginning, Place, Row, unplaced

_TOGETHER = 20
_eras = count(1)
_body = attrgetter("body")
_VALUES = len(Row._fields) + 4


class SQLiteTransaction(SQLiteReader, Transaction):
    """The writes of a transaction, under the one write lock that SQLite has.

    ``newest_era`` and the next position are kept from one transaction to the next. So the owner must call ``forget``
    where a transaction is rolled back, and where another connection has committed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._next_position: int | None = None
        self._noted_by: object = None
        self.newest_era = next(_eras)

    def era(self, cache: object) -> int | None:
        if self._noted_by is None:
            self._noted_by = cache  # no rows were inserted yet that another cache has noted
        return self.newest_era if cache is self._noted_by else None

    def forget(self) -> None:
        """Forget what earlier transactions left, and ask the database again."""
        self._next_position = None
        self.newest_era = next(_eras)

    def _begin_row(self, new: Beginning, *columns: Any) -> int:
        if new.replaces is not None:
            self.forget()
        key = self._write("begin_conversation", *columns).lastrowid
        assert key is not None  # an INSERT into a rowid table has one
        return key

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False, follow: object = None) -> Place:
        if staged:
            self._check_staged(key)
            # Below every live position, so that no follower meets them, and ordered by id within the conversation.
            self._insert(key, rows, _staged_position(key, 0) + rows[0].id)
            return unplaced
        position = self._next_position
        if key > 0 and (follow is None or follow is not self._noted_by):
            self.newest_era, self._noted_by, position = next(_eras), follow, None
        if position is None:
            position = self._last_position() + 1
        self._insert(key, rows, position)
        self._next_position = position + len(rows)
        return partial(int, position)

    def _place_first(self, key: int, size: int) -> None:
        first = self._last_position() + 1
        self._execute(SQL["reserve_positions"], (first + size - 1,))
        self._write("place_first", first, size, key)

    def set_mark(self, key: int, mark: bytes | None) -> None:
        self.newest_era = next(_eras)
        super().set_mark(key, mark)

    def insert_past(self, key: int, rows: Sequence[Row]) -> None:
        self.forget()
        self._insert(key, rows, _staged_position(key, 0) + rows[0].id)

    def delete(self, key: int, limit: int) -> bool:
        self.forget()
        return super().delete(key, limit)

    def _write(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return self._execute(SQL[statement], as_bound(parameters))

    def _delete(self, statement: str, key: int, limit: int) -> bool:
        return self._write(statement, key, limit).rowcount < limit

    def _insert(self, key: int, rows: Sequence[Row], position: int) -> None:
        for first in range(0, len(rows), _TOGETHER):
            values: list[object] = []
            for row in rows[first : first + _TOGETHER]:
                values += _values(key, row, position)
                position += 1
            self._execute(_insert_together(len(values) // _VALUES), values)
        if Body in map(type, map(_body, rows)):
            self._attach(key, rows)


def _values(key: int, row: Row, position: int) -> tuple[object, ...]:
    """Return the values of a row in the order of ``an_event``. Bytes are byte arrays: ``sqlite3`` first looks for
    adapters of all other types, which takes longer than binding them.
    """
    body = bytearray(row.body)
    return (
        position,
        key,
        row.id,
        row.kind,
        row.schema,
        int(row.shown),
        int(row.structural),
        row.recorded_at,
        row.encoding,
        row.encoding,
        body,
        body,
        bytearray(row.proof),
        row.shown_before,
        row.structural_before,
        row.checksum,
    )


@cache
def _insert_together(rows: int) -> str:
    """Return the statement that inserts this number of rows. There are few such statements, and each stays prepared."""
    return SQL["insert_events"].format(rows=", ".join([SQL["an_event"]] * rows))


def _staged_position(key: int, event_id: int) -> int:
    return event_id - ((key + 1) << 32)
