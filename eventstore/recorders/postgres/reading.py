"""What one transaction is asked. Every question walks an index to what it returns, and costs one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Protocol, cast

from psycopg.pq.abc import PGresult

from eventstore.recorders.postgres.binary import BIGINT, BYTEA, array, bigint, text_bytes, to_text
from eventstore.recorders.postgres.wire import Parameter
from eventstore.recorders.types import (
    Ancestor,
    BareRow,
    Conversation,
    Erasure,
    ListedConversation,
    Only,
    PlacedRow,
    RecalledKey,
    Record,
)

__all__ = ["PostgresReader", "Session"]

_number: Final = int.from_bytes  # big-endian and unsigned, as everything is that cannot be negative
_signed: Final = Struct("!q").unpack
_TRUE: Final = b"\1"
_NO_POSITION: Final = 2**63 - 1


_ROWS: Final[dict[Only, str]] = {"all": "rows", "structural": "structural_rows", "documents": "documents_rows"}


class Session(Protocol):
    """An open transaction."""

    def ask(self, statement: str, *parameters: Parameter) -> PGresult: ...


class PostgresReader:
    def __init__(self, session: Session) -> None:
        self._ask = session.ask

    def conversation(self, name: str | int, known: Conversation | None = None) -> Conversation | None:
        if isinstance(name, int):
            return self._with_lineage(_first_conversation(self._ask("conversation_of", bigint(name))))
        return self._with_lineage(_first_conversation(self._ask("conversation", text_bytes(name))))

    def _with_lineage(self, found: Conversation | None) -> Conversation | None:
        if found is None or found.parent is None:
            return found
        result = self._ask("lineage", bigint(found.key))
        value = _values(result)
        lineage = [
            Ancestor(
                _number(value(n, 0)),
                _number(value(n, 1)),
                to_text(value(n, 2)),
                value(n, 3) == _TRUE,
                None if (parent := result.get_value(n, 4)) is None else _number(parent),
                value(n, 5) == _TRUE,
            )
            for n in range(result.ntuples)
        ]
        return found._replace(lineage=tuple(lineage))

    def conversations(
        self, start: str, limit: int, *, staged: bool = False, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        if forks_of is not None:
            result = self._ask("forks", bigint(forks_of), text_bytes(start), bigint(limit))
            return [_conversation(result, n) for n in range(result.ntuples)]
        statement = "staged_conversations" if staged else "conversations"
        result = self._ask(statement, text_bytes(start), bigint(limit))
        return [_conversation(result, n) for n in range(result.ntuples)]

    def rows(self, key: int, start: int, stop: int, limit: int, only: Only = "all") -> Sequence[BareRow]:
        return _rows(self._ask(_ROWS[only], bigint(key), bigint(start), bigint(stop), bigint(limit)))

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, ...]]) -> Sequence[BareRow]:
        firsts = array(BIGINT, [bigint(interval[0]) for interval in intervals])
        lasts = array(BIGINT, [bigint(interval[1]) for interval in intervals])
        keys = array(BIGINT, [bigint(interval[2]) if len(interval) > 2 else None for interval in intervals])
        return _rows(self._ask("shown_rows", bigint(key), firsts, lasts, keys))

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Live rows have their positions; those of an import are reckoned from where it was published."""
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._ask("publications", bigint(after_position))
            if block.ntuples == 0:
                return placed + self._live_rows(after_position, _NO_POSITION, limit - len(placed))
            first, key, first_id, size = (_int(block, 0, column) for column in range(4))
            if after_position + 1 < first:
                placed += self._live_rows(after_position, first, limit - len(placed))
                after_position = first - 1
                if len(placed) == limit:
                    break
            start = first_id + after_position + 1 - first
            conversation = to_text(_values(block)(0, 4))
            rows = self.rows(key, start, first_id + size, limit - len(placed))
            placed += [PlacedRow(first + row[0] - first_id, conversation, row) for row in rows]
            after_position = first + size - 1
        return placed

    def value(self, name: str) -> str:
        """Return a fact about the store."""
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            newest = self._ask("max_tracking_id", text_bytes(application)).get_value(0, 0)
            return "" if newest is None else str(_number(newest))
        if name == "last_position":
            return str(_int(self._ask("last_position"), 0, 0))
        result = self._ask("store_value", text_bytes(name))
        return (result.get_value(0, 0) or b"").decode() if result.ntuples else ""

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if projection is None:
            return _records(self._ask("newest_records", bigint(key), bigint(limit)))
        statement = "records_back" if backwards else "records"
        return _records(self._ask(statement, text_bytes(projection), bigint(key), bigint(version), bigint(limit)))

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        if exactly:
            result = self._ask("recall", bigint(key), text_bytes(start))
            return [(start, _recalled(result, n, 0)) for n in range(result.ntuples)]
        result = self._ask("recalled", bigint(key), text_bytes(start), bigint(limit))
        return [(to_text(_values(result)(n, 0)), _recalled(result, n, 1)) for n in range(result.ntuples)]

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        names = array(BYTEA, [text_bytes(name) for name in idempotency_keys])
        asked = (
            self._ask("recalled_anywhere", names) if key is None else self._ask("recalled_among", bigint(key), names)
        )
        return [
            (_int(asked, n, 0), to_text(_values(asked)(n, 1)), _recalled(asked, n, 2)) for n in range(asked.ntuples)
        ]

    def touched(self, after_position: int, until_position: int) -> Sequence[tuple[int, int]]:
        if after_position <= 0:
            result = self._ask("all_visible")
        else:
            result = self._ask("touched", bigint(after_position), bigint(until_position))
        value = _values(result)
        return [(_number(value(n, 0)), _time(value(n, 1))) for n in range(result.ntuples)]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        at, key = before or (_NO_POSITION, _NO_POSITION)
        wanted = array(BYTEA, digests)
        result = self._ask("listed", wanted, bigint(at), bigint(key), bigint(len(digests)), bigint(limit))
        value = _values(result)
        return [
            ListedConversation(
                _number(value(n, 0)),
                to_text(value(n, 1)),
                _time(value(n, 2)),
                value(n, 3) == _TRUE,
                _time(value(n, 4)),
                _time(value(n, 5)),
                None if result.get_value(n, 6) is None else _record(result, n, 6),
            )
            for n in range(result.ntuples)
        ]

    def _live_rows(self, after_position: int, before: int, limit: int) -> list[PlacedRow]:
        result = self._ask("live_rows", bigint(after_position), bigint(before), bigint(limit))
        value = _values(result)
        names = [to_text(result.get_value(n, 13) or b"") for n in range(result.ntuples)]
        return [PlacedRow(_number(value(n, 12)), names[n], row) for n, row in enumerate(_rows(result))]


