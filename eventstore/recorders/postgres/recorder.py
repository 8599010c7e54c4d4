"""The recorder for PostgreSQL: connections, patience with an unreachable server, and commits
without an answer.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident, main_thread
from typing import Any, Final, TypeVar

import psycopg
from psycopg import conninfo

from foldlog._base.json_types import JsonObject
from foldlog._base.telemetry import tell, waits
from foldlog.eventstore.errors import InvalidOption, StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.base import (
    PATIENCE_S,
    Recorder,
    Transaction,
    makes_missing_events,
)
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.postgres import deleted_rows, setup, status
from foldlog.eventstore.recorders.postgres.assumptions import Assumptions
from foldlog.eventstore.recorders.postgres.open_transaction import Call, OpenTransaction
from foldlog.eventstore.recorders.postgres.positions import ONLY, Part
from foldlog.eventstore.recorders.postgres.reading import PostgresReader, ReadSession
from foldlog.eventstore.recorders.postgres.refusals import (
    TOO_MANY,
    are_permanent,
    states_of_refusals,
)
from foldlog.eventstore.recorders.postgres.shared_transactions import Sharing
from foldlog.eventstore.recorders.postgres.wire import (
    PREFIX_END,
    ConnectionLost,
    IsStandby,
    Pool,
    TryAgain,
    Wire,
    of_driver,
)
from foldlog.eventstore.recorders.postgres.writing import PostgresTransaction
from foldlog.eventstore.recorders.statements import statements
from foldlog.eventstore.recorders.types import as_text
from foldlog.eventstore.recorders.writers import INSIDE, Writer, check_not_writing

T = TypeVar("T")

CONNECTIONS_MAX: Final = 32
"""The default size of the pool of connections."""
_REPLY_SHARE: Final = 1 / 2
_LOCK_SHARE: Final = 1 / 3
"""A call waits for one lock for at most ``_LOCK_SHARE`` of its patience, and for one answer for at
most ``_REPLY_SHARE``.
"""
_SCHEMA_BYTES_MAX: Final = 63
_PAUSE_FIRST_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0
"""The pauses between attempts to reach the server grow from the first to the second number."""
_STANDBY_S: Final = 3.0
"""The time for which ``open`` waits for the promotion of a standby, if the URL names no other
server.
"""
_CONNECTION_DEFAULTS: Final = {
    "application_name": "foldlog",
    "connect_timeout": "5",
    # A machine that vanishes closes no connection. Without these settings, TCP would wait a quarter
    # of an hour for a vanished machine.
    "tcp_user_timeout": "10000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
_SETTINGS: Final = (
    "-c idle_in_transaction_session_timeout=5s -c statement_timeout=0"
    " -c plan_cache_mode=force_generic_plan"
)
"""The settings of every session, unless a pooler is between. A client that vanished may hold the
lock of a conversation, and the server cannot see that the client is gone. A living client is never
idle for long, so the server ends sessions that are idle for too long. A VACUUM may take as long as
it needs; all other statements have the recorder's own limits. The server plans a statement once for
each connection, because planning it at each call would take longer than running most statements.

