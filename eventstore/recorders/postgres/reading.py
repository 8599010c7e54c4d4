"""The queries of one transaction. Each walks an index to its rows and costs one round trip."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from psycopg.pq.abc import PGresult

from eventstore.recorders.attachments import any_with_bytes, keyed, with_attachments
from eventstore.recorders.base import Only
from eventstore.recorders.postgres.binary import BIGINT, BYTEA, array, bigint, smallint, text_bytes, to_text
from eventstore.recorders.postgres.results import (
    TRUE,
    conversation_at,
    integer_at,
    moment,
    placed_erasure,
    recalled_key,
    record_of,
    records_of,
    rows_of,
    unsigned,
    values,
)
from eventstore.recorders.types import (
    Ancestor,
    Conversation,
    ListedConversation,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    in_order,
)

_NO_POSITION: Final = 2**63 - 1
_ROWS: Final[dict[Only, str]] = {"all": "rows", "structural": "structural_rows"}


class PostgresReader:
    """The queries of an open transaction, which ``ask`` sends."""

    era: int | None = None

    def __init__(self, ask: Callable[..., PGresult]) -> None:
        self._ask = ask

    def conversation(self, name: str | int) -> Conversation | None:
        if isinstance(name, int):
            return self._first(self._ask("conversation_of", bigint(name)))
        return self._first(self._ask("conversation", text_bytes(name)))

    def _first(self, answer: PGresult) -> Conversation | None:
        """Return the conversation in an answer, with its ancestors."""
        found = conversation_at(answer, 0) if answer.ntuples else None
        if found is None or found.parent is None:
            return found
        result = self._ask("lineage", bigint(found.key))
        value = values(result)
        lineage = [
            Ancestor(
                unsigned(value(n, 0)),
                unsigned(value(n, 1)),
                to_text(value(n, 2)),
                value(n, 3) == TRUE,
                None if (parent := result.get_value(n, 4)) is None else unsigned(parent),
                value(n, 5) == TRUE,
            )
            for n in range(result.ntuples)
        ]
        return found._replace(lineage=tuple(lineage))

    def conversations(
        self, start: str, limit: int, *, staged: bool = False, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        if forks_of is not None:
            result = self._ask("forks", bigint(forks_of), text_bytes(start), bigint(limit))
        else:
            statement = "staged_conversations" if staged else "conversations"
            result = self._ask(statement, text_bytes(start), bigint(limit))
        return [conversation_at(result, n) for n in range(result.ntuples)]

    def rows(
        self, key: int, start: int, stop: int, limit: int, only: Only = "all", *, kind: str | None = None
    ) -> Sequence[Row]:
        statement = _ROWS[only] if kind is None else f"rows_of_{kind}"
        return self._whole(rows_of(self._ask(statement, bigint(key), bigint(start), bigint(stop), bigint(limit))), key)

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, ...]], beside: int | None = None) -> Sequence[Row]:
        firsts = array(BIGINT, [bigint(interval[0]) for interval in intervals])
        lasts = array(BIGINT, [bigint(interval[1]) for interval in intervals])
        keys = array(BIGINT, [bigint(interval[2]) if len(interval) > 2 else None for interval in intervals])
        one = None if beside is None else bigint(beside)
        return self._whole(rows_of(self._ask("shown_rows", bigint(key), firsts, lasts, keys, one)), key, intervals)

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows with their positions. Positions of imported rows are computed from that of the publication."""
        rows = self._placed_rows(after_position, limit)
        found = self._ask("erasures_after", bigint(after_position), bigint(limit))
        return (
            in_order(rows, map(partial(placed_erasure, found), range(found.ntuples)), limit) if found.ntuples else rows
        )

    def _placed_rows(self, after_position: int, limit: int) -> list[PlacedRow]:
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._ask("publications", bigint(after_position))
            if block.ntuples == 0:
                return placed + self._live_rows(after_position, _NO_POSITION, limit - len(placed))
            first, key, first_id, size = (integer_at(block, 0, column) for column in range(4))
            if after_position + 1 < first:
                placed += self._live_rows(after_position, first, limit - len(placed))
                after_position = first - 1
                if len(placed) == limit:
                    break
            start = first_id + after_position + 1 - first
            conversation = to_text(values(block)(0, 4))
            rows = self.rows(key, start, first_id + size, limit - len(placed))
            placed += [PlacedRow(first + row.id - first_id, conversation, row) for row in rows]
            after_position = first + size - 1
        return placed

    def value(self, name: str) -> str:
        """Return a fact about the store."""
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            newest = self._ask("max_tracking_id", text_bytes(application)).get_value(0, 0)
            return "" if newest is None else str(unsigned(newest))
        if name == "last_position":
            return str(integer_at(self._ask("last_position"), 0, 0))
        if name == "data_version":
            return str(integer_at(self._ask("data_version"), 0, 0))
        if name == "trackings":
            result = self._ask("trackings")
            value = values(result)
            return json.dumps([(to_text(value(n, 0)), unsigned(value(n, 1))) for n in range(result.ntuples)])
        if name == "key_ids":
            result = self._ask("key_ids")
            return b" ".join(values(result)(n, 0) for n in range(result.ntuples)).decode()
        result = self._ask("store_value", text_bytes(name))
        return (result.get_value(0, 0) or b"").decode() if result.ntuples else ""

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if projection is None:
            return records_of(self._ask("newest_records", bigint(key), bigint(limit)))
        statement = "records_back" if backwards else "records"
        return records_of(self._ask(statement, text_bytes(projection), bigint(key), bigint(version), bigint(limit)))

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        if exactly:
            result = self._ask("recall", bigint(key), text_bytes(start))
            return [(start, recalled_key(result, n, 0)) for n in range(result.ntuples)]
        result = self._ask("recalled", bigint(key), text_bytes(start), bigint(limit))
        return [(to_text(values(result)(n, 0)), recalled_key(result, n, 1)) for n in range(result.ntuples)]

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        names = array(BYTEA, [text_bytes(name) for name in idempotency_keys])
        asked = (
            self._ask("recalled_anywhere", names) if key is None else self._ask("recalled_among", bigint(key), names)
        )
        value = values(asked)
        return [(unsigned(value(n, 0)), to_text(value(n, 1)), recalled_key(asked, n, 2)) for n in range(asked.ntuples)]

    def id_from(self, start: str) -> str | None:
        result = self._ask("id_from", text_bytes(start))
        return to_text(values(result)(0, 0)) if result.ntuples else None

    def touched(self, after_position: int, until_position: int, least: int) -> Sequence[tuple[int, int]]:
        if after_position <= 0:
            result = self._ask("all_visible")
        else:
            result = self._ask("touched", bigint(after_position), bigint(until_position), bigint(least))
        value = values(result)
        return [(unsigned(value(n, 0)), moment(value(n, 1))) for n in range(result.ntuples)]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        at, key = before or (_NO_POSITION, _NO_POSITION)
        wanted = array(BYTEA, digests)
        result = self._ask("listed", wanted, bigint(at), bigint(key), bigint(len(digests)), bigint(limit))
        value = values(result)
        return [
            ListedConversation(
                unsigned(value(n, 0)),
                to_text(value(n, 1)),
                moment(value(n, 2)),
                value(n, 3) == TRUE,
                moment(value(n, 4)),
                moment(value(n, 5)),
                None if result.get_value(n, 6) is None else record_of(result, n, 6),
            )
            for n in range(result.ntuples)
        ]

    def _live_rows(self, after_position: int, before: int, limit: int) -> list[PlacedRow]:
        result = self._ask("live_rows", bigint(after_position), bigint(before), bigint(limit))
        value = values(result)
        names = [to_text(result.get_value(n, 13) or b"") for n in range(result.ntuples)]
        rows = rows_of(result)
        if any_with_bytes(rows):
            keys = [unsigned(value(n, 14)) for n in range(result.ntuples)]
            rows = with_attachments(list(zip(keys, rows, strict=True)), self._attached, self._attachment)
        return [PlacedRow(unsigned(value(n, 12)), names[n], row) for n, row in enumerate(rows)]

    def _whole(self, rows: list[Row], key: int, intervals: Sequence[tuple[int, ...]] = ()) -> Sequence[Row]:
        """Return rows with their attachments; most rows have none."""
        if not any_with_bytes(rows):
            return rows
        return with_attachments(keyed(rows, key, intervals), self._attached, self._attachment)

    def _attached(self, key: int, ids: Sequence[int]) -> Sequence[tuple[int, bytes, int]]:
        result = self._ask("attached", bigint(key), array(BIGINT, list(map(bigint, ids))))
        value = values(result)
        return [(unsigned(value(n, 0)), value(n, 1), unsigned(value(n, 2))) for n in range(result.ntuples)]

    def _attachment(self, key: int, name: bytes, encoding: int) -> bytes | None:
        result = self._ask("attachment", bigint(key), name, smallint(encoding))
        return result.get_value(0, 0) if result.ntuples else None