def _values(result: PGresult) -> Callable[[int, int], bytes]:
    """(row, column) to a value, of columns that are never null."""
    return cast("Callable[[int, int], bytes]", result.get_value)


def _time(stored: bytes) -> int:
    return cast("int", _signed(stored)[0])


def _int(result: PGresult, row: int, column: int) -> int:
    return _number(_values(result)(row, column))


def _recalled(result: PGresult, row: int, column: int) -> RecalledKey:
    proof, position = result.get_value(row, column + 2), result.get_value(row, column + 3)
    first_id, events = _int(result, row, column), _int(result, row, column + 1)
    return RecalledKey(first_id, events, proof, None if position is None else _number(position))


def _rows(result: PGresult) -> list[BareRow]:
    value = _values(result)
    return [
        (
            _number(value(n, 0)),
            value(n, 1),
            _number(value(n, 2)),
            value(n, 3) == _TRUE,
            value(n, 4) == _TRUE,
            _time(value(n, 5)),
            _number(value(n, 6)),
            value(n, 7),
            value(n, 8),
            _number(value(n, 9)),
            _number(value(n, 10)),
            _number(value(n, 11)),
        )
        for n in range(result.ntuples)
    ]


def _records(result: PGresult) -> list[Record]:
    named = result.nfields > 6
    records = [_record(result, n, 0) for n in range(result.ntuples)]
    return [r._replace(projection=to_text(_values(result)(n, 6))) for n, r in enumerate(records)] if named else records


def _record(result: PGresult, n: int, first: int) -> Record:
    """Return the record in a row, from a column on."""
    value = _values(result)
    return Record(
        _number(value(n, first)),
        _number(value(n, first + 1)),
        None if (base := result.get_value(n, first + 2)) is None else _number(base),
        value(n, first + 3),
        _number(value(n, first + 4)),
        _number(value(n, first + 5)),
    )


def _first_conversation(result: PGresult) -> Conversation | None:
    return _conversation(result, 0) if result.ntuples else None


def _conversation(result: PGresult, n: int) -> Conversation:
    value, may_be_null = _values(result), result.get_value
    parent, parent_version, key_id, erased_at = (may_be_null(n, column) for column in (3, 4, 6, 8))
    is_empty = may_be_null(n, 12) is None
    return Conversation(
        key=_number(value(n, 0)),
        id=to_text(value(n, 1)),
        created_at=_time(value(n, 2)),
        salt=may_be_null(n, 5) or b"",
        version=0 if is_empty else _number(value(n, 12)) + 1,
        updated_at=None if is_empty else _time(value(n, 13)),
        head=may_be_null(n, 14),
        parent=None if parent is None else _number(parent),
        parent_version=None if parent_version is None else _number(parent_version),
        key_id=None if key_id is None else to_text(key_id),
        sealed_key=may_be_null(n, 7),
        erasure=None
        if erased_at is None
        else Erasure(_time(erased_at), to_text(value(n, 9)), _number(value(n, 10)), value(n, 11)),
        shown=0 if is_empty else _number(value(n, 15)) + (value(n, 16) == _TRUE),
        structural=0 if is_empty else _number(value(n, 17)) + (value(n, 18) == _TRUE),
        visible=value(n, 19) == _TRUE,
        mark=may_be_null(n, 20),
        parent_id=None if (parent_id := may_be_null(n, 21)) is None else to_text(parent_id),
        past=may_be_null(n, 22),
        astray=may_be_null(n, 23) == _TRUE,
        replaces=None if (replaces := may_be_null(n, 24)) is None else _number(replaces),
    )
