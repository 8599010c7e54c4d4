"""Connections to PostgreSQL, and a bounded pool of connections. Statements wait in a queue and are
sent together, in one round trip. The driver's errors become foldlog's errors. The class of a
foldlog error tells the recorder how to react.

This module uses libpq's pipeline mode through psycopg. psycopg's own cursors take ten times the CPU
time.

See docs/internals/decisions/0071-pipeline-instead-of-cursors.md.
"""

from __future__ import annotations

import contextlib
import re
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from struct import Struct
from typing import Final

import psycopg
from psycopg import capabilities
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from foldlog.eventstore.errors import StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.base import Columns
from foldlog.eventstore.recorders.errors import Failure, failure_of
from foldlog.eventstore.recorders.types import utf8

_BINARY: Final = 1
_CANCEL_S: Final = 2.0
PREFIX_END: Final = ":"
_PREPARE: Final = "+"
"""A mark before a name in the list of sent statements: the statement was prepared, and not run."""


class ConnectionLost(StoreUnavailable):
    """The server cannot be reached or is no longer the primary. After ``ConnectionLost``, try again
    on a new connection.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="away")


class IsStandby(ConnectionLost):
    """The server is a standby, and the connection is for writing."""


class TryAgain(StoreUnavailable):
    """The transaction was rolled back for an outside reason, such as a deadlock. After
    ``TryAgain``, run the transaction again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="busy")

    locks: Sequence[int] = ()
    """The advisory locks that the transaction held or waited for."""


_BROKEN: Final = "08000"
_REFUSALS: Final = re.compile(
    r"database \S+ does not exist|role \S+ does not exist|authentication failed|no pg_hba\.conf"
    r" entry|"
    r"permission denied for database|is not permitted to log in|no password supplied|invalid port"
    r" number"
)
"""When PostgreSQL refuses a new connection, it sends a message without a state code. A message that
matches is a permanent error, and is raised immediately. For a message in another language,
``refusals.py`` asks for the code.
"""
_NO_NUMBER: Final = "22P02"
"""The state code for a text that is not a number. Some statements of foldlog contain a check. If
the check fails, the statement converts a text that is not a number, so that PostgreSQL reports this
code.
"""
NEEDS_POOLER: Final = (
    "through a pooler, the URL needs pooler=prepared, or pooler=transaction if it is older than"
    " PgBouncer 1.21 or has no max_prepared_statements"
)
_UNKNOWN_NAME: Final = ("42P05", "26000")
"""The state codes of a prepared statement that exists already, or does not exist: the pooler gave
this connection another server connection.
"""
_NO_RIGHT: Final = "42501"
_NO_TABLE: Final = "42P01"
_CANCELED: Final = "57014"
"""The state code of a statement that ran into statement_timeout, or that somebody canceled."""
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006")
"""The state codes of broken connections, of servers that shut down, start or became standbys, and
of sessions that the server ended.
"""
_LOST_WORKER: Final = ("XX000", "58030")
"""The state codes with which Citus reports that a worker went away."""
_AGAIN: Final = ("40", "55P03", "53300")
"""The state codes of deadlocks, serialization failures, lock timeouts, and too many clients at
present.
"""


def of_result(result: PGresult, server: str, statement: str, *, is_on_citus: bool) -> Failure:
    """Return the store's error for a statement that failed."""
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    if (statement.rpartition(PREFIX_END)[2], state) == ("number", _NO_NUMBER):
        return ConnectionLost(
            f"{server}: the server was promoted or restored since this connection was made"
        )
    return of_driver(error_from_result(result), server, state, is_on_citus=is_on_citus)


