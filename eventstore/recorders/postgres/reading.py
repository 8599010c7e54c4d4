"""The queries of one transaction, and a read transaction.

Followers read only what the server will not lose. A commit is visible when a standby has confirmed it. There is one
exception: a primary that crashed shows, after its recovery, commits that no standby ever confirmed. If it then fails
for good, a standby without them is promoted, and gives their positions to other events; a follower that has passed
these positions would miss the other events. So before a follower reads on a new connection, it commits a message and
waits until it is confirmed: then everything before it is confirmed too. A connection does not outlive a crash, so one
message for each connection is enough.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from foldlog.eventstore.recorders.attachments import ReadsAttachments
from foldlog.eventstore.recorders.base import Only
from foldlog.eventstore.recorders.errors import InterfaceError
from foldlog.eventstore.recorders.postgres.columns import (
    BYTEA,
    Columns,
    Parameter,
    array,
    bigints,
    smallint,
)
from foldlog.eventstore.recorders.postgres.wire import ConnectionLost, Wire
from foldlog.eventstore.recorders.types import (
    Ancestor,
    Conversation,
    ListedConversation,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    Unfinished,
    as_conversation,
    as_record,
    as_rows,
    as_text,
)

_NO_POSITION: Final = 2**63 - 1
_ROWS: Final[dict[Only, str]] = {"all": "rows", "structural": "structural_rows"}
_OF_FOLLOWERS: Final = frozenset({"live_rows", "publications", "last_position"})
_WHY: Final = (
    "before it reads on a new connection, a follower waits until a standby has confirmed what the server shows "
    "(synchronous_standby_names)"
)
_READ_AGAIN: Final = (
    "it broke within a read transaction, and another connection shows another moment: read again (Store.query does)"
)


class PostgresReader(ReadsAttachments):
    """The queries of an open transaction, which ``ask`` sends."""

    def __init__(self, ask: Callable[..., list[Columns]]) -> None:
        self._ask = ask

    def era(self, cache: object) -> int | None:
        return None  # other writers may commit at any time

    def conversation(self, name: str | int, expected: Conversation | None = None) -> Conversation | None:
        answer = self._ask("conversation_of" if isinstance(name, int) else "conversation", name)
        found = _found(answer[0]) if answer else None
        if found is None or found.parent is None:
            return found
        lineage = [
            Ancestor(key, stop, as_text(name), *rest) for key, stop, name, *rest in self._ask("lineage", found.key)
        ]
        return found._replace(lineage=tuple(lineage))

    def conversations(self, start: str, limit: int, *, forks_of: int | None = None) -> Sequence[Conversation]:
        if forks_of is not None:
            found = self._ask("forks", forks_of, start, limit)
        else:
            found = self._ask("conversations", start, limit)
        return list(map(_found, found))

    def unfinished(self, key: int | None = None) -> Sequence[Unfinished]:
        return [Unfinished(each, *map(as_text, texts)) for each, *texts in self._ask("unfinished", key)]

    def rows(
        self, key: int, start: int, stop: int, limit: int, only: Only = "all", *, kind: str | None = None
    ) -> Sequence[Row]:
        statement = _ROWS[only] if kind is None else f"rows_of_{kind}"
        found = self._ask(statement, key, start, stop, limit)
        return self._whole(as_rows(found), key)

    def flagged_rows(self, key: int, intervals: Sequence[tuple[int, ...]]) -> Sequence[Row]:
        firsts = bigints(interval[0] for interval in intervals)
        lasts = bigints(interval[1] for interval in intervals)
        keys = bigints(interval[2] if len(interval) > 2 else None for interval in intervals)
        found = self._ask("flagged_rows", key, firsts, lasts, keys)
        return self._whole(as_rows(found), key, intervals)

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows with their positions. Positions of imported rows are computed from that of the publication."""
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._ask("publications", after_position)
            if not block:
                return placed + self._live_rows(after_position, _NO_POSITION, limit - len(placed))
            [(first, key, first_id, size, conversation)] = block
            if after_position + 1 < first:
                placed += self._live_rows(after_position, first, limit - len(placed))
                after_position = first - 1
                if len(placed) == limit:
                    break
            start = first_id + after_position + 1 - first
            rows = self.rows(key, start, first_id + size, limit - len(placed))
            placed += [PlacedRow(first + row.id - first_id, as_text(conversation), row) for row in rows]
            after_position = first + size - 1
        return placed

    def value(self, name: str) -> str:
        """Return a fact about the store."""
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            [(newest,)] = self._ask("max_tracking_id", application)
            return "" if newest is None else str(newest)
        if name in ("last_position", "data_version", "now"):
            [(number,)] = self._ask(name)
            return str(number)
        if name == "trackings":
            return json.dumps([(as_text(follower), newest) for follower, newest in self._ask("trackings")])
        if name == "key_ids":
            return b" ".join(key_id for (key_id,) in self._ask("key_ids")).decode()
        found = self._ask("store_value", name)
        return str(found[0][0], "utf-8") if found else ""

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if projection is None:
            found = self._ask("newest_records", key, limit)
        else:
            statement = "records_back" if backwards else "records"
            found = self._ask(statement, projection, key, version, limit)
        return list(map(as_record, found))

    def records_of(self, projection: str, first: str, last: str) -> Sequence[tuple[str, bool, Record]]:
        found = self._ask("records_of", projection, first, last)
        return [(as_text(name), encrypted, as_record(row)) for *row, name, encrypted in found]

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        if exactly:
            return [(start, RecalledKey(*entry)) for entry in self._ask("recall", key, start)]
        found = self._ask("recalled", key, start, limit)
        return [(as_text(name), RecalledKey(*entry)) for name, *entry in found]

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        names = array(BYTEA, idempotency_keys)
        found = self._ask("recalled_anywhere", names) if key is None else self._ask("recalled_among", key, names)
        return [(owner, as_text(name), RecalledKey(*entry)) for owner, name, *entry in found]

    def id_from(self, start: str) -> str | None:
        found = self._ask("id_from", start)
        return as_text(found[0][0]) if found else None

    def touched(self, after_position: int, until_position: int, least: int) -> Sequence[tuple[int, int]]:
        if after_position <= 0:
            found = self._ask("all_visible")
        else:
            found = self._ask("touched", after_position, until_position, least)
        return [(key, version) for key, version in found]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        at, key = before or (_NO_POSITION, _NO_POSITION)
        wanted = array(BYTEA, digests)
        found = self._ask("listed", wanted, at, key, len(digests), limit)
        return [_listed(columns) for columns in found]

    def _live_rows(self, after_position: int, before: int, limit: int) -> list[PlacedRow]:
        found = self._ask("live_rows", after_position, before, limit)
        rows = self._whole_of(as_rows([columns[:12] for columns in found]), [columns[14] for columns in found])
        return [
            PlacedRow(columns[12], as_text(columns[13] or b""), row, columns[14] <= 0)
            for columns, row in zip(found, rows, strict=True)
        ]

    def _attached(self, key: int, ids: Sequence[int]) -> Sequence[tuple[int, bytes, int]]:
        return [(event_id, name, encoding) for event_id, name, encoding in self._ask("attached", key, bigints(ids))]

    def _attachment(self, key: int, name: bytes, encoding: int) -> bytes | None:
        found = self._ask("attachment", key, name, smallint(encoding))
        return found[0][0] if found else None


