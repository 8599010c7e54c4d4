"""The index over many conversations: lists, and events by the id of their source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from psycopg.pq.abc import PGresult

from eventstore.recorders.postgres.binary import BYTEA, array, bigint, text_bytes, to_text
from eventstore.recorders.postgres.results import TRUE, moment, recalled_key, record_of, unsigned, values
from eventstore.recorders.types import ListedConversation, RecalledKey

_NO_POSITION: Final = 2**63 - 1


class PostgresIndex:
    def __init__(self, ask: Callable[..., PGresult]) -> None:
        self._ask = ask

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

    def trackings_behind(self, position: int) -> Sequence[str]:
        result = self._ask("trackings_behind", bigint(position))
        return [to_text(values(result)(n, 0)) for n in range(result.ntuples)]


class PostgresWritableIndex(PostgresIndex):
    def __init__(self, ask: Callable[..., PGresult], write: Callable[..., None]) -> None:
        super().__init__(ask)
        self._write = write

    def list_as(self, key: int, at: int, version: int, digests: Iterable[bytes] | None) -> None:
        joined = None if digests is None else b"".join(digests)
        self._write("list_as", bigint(key), bigint(at), bigint(version), joined)
