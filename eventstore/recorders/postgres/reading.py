"""The queries of one transaction, and a read transaction.

Followers read only rows that the server will not lose. A commit becomes visible when a standby has
confirmed it. After a crash, however, a primary also shows commits that no standby has confirmed. If
a recovered primary fails for good, a standby without the unconfirmed commits is promoted, and gives
their positions to other events. A follower that has passed these positions would miss the other
events. A follower on a new connection therefore first commits a message, and waits until a standby
has confirmed the message. The standby has then also confirmed everything before the message. A
connection does not survive a crash, so one message for each connection is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from foldlog.eventstore.errors import StoreRefused
from foldlog.eventstore.recorders.base import Columns, Reader
from foldlog.eventstore.recorders.postgres.wire import (
    BIGINT,
    BYTEA,
    ConnectionLost,
    Parameter,
    Wire,
    array,
    bigints,
)
from foldlog.eventstore.recorders.types import Row, as_rows

_FOLLOWER_STATEMENTS: Final = frozenset({"live_rows", "publications", "last_position", "snapshot"})
_WHY: Final = (
    "on a new connection, a follower first waits until a standby has confirmed all visible commits"
    " (synchronous_standby_names)"
)

Bind = Callable[[Wire], None]
"""Selects the statements of one store on a connection."""
Query = tuple[str, tuple[Parameter, ...]]
"""The name of a statement, and its parameters."""
Question = tuple[Bind, str, tuple[Parameter, ...]]
"""The store to ask, the name of a statement, and its parameters."""


class PostgresReader(Reader):
    """The queries of a transaction. ``send`` sends one question and returns its rows.
    ``send_together`` sends several questions in one round trip.
    """

    _answers_ahead: Mapping[Query, list[Columns]] = {}
    """The answers to the questions of ``ask_ahead``."""

    def __init__(
        self,
        send: Callable[..., list[Columns]],
        send_together: Callable[[Sequence[Query]], list[list[Columns]]] | None = None,
    ) -> None:
        self._send = send
        self._send_together = send_together

    def ask(self, statement: str, *parameters: Parameter) -> list[Columns]:
        answer = self._answers_ahead.get((statement, parameters))
        return self._send(statement, *parameters) if answer is None else answer

    def ask_ahead(self, questions: Iterable[tuple[str, Sequence[Any]]]) -> None:
        queries = [(statement, tuple(parameters)) for statement, parameters in questions]
        if queries and self._send_together is not None:
            answers = self._send_together(queries)
            self._answers_ahead = {
                **self._answers_ahead,
                **dict(zip(queries, answers, strict=True)),
            }

    def _array(self, values: Sequence[int] | Sequence[str]) -> bytes:
        return array(BYTEA if values and isinstance(values[0], str) else BIGINT, values)

    def value(self, name: str) -> str:
        if name not in ("last_position", "data_version", "now"):
            return super().value(name)
        [(number,)] = self.ask(name)
        return str(number)

    def _rows_until(self, bytes_max: int, *parameters: int) -> list[Columns]:
        return self.ask("rows_until", *parameters, bytes_max)

    def flagged_rows(
        self, key: int, intervals: Sequence[tuple[int, ...]], bytes_max: int | None = None
    ) -> Sequence[Row]:
        if not intervals:
            return []
        statement, parameters = self.flagged_question(key, intervals, bytes_max)
        return self._with_attachments_in(as_rows(self.ask(statement, *parameters)), key, intervals)

    def flagged_question(
        self, key: int, intervals: Sequence[tuple[int, ...]], bytes_max: int | None = None
    ) -> tuple[str, Sequence[Any]]:
        columns = zip(
            *((first, last, *(rest or (None,))) for first, last, *rest in intervals), strict=True
        )
        parameters = (key, *map(bigints, columns))
        if bytes_max is None:
            return "flagged_rows", parameters
        return "flagged_rows_until", (*parameters, bytes_max)

    def _ask_listed(self, digests: Sequence[bytes], at: int, key: int, limit: int) -> list[Columns]:
        return self.ask("listed", array(BYTEA, digests), at, key, len(digests), limit)


class ReadSession:
    """The session of a read transaction. The first query takes a connection from the pool. If the
    connection breaks, ``ConnectionLost`` is raised, because a new connection would show a later
    moment: ``Recorder.query`` then runs the whole work again. ``bind`` selects the store that
    ``ask`` reads.
    """

    def __init__(
        self,
        take_wire: Callable[[], AbstractContextManager[Wire]],
        bind: Bind,
    ) -> None:
        self._take_wire = take_wire
        self._bind = bind
        self._held = contextlib.ExitStack()
        self._wire: Wire | None = None
        self._is_confirmed = False

    def ask(self, statement: str, *parameters: Parameter) -> list[Columns]:
        return self.ask_each([(self._bind, statement, parameters)])[0]

    def ask_together(self, queries: Sequence[Query]) -> list[list[Columns]]:
        return self.ask_each([(self._bind, *query) for query in queries])

    def ask_each(self, questions: Sequence[Question]) -> list[list[Columns]]:
        if self._wire is None:
            return self._begin_with(questions)
        if not self._is_confirmed:
            for _, statement, _ in questions:
                if statement in _FOLLOWER_STATEMENTS:
                    raise StoreRefused(
                        f"the statement {statement} has to be the first statement of a read"
                        " transaction",
                        kind="refused",
                    )
        return _send_queries(self._wire, questions)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.leave("commit")
            self._wire = None
        self._held.close()

    def _begin_with(self, questions: Sequence[Question]) -> list[list[Columns]]:
        """Begin the read transaction with its first queries, and return their answers."""
        with contextlib.ExitStack() as stack:
            wire = stack.enter_context(self._take_wire())
            self._bind(wire)
            if any(statement in _FOLLOWER_STATEMENTS for _, statement, _ in questions):
                result = _wait_for_standby(wire, questions)
                self._is_confirmed = True
            else:
                wire.queue("begin_reading")
                result = _send_queries(wire, questions)
            self._wire, self._held = wire, stack.pop_all()
            return result


def _send_queries(wire: Wire, questions: Sequence[Question]) -> list[list[Columns]]:
    for bind, statement, parameters in questions:
        bind(wire)
        wire.queue(statement, *parameters)
    return list(map(wire.rows, wire.ask()[-len(questions) :]))


def _wait_for_standby(wire: Wire, questions: Sequence[Question]) -> list[list[Columns]]:
    """Wait until a standby has confirmed all visible commits, and send the first queries of a read
    transaction. All statements are sent together, so that a pooler cannot split them between
    servers. A hot standby cannot confirm commits. On a hot standby, each read transaction instead
    checks whether the standby was promoted.
    """
    is_confirmed = wire.is_confirmed
    if not is_confirmed:
        for name in ("begin_confirming", "confirm_durably", "confirm", "commit"):
            wire.queue(name)
    wire.queue("begin_reading")
    for bind, statement, parameters in questions:
        bind(wire)
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
    return list(map(wire.rows, answers[-len(questions) :]))