def _found(columns: Columns) -> Conversation:
    *of_conversation, parent_id = columns
    return as_conversation(of_conversation, None if parent_id is None else as_text(parent_id))


def _listed(found: Columns) -> ListedConversation:
    key, name, created_at, is_encrypted, at, version, *attributes = found
    record = None if attributes[0] is None else as_record(attributes)
    return ListedConversation(key, as_text(name), created_at, is_encrypted, at, version, record)


class ReadSession:
    """A read transaction, on a connection that is taken at the first question. Until the first answer, a broken
    connection is replaced by another one. Later, another connection would show another moment, so ``ConnectionLost`` is
    raised.

    ``retried`` asks the first question, and again where the connection breaks.
    """

    def __init__(
        self,
        take_wire: Callable[[], AbstractContextManager[Wire]],
        retried: Callable[[Callable[[], list[Columns]]], list[Columns]],
    ) -> None:
        self._take_wire = take_wire
        self._retried = retried
        self._held = contextlib.ExitStack()
        self._wire: Wire | None = None
        self._is_confirmed = False

    def ask(self, statement: str, *parameters: Parameter) -> list[Columns]:
        if self._wire is None:
            return self._retried(lambda: self._first(statement, parameters))
        if statement in _OF_FOLLOWERS and not self._is_confirmed:
            raise InterfaceError(f"{statement} is not the first question of this read transaction; ask it first")
        self._wire.queue(statement, *parameters)
        try:
            return self._wire.rows(self._wire.ask()[-1])
        except ConnectionLost as error:
            raise ConnectionLost(f"{error}; {_READ_AGAIN}") from error

    def close(self) -> None:
        if self._wire is not None:
            self._wire.leave("commit")
            self._wire = None
        self._held.close()

    def _first(self, statement: str, parameters: tuple[Parameter, ...]) -> list[Columns]:
        with contextlib.ExitStack() as held:
            wire = held.enter_context(self._take_wire())
            if statement in _OF_FOLLOWERS:
                result = _confirmed(wire, statement, parameters)
                self._is_confirmed = True
            else:
                wire.queue("begin_reading")
                wire.queue(statement, *parameters)
                result = wire.rows(wire.ask()[-1])
            self._wire, self._held = wire, held.pop_all()
            return result


def _confirmed(wire: Wire, statement: str, parameters: tuple[Parameter, ...]) -> list[Columns]:
    """Begin to read after what is confirmed. All statements go out together, so also behind a pooler the same server
    confirms and is read. A hot standby cannot be asked to confirm: it is asked each time whether it was promoted.
    """
    is_confirmed = wire.is_confirmed
    if not is_confirmed:
        for each in ("begin_confirming", "confirm_durably", "confirm", "commit"):
            wire.queue(each)
    wire.queue("begin_reading")
    wire.queue(statement, *parameters)
    try:
        answers = wire.ask()
    except ConnectionLost as error:
        if is_confirmed:
            raise
        wire.cancel()
        raise ConnectionLost(f"{error} ({_WHY})") from error
    if not is_confirmed:
        if wire.warned:
            raise ConnectionLost(f"the server was told not to wait for its standby ({_WHY})")
        wire.is_confirmed = wire.keeps_its_server and wire.rows(answers[2]) != [(None,)]
    return wire.rows(answers[-1])
