"""The questions that one transaction answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from eventstore.recorders.base import BareRow, Conversation, Erasure, PlacedRow, RecalledKey, Record, Row
from eventstore.recorders.errors import DatabaseError
from eventstore.recorders.statements import statements

__all__ = ["SQL", "SQLiteReader", "a_position", "bound"]

SQL: Final = statements("sqlite")
_KINDS_MAX: Final = 1_000
_new: Final = tuple.__new__  # what Row(...) calls, without the call around it: this runs for every row that is read


class SQLiteReader:
    """The questions that one transaction answers. All of them walk an index to what they return.

    ``check_file`` is called before positions are followed: a follower on a file that was replaced waits for ever.
    """

    def __init__(self, connection: sqlite3.Connection, check_file: Callable[[], object] | None = None) -> None:
        self._execute = connection.execute
        self._check_file = check_file
        self._ids: dict[int, str] = {}

    def store_value(self, name: str) -> str:
        found = self._execute(SQL["store_value"], (name,)).fetchone()
        return _text(found[0]) if found else ""

    def conversation(self, conversation_id: str, known: Conversation | None = None) -> Conversation | None:
        name = (bound(conversation_id),)
        if known is not None:
            found = self._execute(SQL["conversation_as_known"], name).fetchone()
            if found and _conversation(conversation_id, found) == known:
                return known
        found = self._execute(SQL["conversation"], name).fetchone()
        return _conversation(conversation_id, found[1:]) if found else None

    def conversations(self, after: str | None, limit: int) -> Sequence[Conversation]:
        # The text that follows ``after`` at once is itself with a zero byte behind it.
        start = b"" if after is None else bound(after) + b"\0"
        rows = self._execute(SQL["conversations"], (start, limit)).fetchall()
        return [_conversation(_text(row[0]), row[1:]) for row in rows]

    def conversation_of(self, key: int) -> Conversation | None:
        found = self._execute(SQL["conversation_of"], (key,)).fetchone()
        return _conversation(_text(found[0]), found[1:]) if found else None

    def staged(self, conversation_id: str) -> Sequence[int]:
        return [row[0] for row in self._execute(SQL["in_staging"], (bound(conversation_id),))]

    def rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return list(map(_row, self._execute(SQL["rows"], (key, start, stop, limit))))

    def bare_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[BareRow]:
        return self._execute(SQL["bare_rows"], (key, start, stop, limit)).fetchall()

    def structural_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return list(map(_row, self._execute(SQL["structural_rows"], (key, start, stop, limit))))

    def documents_row(self, key: int, stop: int) -> Row | None:
        found = self._execute(SQL["documents_row"], (key, stop)).fetchone()
        return _row(found) if found else None

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, int]]) -> Sequence[Row]:
        rows = list(map(_row, self._execute(SQL["shown_rows"], (_json(intervals), key))))
        if len(intervals) > 1:
            rows.sort(key=_id)  # within an interval the index has them in order
        return rows

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Live rows have their positions; those of an import are reckoned from where it was published."""
        if self._check_file is not None:
            self._check_file()
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._publication(after_position)
            if block is not None and block[2] <= after_position + 1:
                key, conversation_id, first, size = block
                start = after_position + 1 - first
                rows = self.rows(key, start, size, limit - len(placed))
                placed += [PlacedRow(first + row.id, conversation_id, row) for row in rows]
                # What is missing was erased: go on behind the block.
                after_position = placed[-1].position if rows and len(placed) == limit else first + size - 1
                continue
            before = block[2] - 1 if block is not None else self.last_position()
            live = self._execute(SQL["live_rows_from"], (after_position, before, limit - len(placed))).fetchall()
            placed += [PlacedRow(row[12], self._id(row[13]), _row(row)) for row in live]
            if block is None or len(placed) == limit:
                break
            after_position = before
        return placed

    def last_position(self) -> int:
        return a_position(self._execute(SQL["last_position"]))

    def record_at(self, projection: str, key: int, version: int) -> Record | None:
        found = self._execute(SQL["record_at"], (projection, key, version)).fetchone()
        return Record(*found) if found else None

    def records(self, projection: str, key: int, after: int, limit: int) -> Sequence[Record]:
        return [Record(*row) for row in self._execute(SQL["records"], (projection, key, after, limit))]

    def position(self, key: int, event_id: int) -> int:
        return a_position(self._execute(SQL["position"], (key, event_id)))

    def recall(self, key: int, idempotency_key: str) -> RecalledKey | None:
        found = self._execute(SQL["recall"], (key, bound(idempotency_key))).fetchone()
        return RecalledKey(*found) if found else None

    def remembered(self, key: int, after: str | None, limit: int) -> Sequence[tuple[str, RecalledKey]]:
        start = b"" if after is None else bound(after) + b"\0"
        rows = self._execute(SQL["remembered"], (key, start, limit))
        return [(_text(name), RecalledKey(*recalled)) for name, *recalled in rows]

    def projections(self, key: int) -> Sequence[str]:
        return [_text(row[0]) for row in self._execute(SQL["projections"], (key,))]

    def max_tracking_id(self, application: str) -> int | None:
        found: int | None = self._execute(SQL["max_tracking_id"], (application,)).fetchone()[0]
        return found

    def _publication(self, after_position: int) -> tuple[int, str, int, int] | None:
        """Return the published import that holds the next position, else the first one after it."""
        row = self._execute(SQL["publication_at"], (after_position + 1,)).fetchone()
        if row is None or row[2] + row[3] <= after_position + 1:
            row = self._execute(SQL["publications_after"], (after_position + 1, 1)).fetchone()
        return (row[0], _text(row[1]), row[2], row[3]) if row else None

    def _id(self, key: int) -> str:
        if key not in self._ids:
            found = self._execute(SQL["conversation_id"], (key,)).fetchone()
            self._ids[key] = _text(found[0]) if found else ""
        return self._ids[key]