Behind a pooler, a connection can set only its encoding. So statements rely on no other setting:
every transaction names its isolation and whether it writes, tables are named with their schema,
and values are sent and read in binary form, or as text that does not depend on ``DateStyle``,
``TimeZone``, ``bytea_output`` or ``extra_float_digits``.
"""
ON_CITUS: Final = {
    "first_place": "0::bigint",
    "size_of_table": "citus_total_relation_size(c.oid)",
}
"""The parts of statements that are different on Citus."""


def pauses(total_s: float) -> Iterator[bool]:
    """Wait repeatedly for an unreachable server, for at most ``total_s`` seconds in total. Yield
    True after each wait.
    """
    ends = time.monotonic() + total_s
    pause_s = _PAUSE_FIRST_S
    while (left_s := ends - time.monotonic()) > 0:
        time.sleep(min(pause_s * random.uniform(0.5, 1.5), left_s))
        yield True
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


class PostgresRecorder(Recorder):
    """A recorder for one schema of a PostgreSQL database. Each schema of a database can be a store.

    ``dsn`` is anything that libpq accepts. ``options`` are the options of a URL from ``parse_url``.
    If ``dsn`` names several hosts, the primary is used. If the connection to the primary breaks,
    the recorder searches the hosts for the primary again. While the primary is unreachable, a call
    waits up to ``patience_s``, then raises ``StoreUnavailable``. If ``durable`` is false, commits
    do not wait for the disk.

    Raises ``StoreUnavailable`` if the server cannot be reached, or if its settings could lose
    acknowledged events. Raises ``StoreRefused`` if the schema is not a foldlog store, or if a
    newer version made it. Raises ``InvalidOption`` if an option is not valid.
    """

    on_server = True

    def __init__(
        self,
        dsn: str,
        options: Mapping[str, str],
        *,
        durable: bool = True,
        part: Part | None = None,
        pool: Pool | None = None,
    ) -> None:
        """If ``pool`` is passed, this recorder neither checks servers nor makes a schema."""
        mode = options.get("mode", "rwc")
        self.writable = mode != "ro"
        self.schema = schema = _checked_schema(options.get("schema", "foldlog"))
        if part is None and "part" in options:
            part = Part.read(options["part"])
        self.part = part
        self._prefix = "" if part is None else f"{part.number}{PREFIX_END}"
        self._durable = durable
        pooler = options.get("pooler", "none")
        self._prepared = pooler != "transaction"
        self._keeps_its_server = pooler == "none"
        self._is_on_citus = False
        self._connections_max = int(options.get("connections_max", CONNECTIONS_MAX))
        self._patience_s = float(options.get("patience_s", PATIENCE_S))
        self._parameters = _parameters(dsn, writable=self.writable)
        if self._keeps_its_server:
            settings = f"{_SETTINGS} -c lock_timeout={int(self._patience_s * _LOCK_SHARE * 1_000)}"
            self._parameters["options"] = (
                f"{settings} {self._parameters.get('options', '')}".strip()
            )
        self._server = _name(self._parameters, schema)
        self._make_schema = partial(setup.prepare, writable=self.writable, durable=durable)
        self._statements = self._statements_here()
        self._assumptions = Assumptions()
        if pool is not None:
            self._pool = pool
            return
        self._open_pool()
        self._sharing = Sharing(self._run)
        _recorders.add(self)
        self._prepare(create=mode == "rwc")

    # -- the interface
    # ----------------------------------------------------------------------------------------------

    @property
    def on_citus(self) -> bool:
        return self._is_on_citus

    @makes_missing_events
    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        self.check_writable()
        writer = self._writer()
        may_share = any_thread and get_ident() != main_thread().ident
        conversation: str | None = None
        if may_share and durable:
            conversation = getattr(work, "conversation", None)
        call = Call(work)
        try:
            try:
                INSIDE.add(writer)
                if conversation is not None:
                    return self._sharing.run(conversation, work)
                return self._transact(call, at_once, durable)
            finally:
                INSIDE.discard(writer)
        except BaseException as error:
            call.note_on(error)
            raise

    def check_writable(self) -> None:
        """Raise ``StoreRefused`` if the URL has ``mode=ro``."""
        if not self.writable:
            raise StoreRefused(
                f"{self._server} is open for reading only; to write, leave mode=ro out of its URL",
                kind="read_only",
            )

    def _run(self, work: Callable[[Transaction], T]) -> T:
        call = Call(work)
        try:
            return self._transact(call)
        except BaseException as error:
            call.note_on(error)
            raise

    @waits
    def _transact(self, call: Call[T], at_once: bool = False, durable: bool = True) -> T:
        """Run the work in a transaction, and again if that is safe after a failure."""

        def attempt() -> T:
            with self._pool.wire() as wire:
                return call.attempt(partial(begin, wire))

        def begin(wire: Wire, may_assume: bool) -> OpenTransaction:
            transaction = self._begin(wire, at_once, may_assume)
            if not durable:
                transaction.wait_for_no_standby()
            return transaction

        while True:
            try:
                if at_once:
                    return attempt()
                return self._retry(attempt, lambda: call.outcome)
            except StoreUnavailable as error:
                if error.kind != "taken" or not call.may_have_met_itself():
                    raise

    def session(self) -> AbstractContextManager[ReadSession]:
        """Begin a read transaction. Its first query takes a connection."""
        self._pool.check_open()
        return contextlib.closing(ReadSession(self._pool.wire, self.bind))

    @contextlib.contextmanager
    def read(self) -> Iterator[PostgresReader]:
        with self.session() as session:
            yield PostgresReader(session.ask, session.ask_together)

    @makes_missing_events
    def query(self, work: Callable[[PostgresReader], T]) -> T:
        def attempt() -> T:
            with self.read() as reader:
                return work(reader)

        return self._retry(attempt)

    def succeed(self, former: Recorder) -> None:
        is_same_part = isinstance(former, PostgresRecorder) and former.part == self.part
        if not is_same_part or (self.part or ONLY) == ONLY:
            return
        homes = former.query(lambda reader: reader.ask("facts_of", "home "))
        last = int(former.value("last_position"))

        def take_over(transaction: Transaction) -> None:
            transaction.write("begin_after", last)
            for name, value in homes:
                transaction.set_value(as_text(name), as_text(value))

        self.transact(take_over)

    def compact(self, patience_s: float) -> bool:
        """Vacuum the tables to remove deleted rows. Copies of deleted rows stay in the write-ahead
        log until it is recycled, and in archives and backups until the archives and backups are
        deleted. Encrypted copies cannot be read after their key is erased.
        """
        self.check_writable()

        def remove(connection: psycopg.Connection[Any]) -> str | None:
            tables = deleted_rows.Tables(
                connection, self._statements, is_on_citus=self._is_on_citus
            )
            return deleted_rows.remove(tables, pauses(patience_s), patience_s)

        waits_for = self._beside(remove)
        if waits_for is None:
            return False  # this role may not vacuum the tables
        if waits_for:
            raise StoreUnavailable(f"{self._server}: {waits_for}", kind="read")
        return True

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        from foldlog.eventstore.recorders.postgres.checking import findings  # only verify needs it

        def checked() -> Iterator[str]:
            if is_stopped():
                return
            # A server with data checksums also reports each page with a wrong checksum.
            yield from self._beside(lambda connection: list(findings(connection, self._statements)))

        return checked()

    def unchecked(self) -> Iterator[str]:
        from foldlog.eventstore.recorders.postgres.checking import unchecked  # as above

        yield from self._beside(lambda connection: list(unchecked(connection, self._statements)))

    def status(self) -> status.Status:
        return self._beside(lambda connection: status.status(connection, self._statements))

    def close(self) -> None:
        # A connection in use is closed when its transaction ends.
        self._writer()
        self._pool.close()

    def _writer(self) -> Writer:
        return check_not_writing(
            f"{self._server}, port {self._parameters.get('port', '')}", self._server
        )

    # -- connections
    # ----------------------------------------------------------------------------------------------

    def _open_pool(self) -> None:
        self._pool = Pool(
            self._connect, self._connections_max, server=self._server, wait_s=self._patience_s
        )

    def _after_fork_in_child(self) -> None:
        # The parent's connections must stay open, because closing them here would end the parent's
        # sessions. A reference protects them from the garbage collector.
        self._inherited = self._pool
        self._sharing = Sharing(self._run)
        self._open_pool()
        if self._inherited.closed:
            self._pool.close()

    @contextlib.contextmanager
    def _plain_connection(self) -> Iterator[psycopg.Connection[Any]]:
        connection = self._new_connection()
        with self._translate_errors(), connection:
            yield connection

    def _new_connection(self) -> psycopg.Connection[Any]:
        """Connect to the server. Raises the error of ``_refusal_of``."""
        try:
            connection = psycopg.connect(
                **self._parameters, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise self._refusal_of(error) from error
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = not self.writable
        return connection

    def _refusal_of(self, error: psycopg.Error) -> Exception:
        """Return the error for a connection that could not be made. If waiting would not help, it
        has the kind ``denied``.
        """
        failure = of_driver(error, self._server, error.sqlstate, is_on_citus=self._is_on_citus)
        if not isinstance(failure, ConnectionLost):
            return failure
        # The text is in the language of the server, so only its code says whether waiting helps.
        states = states_of_refusals(self._parameters)
        if are_permanent(states):
            denied = StoreUnavailable(f"{failure} ({', '.join(states)})", kind="denied")
            denied.__cause__ = error
            return denied
        if TOO_MANY in states:
            # The role may have so few connections that this one would be the first too many.
            self._pool.forget_idle()
        return failure

    def _beside(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Run ``work`` with a new connection of psycopg, for rare tasks. A connection of the pool
        would serve the next caller, who would get a cancellation that comes late. If the connection
        breaks, ``work`` runs again on another one. A second run must have no further effect.
        """

        def attempt() -> T:
            self._pool.check_open()
            with self._plain_connection() as connection:
                return work(connection)

        return self._retry(attempt)

    def _retry(
        self, attempt: Callable[[], T], outcome: Callable[[], str] = lambda: "nothing was read"
    ) -> T:
        """Return the result of ``attempt``, which runs again after a lost connection or a conflict,
        as long as the patience lasts. ``outcome`` says in the error what happened to the work.
        """
        waiting = pauses(self._patience_s)
        while True:
            try:
                return attempt()
            except (ConnectionLost, TryAgain) as error:
                self._recover(error, waiting, outcome())

    def _statements_here(self) -> dict[str, bytes]:
        """Return the statements for this schema and this kind of server. On Citus and behind a
        pooler, a connection may lead to another server later, so each transaction reads the
        identity of its server and compares it with the epoch.
        """
        changed = {"{here}": "cluster", "{timeline}": "timeline"}
        if self._is_on_citus or not self._keeps_its_server:
            changed = {"{here}": "{schema}.here()", "{timeline}": "{schema}.timeline()"}
        changed["{store}"] = str((self.part or ONLY).number)
        named = statements("postgresql", ON_CITUS if self._is_on_citus else {})
        for place, words in changed.items():
            named = {name: statement.replace(place, words) for name, statement in named.items()}
        return {name: setup.in_schema(self.schema, statement) for name, statement in named.items()}

    def bind(self, wire: Wire) -> None:
        wire.bind(self._statements, self._prefix)

    def _stores(self) -> Sequence[PostgresRecorder]:
        """Return the recorders of all stores that the connections of this recorder serve."""
        return [self]

    def _connect(self) -> Wire:
        return self._greet(self._new_connection())

    def _greet(self, connection: psycopg.Connection[Any]) -> Wire:
        """Check the server of a new connection. The settings of a connection depend on whether the
        server belongs to Citus. If they do not fit the server, return another connection.
        """
        with self._translate_errors():
            try:
                wire = Wire(
                    connection,
                    server=self._server,
                    prepared=self._prepared,
                    keeps_its_server=self._keeps_its_server,
                    is_on_citus=self._is_on_citus,
                    reply_timeout_s=self._patience_s * _REPLY_SHARE,
                )
                is_on_citus = setup.greet(
                    wire,
                    connection.info,
                    self._stores(),
                    writable=self.writable,
                    durable=self._durable,
                )
            except BaseException:
                connection.close()
                raise
        if is_on_citus == self._is_on_citus:
            return wire
        wire.close()
        # On Citus, each call of a statement is planned for its parameters, because the parameters
        # determine which server has the rows.
        if self._keeps_its_server:
            self._parameters["options"] += " -c plan_cache_mode=auto"
        self._keeps_its_server = False  # a connection to Citus leads to several servers
        for store in {self, *self._stores()}:
            store._is_on_citus = is_on_citus
            store._statements = store._statements_here()
        return self._connect()

    def _prepare(self, *, create: bool) -> None:
        """Open the store: make or migrate its schema, and put the first connection into the pool.
        Wait for an unreachable server.
        """
        waiting = pauses(self._patience_s)
        is_reported = False
        gives_up_at = time.monotonic() + min(_STANDBY_S, self._patience_s)
        while True:
            try:
                connection = self._new_connection()
                try:
                    with self._translate_errors():
                        if not self._keeps_its_server:
                            # A pooler that refuses transactions says why here, and not to a
                            # pipeline.
                            with connection.transaction():
                                pass
                        self._prepare_schema(connection, create=create)
                except BaseException:
                    connection.close()
                    raise
                self._pool.add(self._greet(connection))
                return
            except (ConnectionLost, TryAgain) as error:
                # A standby that is the only server of the URL is probably a mistake in the URL, and
                # not a failover.
                is_mistake = isinstance(error, IsStandby) and not _has_several_hosts(
                    self._parameters
                )
                if is_mistake and time.monotonic() > gives_up_at:
                    raise StoreUnavailable(str(error), kind=error.kind) from error
                # A user who mistyped the address should see the problem immediately.
                if not is_reported:
                    tell("foldlog.store.away", problem=str(error), seconds=self._patience_s)
                    is_reported = True
                self._recover(
                    error,
                    waiting,
                    "the store was not opened; to wait less, set patience_s in the URL",
                )

    def _prepare_schema(self, connection: psycopg.Connection[Any], *, create: bool) -> None:
        self.part = self._make_schema(connection, self.schema, self.part, create=create)

    def _begin(self, wire: Wire, at_once: bool, may_assume: bool) -> OpenTransaction:
        wire.abandon()
        return self.begin_on(wire, at_once, may_assume)

    def begin_on(self, wire: Wire, at_once: bool, may_assume: bool) -> PostgresTransaction:
        """Return a write transaction of this store on a connection."""
        self.bind(wire)
        return PostgresTransaction(
            wire,
            self.schema,
            self.part or ONLY,
            durable=self._durable,
            at_once=at_once,
            reserve=self._reserve,
            assumptions=self._assumptions,
            may_assume=may_assume and not self._is_on_citus,
            is_on_citus=self._is_on_citus,
        )

    def _reserve(self) -> int:
        """Return the number of a transaction that writes nothing, for ``Positions.take_ranges``."""
        with contextlib.closing(self._connect()) as wire:
            self.bind(wire)
            wire.queue("number")
            [(number,)] = wire.rows(wire.ask()[0])
            return int(number)

    def _recover(
        self, error: ConnectionLost | TryAgain, waiting: Iterator[bool], outcome: str
    ) -> None:
        """Wait before the next attempt, or raise ``StoreUnavailable`` if the patience is over."""
        if next(waiting, False):
            return
        if isinstance(error, TryAgain) and error.locks:
            holder = self._holder(error.locks)
        else:
            holder = ""
        problem = f"{error}; tried for {self._patience_s:g} s, {outcome}{holder}"
        raise StoreUnavailable(problem, kind=error.kind) from error

    def _holder(self, locks: Sequence[int]) -> str:
        try:
            with self._plain_connection() as connection:
                return status.holder(connection, self._statements, locks)
        except FAILURES:
            return ""

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise of_driver(
                error, self._server, error.sqlstate, is_on_citus=self._is_on_citus
            ) from error