def of_driver(
    error: psycopg.Error, server: str, state: str | None = None, *, is_on_citus: bool = False
) -> Failure:
    """Return the store's error for an error of the driver, with what the operator has to do. An
    error without a state code comes from the driver itself, and means a broken connection.
    """
    state = state or _BROKEN
    text = f"{server}: {' '.join(str(error).split())}"
    if state == _NO_RIGHT:
        problem = error.diag.message_primary or str(error)
        text = (
            f"{server}: {problem}; the owner of the store has to grant this role its rights: see"
            " docs/POSTGRESQL.md"
        )
    fault: Failure
    if state == _CANCELED:
        text += (
            "; if this role or database has a statement_timeout, which a pooler leaves in force,"
            " turn it off: ALTER ROLE ... SET statement_timeout = 0"
        )
    if state == _NO_TABLE:
        text += "; a table of the store is missing: restore its schema from a backup"
    is_refused_by_pooler = state in _UNKNOWN_NAME or "unsupported startup parameter" in text
    if is_refused_by_pooler:
        text += f" ({NEEDS_POOLER})"
    is_standby = "hot standby mode" in text
    if is_standby:
        text += (
            "; this server is a standby: to read from it, add mode=ro to the URL, and to write,"
            " name the primary"
        )
    if is_refused_by_pooler:
        fault = StoreRefused(text, kind="refused")
    elif is_standby and state == _BROKEN:
        fault = IsStandby(text)
    elif state == _BROKEN and _is_refusal(text):
        fault = StoreUnavailable(text, kind="denied")
    elif "statement pooling mode" in text:
        text += "; an append needs a transaction: set pool_mode of PgBouncer to transaction"
        fault = StoreRefused(text, kind="refused")
    elif state.startswith(_LOST) or (is_on_citus and state in _LOST_WORKER):
        fault = ConnectionLost(text)
    elif state.startswith(_AGAIN):
        fault = TryAgain(text)
    else:
        fault = failure_of(error)(text)
    fault.__cause__ = error
    return fault


def _is_refusal(text: str) -> bool:
    # If every server refuses, waiting does not help.
    tried = text.split("connection to server at")
    return all(_REFUSALS.search(answer) for answer in tried[1:] or tried)


