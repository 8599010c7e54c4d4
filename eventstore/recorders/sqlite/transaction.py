"""The writes of a transaction, under SQLite's one write lock.

One object serves all transactions of the writing connection. The object remembers the state of the
conversation after the last append, the next position, the stream of the last chunk, and the
record of the lease. The next append to the same conversation or stream reads none of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any, Final

from foldlog.eventstore.codec_json import Body
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.sqlite.reader import SQL, SQLiteReader
from foldlog.eventstore.recorders.types import (
    Chunk,
    Conversation,
    Place,
    Record,
    Row,
    Stream,
    encoding_of,
    in_columns,
    no_position,
)

_TOGETHER = 20
"""The number of rows that one ``INSERT`` writes."""
_LONG: Final = 100_000
"""The copy of a longer body takes longer than the search for an adapter: see ``_insert``."""
_STORE_KEY: Final = 0
"""The key of records that belong to no conversation."""
_STAGED_FIRST: Final = -(1 << 63)
_STAGED_KEYS: Final = 1 << 31
"""Up to ``_STAGED_KEYS`` staged conversations get positions that do not overlap. A file holds fewer
conversations.
"""


class SQLiteTransaction(SQLiteReader, Transaction):
    """``last_conversation`` and the next position stay valid from one transaction to the next. The
    owner must call ``forget`` after a rollback, and after a commit of another connection, or
    ``forget_streams`` if the other connection wrote only streams.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.cursor = connection.cursor()
        """The cursor of ``BEGIN``, ``COMMIT`` and the inserts of events. A cursor for each
        statement would take longer (``benchmarks/append.py``).
        """
        self._execute_many = connection.executemany
        self._next_position: int | None = None
        self._last_stream: tuple[int, Stream] | None = None
        """The conversation and the stream of the last chunk. The next chunk of the same stream
        needs no query.
        """
        self._last_record: tuple[tuple[Any, ...], Sequence[Record]] | None = None
        """The question for a record of the store, and its answer. The fence of a lease asks it at
        each append.
        """
        self.stream_rows = 0
        """The number of rows of streams that were written since the transaction began."""

    def forget(self) -> None:
        super().forget()
        self._next_position = None
        self._last_stream = None
        self._last_record = None

    def forget_streams(self) -> None:
        self._last_stream = None

    def records(
        self, key: int, projection: str, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        asked = key, projection, version, limit, backwards
        last = self._last_record
        if last is not None and last[0] == asked:
            return last[1]
        records = super().records(key, projection, version, limit, backwards=backwards)
        if key == _STORE_KEY:
            self._last_record = asked, records
        return records

    def put_records(
        self, key: int, projection: str, records: Iterable[Record], *, replace_all: bool = False
    ) -> None:
        if key == _STORE_KEY:
            self._last_record = None
        super().put_records(key, projection, records, replace_all=replace_all)

    def stream(self, key: int, number: int) -> Stream | None:
        last = self._last_stream
        if last is not None and last[0] == key and last[1].number == number:
            return last[1]
        stream = super().stream(key, number)
        self._last_stream = None if stream is None else (key, stream)
        return stream

    def put_stream(self, key: int, stream: Stream) -> None:
        self._last_stream = None
        super().put_stream(key, stream)
        self.stream_rows += 1

    def put_chunk(self, key: int, number: int, chunk: Chunk) -> None:
        last = self._last_stream
        self._last_stream = None
        super().put_chunk(key, number, chunk)
        self.stream_rows += 1
        if last is not None and last[0] == key and last[1].number == number:
            self._last_stream = key, last[1]._replace(end=chunk.ends)

    def delete_stream(self, key: int, number: int) -> None:
        self._last_stream = None
        super().delete_stream(key, number)

    def _delete_all(self, key: int, limit: int) -> bool:
        self._last_stream = None
        return super()._delete_all(key, limit)

    def _begin_row(self, new: Conversation, *columns: Any) -> int:
        key = self.write("begin_conversation", *columns).lastrowid
        assert key is not None  # an INSERT into a rowid table sets it
        return key

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False) -> Place:
        if staged:
            self._check_staged(key)
            self._insert(key, rows, _staged_position(key, rows[0].id))
            return no_position
        position = self._next_position
        self.last_conversation = None
        if position is None:
            position = self._last_position() + 1
        self._insert(key, rows, position)
        self._next_position = position + len(rows)
        return partial(int, position)

    def _place_first(self, key: int, size: int) -> None:
        first = self._last_position() + 1
        self._execute(SQL["reserve_positions"], (first + size - 1,))
        self.write("place_first", first, size, key)

    def insert_past(self, key: int, rows: Sequence[Row]) -> None:
        self.forget()
        self._insert(key, rows, _staged_position(key, rows[0].id))

    def insert_again(self, key: int, rows: Sequence[Row], positions: Sequence[int | None]) -> None:
        self.forget()
        for row, position in zip(rows, positions, strict=True):
            assert position is not None  # in a file, every event has a position
            self._insert(key, [row], position)

    def delete(self, key: int, limit: int) -> bool:
        self.forget()
        return super().delete(key, limit)

    write = SQLiteReader._run

    def write_rows(self, statement: str, key: int, rows: Iterable[Sequence[Any]]) -> None:
        self._execute_many(SQL[statement], ((key, *row) for row in rows))

    def _delete(self, statement: str, key: int, limit: int) -> bool:
        return self.write(statement, key, limit).rowcount < limit

    def _insert(self, key: int, rows: Sequence[Row], position: int) -> None:
        # For every type except byte arrays, ``sqlite3`` first searches for an adapter. The search
        # takes longer than binding a byte array, so bind byte arrays.
        for first in range(0, len(rows), _TOGETHER):
            batch = rows[first : first + _TOGETHER]
            _, metas, bodies = zip(*batch, strict=True)
            are_plain = not any(map(encoding_of, metas))
            values: list[object] = []
            for event_id, meta, body in batch:
                kind, shown, structural = in_columns(meta)
                stored = bytearray(body) if len(body) < _LONG else body
                meta_array = bytearray(meta)
                # The plus makes a number of a bool, for which ``sqlite3`` would search an adapter.
                values += position, key, event_id, kind, +shown, +structural, meta_array
                if not are_plain:
                    values += meta_array, stored
                values.append(stored)
                position += 1
            self.cursor.execute(_insert_together(len(batch), are_plain), values)
            if Body in map(type, bodies):
                self._attach(key, batch)


@cache
def _insert_together(rows: int, are_plain: bool) -> str:
    """Return the statement that inserts a number of rows. The number has only a few different
    values, so SQLite keeps each of the statements prepared.
    """
    return SQL["insert_events"].format(
        rows=", ".join([SQL["a_plain_event" if are_plain else "an_event"]] * rows)
    )


def _staged_position(key: int, event_id: int) -> int:
    """Return a negative position that no other staged event has. Followers read only positive
    positions. Later conversations and events get higher positions, because SQLite fills pages only
    if rows are added at the end. When the positions were descending, a store of short histories (40
    events each) took 44 % more space. Only the last 31 bits of ``key`` are used: in memory, a
    conversation from a server may have a key of 63 bits.
    """
    return _STAGED_FIRST + ((key % _STAGED_KEYS) << 32) + event_id