_recorders: weakref.WeakSet[PostgresRecorder] = weakref.WeakSet()
os.register_at_fork(
    after_in_child=lambda: [*map(PostgresRecorder._after_fork_in_child, _recorders)]
)


def _parameters(dsn: str, *, writable: bool) -> JsonObject:
    """Return the parameters of a connection to the server that a URL names."""
    try:
        parameters = conninfo.conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeEncodeError) as error:
        raise InvalidOption(f"the URL cannot be read: {' '.join(str(error).split())}") from error
    target = "any"
    if writable:
        # Of several servers, a failover may mark the former primary by making it read-only. If
        # there is only one server, its transactions are read-only by default for another reason.
        target = "read-write" if _has_several_hosts(parameters) else "primary"
    return (
        _CONNECTION_DEFAULTS
        | {"target_session_attrs": target}
        | parameters
        | {"client_encoding": "UTF8"}
    )


def _checked_schema(schema: str) -> str:
    """Return the name of a schema. Raises ``InvalidOption`` for a name that PostgreSQL would cut,
    so that two names would be one store, and for a name that statements cannot contain.
    """
    size = len(schema.encode(errors="replace"))
    if not 0 < size <= _SCHEMA_BYTES_MAX:
        raise InvalidOption(
            f"the URL sets schema to {schema!r}, which has {size} bytes; a name of PostgreSQL has 1"
            f" to {_SCHEMA_BYTES_MAX} bytes (with ?stores=, three of them are the store's number)"
        )
    if not schema.isprintable() or "%" in schema:
        raise InvalidOption(
            f"the URL sets schema to {schema!r}; use a name of printable characters other than %"
        )
    return schema


def _has_several_hosts(parameters: Mapping[str, Any]) -> bool:
    return "," in str(parameters.get("host") or parameters.get("hostaddr") or "")


def _name(parameters: JsonObject, schema: str) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or "the local server"
    return (
        f"PostgreSQL on {host}, database {parameters.get('dbname', 'of the user')}, schema {schema}"
    )