class Wire:
    """A connection in pipeline mode. Only one thread at a time may use a connection.

    A connection uses the statements of the store to which it was last bound. If ``prepared`` is
    false, each statement is sent as text. Some poolers change the server connection after each
    transaction, and do not support prepared statements. ``reply_timeout_s`` is the number of
    seconds to wait for a silent server.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        *,
        server: str,
        prepared: bool,
        keeps_its_server: bool,
        is_on_citus: bool,
        reply_timeout_s: float,
    ) -> None:
        self._connection = connection  # keeps the libpq connection alive
        self._pg = connection.pgconn
        self._loaders = Transformer(connection)
        self._statements: Mapping[str, bytes] = {}
        self._prefix = ""
        self._server = server
        self._prepared: set[str] | None = set() if prepared else None
        self.keeps_its_server = keeps_its_server
        """Whether the connection always uses the same server connection. Behind a pooler, the
        server connection may change.
        """
        self._is_on_citus = is_on_citus
        self.is_confirmed = False
        """Whether a follower has already waited on this connection for a standby's confirmation, so
        that no follower waits on this connection again: see ``reading``. Always false on a hot
        standby, and on a connection that may change its server.
        """
        self.idle_in_transaction_s = 0.0
        """The time after which the server ends a session that is idle in a transaction, in seconds.
        0 means no limit.
        """
        self._timeout_ms = int(reply_timeout_s * 1_000)
        self._queued: list[tuple[str, bytes, list[bytes | None]]] = []
        self._unread: list[list[str]] = []
        """For each batch with unread results, the names of its statements."""
        self._broken = False
        self.warned = False
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._pg.notice_handler = self._notice
        self._socket = select.poll()
        self._socket.register(self._pg.socket, select.POLLIN)

    # -- talking
    # ----------------------------------------------------------------------------------------------

    def bind(self, statements: Mapping[str, bytes], prefix: str) -> None:
        """Use the statements of a store. On this connection, the names of its prepared statements
        begin with ``prefix``.
        """
        self._statements = statements
        self._prefix = prefix

    @property
    def must_keep_names(self) -> bool:
        """Whether a pooler has to keep the prepared statements of this connection."""
        return self._prepared is not None and not self.keeps_its_server and not self._is_on_citus

    def name_of(self, statement: str) -> str:
        return self._prefix + statement

    @property
    def has_queued(self) -> bool:
        return bool(self._queued)

    def queue(self, statement: str, *parameters: Parameter) -> int:
        """Queue a statement for the next ``ask``. Return the index of its result."""
        self._queued.append(
            (self._prefix + statement, self._statements[statement], list(map(pack, parameters)))
        )
        return len(self._queued) - 1

    def ask(self) -> Sequence[PGresult]:
        """Send the queued statements, and return their results in order, in one round trip.

        Raises the error of the first statement that failed. The statements after a failed statement
        did not run. Raises ``ConnectionLost`` if the connection breaks, even if the server has run
        the statements.
        """
        self.warned = False
        # The connection counts as broken until the round trip has ended normally, because Ctrl-C
        # may come at any time.
        broken = self._broken
        self._broken = True
        if broken:
            raise ConnectionLost(f"{self._server}: the connection broke earlier")
        try:
            self._sync()
            batch = self._unread[0]
            results = self._results()
            while self._unread:
                batch = self._unread[0]
                results = self._results()
        except psycopg.Error as error:
            raise of_driver(error, self._server) from error
        for name, result in zip(batch, results, strict=True):
            if result.status == ExecStatus.FATAL_ERROR:
                fault = of_result(result, self._server, name, is_on_citus=self._is_on_citus)
                self._broken = isinstance(fault, ConnectionLost)
                raise fault
        self._broken = False
        return [result for name, result in zip(batch, results, strict=True) if name[0] != _PREPARE]

    def rows(self, result: PGresult) -> list[Columns]:
        self._loaders.set_pgresult(result)
        return self._loaders.load_rows(0, result.ntuples, tuple)

    def leave(self, statement: str) -> None:
        """Send a statement in place of the queued statements, without waiting for its result. The
        next round trip drops the result.
        """
        self._queued = [(self._prefix + statement, self._statements[statement], [])]
        try:
            self._sync()
        except psycopg.Error:
            # no caller waits for this answer, so the next call raises the error
            self._broken = True

    def abandon(self) -> None:
        """Drop the queued statements, and roll back a transaction that is still open."""
        self._queued = []
        if (
            not self._broken
            and not self._unread
            and self._pg.transaction_status != TransactionStatus.IDLE
        ):
            self.leave("rollback")

    # -- its state
    # ----------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether the connection still works."""
        with contextlib.suppress(psycopg.Error):
            while not self._broken and self._socket.poll(0):
                self._pg.consume_input()
        return not self._broken and self._pg.status == ConnStatus.OK

    def cancel(self) -> None:
        """Cancel the running statement, if the installed libpq can do it safely."""
        if capabilities.has_cancel_safe():
            with contextlib.suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=_CANCEL_S)

    def close(self) -> None:
        self._broken = True
        self._connection.close()

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Send the queued statements as one batch."""
        statement_names: list[str] = []
        self._unread.append(statement_names)
        queued = self._queued
        self._queued = []
        for name, statement, values in queued:
            self._send(name, statement, values, statement_names)
        self._pg.pipeline_sync()
        self._wait(lambda: self._pg.flush() != 0, select.POLLIN | select.POLLOUT)

    def _send(
        self, name: str, statement: bytes, values: list[bytes | None], sent: list[str]
    ) -> None:
        """Send a statement. The first time, prepare it, unless this connection prepares nothing."""
        if self._prepared is not None and name not in self._prepared:
            sent.append(_PREPARE + name)
            self._pg.send_prepare(name.encode(), statement)
            self._prepared.add(name)
        sent.append(name)
        formats = [_BINARY] * len(values)
        if self._prepared is None:
            self._pg.send_query_params(
                statement, values, param_formats=formats, result_format=_BINARY
            )
        else:
            self._pg.send_query_prepared(name.encode(), values, formats, _BINARY)

    def _wait(self, unfinished: Callable[[], bool | int], events: int) -> None:
        """Wait for the socket as long as ``unfinished`` returns true. Raises ``OperationalError``
        if the server is silent for too long.
        """
        while unfinished():
            if events != select.POLLIN:
                self._socket.modify(self._pg.socket, events)
            ready = self._socket.poll(self._timeout_ms)
            if events != select.POLLIN:
                self._socket.modify(self._pg.socket, select.POLLIN)
            if not ready:
                raise psycopg.OperationalError(f"no answer for {self._timeout_ms / 1_000:g} s")
            self._pg.consume_input()

    def _results(self) -> list[PGresult]:
        """Return the results of the oldest batch that was sent."""
        # A statement that was skipped after a failure has a result too.
        batch = self._unread[0]
        results = list[PGresult]()
        while True:
            self._wait(self._pg.is_busy, select.POLLIN)
            result = self._pg.get_result()
            if self._pg.status != ConnStatus.OK:
                raise psycopg.OperationalError("the server closed the connection")
            if result is None:
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            results.append(result)
        self._unread.pop(0)
        for name, result in zip(batch, results, strict=True):
            if (
                name[0] == _PREPARE
                and result.status != ExecStatus.COMMAND_OK
                and self._prepared is not None
            ):
                self._prepared.discard(name[1:])
        return results

    def _notice(self, notice: PGresult) -> None:
        severity = notice.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)
        self.warned = self.warned or severity == b"WARNING"


class Pool:
    """A pool of at most ``size`` connections. A connection is made when it is needed, and the most
    recently used connection is used first. Waiting threads get connections in the order in which
    they came.

    A signal handler may raise an exception between any two steps of the pool. Each step changes
    only one list in a single operation, so an exception cannot lose a place in the pool. If a step
    is interrupted, its connection is closed.
    """

    def __init__(
        self, connect: Callable[[], Wire], size: int, *, server: str, wait_s: float
    ) -> None:
        self._connect = connect
        self._size = size
        self._server = server
        self._wait_s = wait_s
        self._mutex = threading.Lock()
        self._idle: list[Wire] = []
        """Connections that are not in use. Some of these connections may already be closed."""
        self._places: list[_Place] = []
        """The first ``size`` threads in this list may have a connection, and the other threads
        wait.
        """
        self.closed = False

    @contextlib.contextmanager
    def wire(self) -> Iterator[Wire]:
        """Lend a connection for the block. Raises ``StoreUnavailable`` if all connections are in
        use for too long.
        """
        place = _Place()
        try:
            self._take(place)
            if place.wire is None or not place.wire.usable:
                place.wire = self._connect()
            yield place.wire
        finally:
            try:
                self._give_back(place)
            except BaseException:
                if place.wire is not None:
                    place.wire.close()
                self._end(place)
                raise

    def add(self, wire: Wire) -> None:
        with self._mutex:
            self._idle.append(wire)

    def forget_idle(self) -> None:
        with self._mutex:
            idle = self._idle
            self._idle = []
        for wire in idle:
            wire.close()

    def close(self) -> None:
        # A connection in use is closed when it is returned.
        self.closed = True
        self.forget_idle()

    def check_open(self) -> None:
        if self.closed:
            raise StoreRefused(f"{self._server} is closed; open the store again", kind="closed")

    def _take(self, place: _Place) -> None:
        """Wait for a turn, and take an idle connection if there is one."""
        self.check_open()
        began = time.monotonic()
        self._places.append(place)
        if place not in self._places[: self._size]:
            with contextlib.suppress(Empty):
                place.turn.get(timeout=self._wait_s)
            if place not in self._places[: self._size]:
                raise StoreUnavailable(
                    f"{self._server}: all {self._size} connections were in use for"
                    f" {time.monotonic() - began:.0f} s; raise connections_max in the URL, or write"
                    " from fewer threads",
                    kind="busy",
                )
        with self._mutex:
            if self._idle:
                place.wire = self._idle[-1]
                self._idle.pop()

    def _give_back(self, place: _Place) -> None:
        """Take the connection of a place back. Close it if it cannot be used any more."""
        wire = place.wire
        if wire is not None:
            wire.abandon()
            if not wire.usable or wire in self._idle:
                wire.close()
                self.forget_idle()  # they may be broken too
            else:
                with self._mutex:
                    self._idle.append(wire)
                if self.closed:
                    self.forget_idle()
        self._end(place)

    def _end(self, place: _Place) -> None:
        if place in self._places:
            self._places.remove(place)
        for waiting in self._places[: self._size]:
            waiting.turn.put(None)


class _Place:
    """A thread that has or wants a connection. ``turn`` wakes the thread."""

    def __init__(self) -> None:
        self.turn: SimpleQueue[None] = SimpleQueue()
        self.wire: Wire | None = None


# -- parameters, in PostgreSQL's binary form
# ---------------------------------------------------------------------------

Parameter = int | str | bytes | None
"""A parameter: bigint, text as bytes, boolean, bytea, or a value in binary form."""

BIGINT: Final = 20
BOOLEAN: Final = 16
BYTEA: Final = 17
OF_ROW: Final = (BIGINT, BYTEA, BOOLEAN, BOOLEAN, BYTEA, BYTEA, BIGINT)
"""The types of the columns of a row. The last column is the position."""

bigint: Final = Struct("!q").pack

_array_header: Final = Struct("!iiIii").pack
_length: Final = Struct("!i").pack
_NULL: Final = _length(-1)


def pack(value: Parameter) -> bytes | None:
    """Return a parameter in PostgreSQL's binary form. None stands for NULL."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, bool):
        return b"\1" if value else b"\0"
    return bigint(value)


def array(kind: int, values: Sequence[Parameter]) -> bytes:
    """Return an array of values whose type has the OID ``kind``."""
    # One dimension, which begins at index 1. The array may contain NULL.
    items = [_array_header(1, 1, kind, len(values), 1)]
    for value in map(pack, values):
        items += (_NULL,) if value is None else (_length(len(value)), value)
    return b"".join(items)


def bigints(numbers: Iterable[int | None]) -> bytes:
    return array(BIGINT, list(numbers))