def a_position(answer: sqlite3.Cursor) -> int:
    """Return the position that a question is answered with. Raises ``DatabaseError`` where there is none, which only a
    damaged file says.
    """
    found = answer.fetchone()
    if found is None or type(found[0]) is not int:
        raise DatabaseError("the positions of events are damaged; run 'foldlog verify', then 'foldlog salvage'")
    return int(found[0])


def _json(value: Sequence[object]) -> str:
    return msgspec.json.encode(value).decode()


def bound(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(stored: object) -> str:
    # In a damaged file a column may be of any type. What the row then is not, the guard finds.
    return stored.decode("utf-8", "surrogatepass") if type(stored) is bytes else ""


def _id(row: Row) -> int:
    return row.id


_KINDS: Final[dict[bytes, str]] = {}
"""Texts of the kinds met so far: there are few, and rows are many."""


def _row(row: tuple[Any, ...]) -> Row:
    event_id, kind, schema, shown, structural, at, encoding, body, head, shown_before, structural_before, check, *_ = (
        row
    )
    if type(event_id) is not int:
        event_id = -1
    name = _KINDS.get(kind)
    if name is None:
        name = str(kind, "utf-8", "replace") if type(kind) is bytes else ""
        if name and len(_KINDS) < _KINDS_MAX:
            _KINDS[kind] = name
    return _new(Row, (
        event_id, name, schema, shown == 1, structural == 1, at, encoding, body, head, shown_before, structural_before,
        check,
    ))  # fmt: skip


def _conversation(conversation_id: str, found: tuple[Any, ...]) -> Conversation:
    (key, visible, created_at, parent, parent_version, salt, key_id, sealed_key,
     erased_at, erased_reason, erased_events, erased_head, mark, last_id, updated_at, head,
     shown, structural, astray) = found  # fmt: skip
    return Conversation(
        key=key,
        id=conversation_id,
        created_at=created_at,
        salt=salt or b"",
        version=last_id + 1 if type(last_id) is int else 0,
        updated_at=updated_at,
        head=head,
        parent=parent,
        parent_version=parent_version,
        key_id=None if key_id is None else _text(key_id),
        sealed_key=sealed_key,
        erasure=None
        if erased_at is None
        else Erasure(erased_at, _text(erased_reason or b""), erased_events, erased_head or b""),
        shown=shown or 0,
        structural=structural or 0,
        astray=bool(astray) or type(last_id) not in (int, type(None)),
        visible=visible == 1,
        mark=mark,
    )
