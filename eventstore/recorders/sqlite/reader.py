"""The queries of one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import msgspec

from foldlog.eventstore.errors import StoreDamaged
from foldlog.eventstore.recorders.base import Columns, Reader
from foldlog.eventstore.recorders.statements import statements
from foldlog.eventstore.recorders.types import Row, as_rows, body_bytes

SQL: Final = statements("sqlite")
_FEW: Final = 16
"""If a query has at most ``_FEW`` intervals, each interval is a separate parameter. A query with
more than ``_FEW`` intervals gets its intervals as one JSON text.
"""
_id: Final = itemgetter(0)
_POSITIONS: Final = range(2**62)


class SQLiteReader(Reader):
    """A reader of one SQLite connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def ask(self, statement: str, *parameters: Any) -> list[Columns]:
        return self._run(statement, *parameters).fetchall()

    def _rows_until(self, bytes_max: int, *parameters: int) -> list[Columns]:
        # The cursor reads one row after the other, so no row behind the last one is read.
        return _until_bytes(self._run("rows", *parameters), bytes_max)

    def _run(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        # An id may contain lone surrogates.
        bindings = [
            parameter.encode("utf-8", "surrogatepass") if isinstance(parameter, str) else parameter
            for parameter in parameters
        ]
        return self._execute(SQL[statement], bindings)

    def _array(self, values: Sequence[int] | Sequence[str]) -> str:
        return json_text(values)

    def value(self, name: str) -> str:
        if name == "last_position":
            return str(self._last_position())
        return super().value(name)

    def flagged_rows(
        self, key: int, intervals: Sequence[tuple[int, ...]], bytes_max: int | None = None
    ) -> Sequence[Row]:
        number = len(intervals)
        if number == 0:
            return []
        of_keys = [(*interval, key)[:3] for interval in intervals]
        bindings = chain.from_iterable(of_keys) if number <= _FEW else (json_text(of_keys),)
        answer = self._execute(_flagged_rows(min(number, _FEW + 1)), tuple(bindings))
        rows = as_rows(answer if bytes_max is None else _until_bytes(answer, bytes_max))
        if number > 1:
            rows.sort(key=_id)  # the index sorts the rows only within an interval
        return self._with_attachments_in(rows, key, intervals)

    def _ask_listed(self, digests: Sequence[bytes], at: int, key: int, limit: int) -> list[Columns]:
        statement = SQL["listed"].format(others=" ".join([SQL["also_listed"]] * (len(digests) - 1)))
        return self._execute(statement, (digests[0], at, at, key, *digests[1:], limit)).fetchall()

    def _last_position(self) -> int:
        return a_position(self._execute(SQL["last_position"]))


def _until_bytes(answer: Iterable[Columns], bytes_max: int) -> list[Columns]:
    """Return the columns of rows, up to the row that passes ``bytes_max``."""
    taken = list[Columns]()
    size = 0
    for columns in answer:
        taken.append(columns)
        size += body_bytes(columns[2])
        if size > bytes_max:
            break
    return taken


def a_position(answer: sqlite3.Cursor) -> int:
    row = answer.fetchone()
    if row is None or type(row[0]) is not int or row[0] not in _POSITIONS:
        raise StoreDamaged(
            "the positions of events are damaged; run 'foldlog store verify', then 'foldlog store"
            " copy --damaged'"
        )
    return int(row[0])


@cache
def _flagged_rows(intervals: int) -> str:
    # ``intervals`` has only a few different values, so SQLite keeps each of the queries prepared.
    few = f"VALUES {', '.join(['(?, ?, ?)'] * intervals)}"
    return SQL["flagged_rows"].format(intervals=few if intervals <= _FEW else SQL["many_intervals"])


def json_text(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()
