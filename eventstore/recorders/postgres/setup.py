"""Before a connection is used: is the server set up so that what is promised can be kept, and is the schema ours?"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from eventstore.recorders.errors import DatabaseError, OperationalError
from eventstore.recorders.identity import new_store_uuid
from eventstore.recorders.postgres.faults import ConnectionLost
from eventstore.recorders.statements import migrations

__all__ = ["Greeting", "greet", "prepare"]

_SERVER_VERSION_MIN: Final = 14
_LOCK_WAIT: Final = "2s"
"""How long a migration waits for a table. All who come later wait behind it, so it gives up early and is repeated."""


def prepare(connection: psycopg.Connection[Any], schema: str, *, create: bool, writable: bool) -> None:
    """Make the store, or bring it to the newest schema, if it is not there; one process does it, others wait.

    Raises ``DatabaseError`` where the schema is no store, is of a newer version, or may not be made;
    ``LockNotAvailable`` (psycopg's) where a table that has to change is in use: try again.
    """
    newest = max(migrations("postgresql"))
    found = _schema_version(connection, schema)
    if found < newest and writable and (found > 0 or create):
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_WAIT,))
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema),))
                _migrate(connection, schema, _schema_version(connection, schema))
            found = newest
        except psycopg.errors.InsufficientPrivilege:
            if found == 0:
                raise
    if found == 0:
        raise DatabaseError(f"there is no store in schema {schema!r} of this database; open it for writing to make one")
    if found < newest:
        raise DatabaseError(
            f"the store in schema {schema!r} has schema version {found}, this version of foldlog needs {newest}; "
            f"{_as_owner(connection, schema)}"
        )


class Greeting(NamedTuple):
    """What a new connection says of its server."""

    idle_in_transaction_s: float
    """A session that is idle in a transaction for longer is ended; 0 for no limit."""


def greet(connection: psycopg.Connection[Any], schema: str, *, writable: bool, durable: bool) -> Greeting:
    """Check the server of a new connection, and begin an epoch where it was restored or promoted.

    Raises ``OperationalError`` where a promise could not be kept on it, ``ConnectionLost`` where the connection is for
    writing and the server is a standby, ``DatabaseError`` where this role may not begin an epoch.
    """
    server, is_standby, synchronous_commit, fsync, idle_s, is_elsewhere, is_later = _ask(
        connection,
        schema,
        """
        SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),
               current_setting('synchronous_commit'), current_setting('fsync'),
               extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)::float8,
               e.cluster != (SELECT system_identifier FROM pg_control_system())
                   OR greatest((SELECT max(position) >> 20 FROM {schema}.events),
                               (SELECT max(first_position) >> 20 FROM {schema}.publications))
                       >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + e.epoch,
               e.timeline IS DISTINCT FROM coalesce({schema}.timeline(), e.timeline)
        FROM {schema}.epoch e
        """,
    )
    if server < _SERVER_VERSION_MIN:
        raise OperationalError(f"this is PostgreSQL {server}; foldlog needs {_SERVER_VERSION_MIN} or later")
    if writable and is_standby:
        raise ConnectionLost("this server is a standby; the primary is needed to write")
    if writable and durable and (synchronous_commit == "off" or fsync == "off"):
        setting = "synchronous_commit" if synchronous_commit == "off" else "fsync"
        raise OperationalError(
            f"{setting} is off on this server, for this role or database, so that what was acknowledged could be lost; "
            f"set {setting} to on, or open the store with durability=relaxed"
        )
    if is_elsewhere and not writable:
        raise OperationalError(
            "this store was restored on another server, and its followers would miss events until it is opened "
            "for writing once"
        )
    if writable and (is_elsewhere or is_later):
        _begin_epoch(connection, schema)
    return Greeting(idle_s)


def _ask(connection: psycopg.Connection[Any], schema: str, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(_in(schema, query)).fetchone()
    if row is None:
        raise DatabaseError(f"the store in schema {schema!r} is damaged: it has no epoch; restore it from a backup")
    return row


def _begin_epoch(connection: psycopg.Connection[Any], schema: str) -> None:
    """Go on above all positions that were ever given: this server may give numbers that its predecessor gave.

    No other process writes to the store: each connection for writing comes by here first. See ``0003_epochs.sql``.
    """
    try:
        connection.execute(_in(schema, "SELECT {schema}.begin_epoch()"))
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction) as error:
        raise DatabaseError(
            f"the store in schema {schema!r} was restored from a backup, and this role may not begin its new epoch "
            f"({_one_line(error)}); {_as_owner(connection, schema)}, then start this again"
        ) from error


def _as_owner(connection: psycopg.Connection[Any], schema: str) -> str:
    """Say what the owner of the store has to run."""
    row = connection.execute("SELECT tableowner::text FROM pg_tables WHERE schemaname = %s", (schema,)).fetchone()
    owner = "OWNER" if row is None else row[0]
    option = "" if schema == "foldlog" else f"&schema={schema}"
    database = connection.info.dbname
    return (
        f"as {owner!r}, the owner of its tables, run: foldlog list --db 'postgresql://{owner}@{connection.info.host}:"
        f"{connection.info.port}/{database}?mode=rwc{option}'"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _schema_version(connection: psycopg.Connection[Any], schema: str) -> int:
    """0 where there is no store. Raises ``DatabaseError`` where something else is, or a newer store."""
    tables = connection.execute(
        "SELECT coalesce(array_agg(tablename::text), '{}') FROM pg_tables WHERE schemaname = %s", (schema,)
    ).fetchone()
    assert tables is not None  # an aggregate has one row
    if not tables[0]:
        return 0
    if not {"store", "epoch", "conversations", "events"} <= set(tables[0]):
        raise DatabaseError(f"schema {schema!r} has tables, but is no foldlog store; choose another one (?schema=)")
    facts = dict(connection.execute(_in(schema, "SELECT name, value FROM {schema}.store")).fetchall())
    newest, version, oldest = max(migrations("postgresql")), int(facts["schema"]), int(facts["readable_by"])
    if oldest > newest:
        raise DatabaseError(
            f"the store in schema {schema!r} has schema version {version}, this version of foldlog knows versions "
            f"up to {newest}; upgrade foldlog to open it"
        )
    return min(version, newest)


def _migrate(connection: psycopg.Connection[Any], schema: str, found: int) -> None:
    if found == 0:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    for number, script in migrations("postgresql").items():
        if number <= found:
            continue
        connection.execute(_in(schema, script))
        if number == 1:
            connection.execute(
                _in(schema, "INSERT INTO {schema}.store VALUES ('uuid', %s), ('schema', '0'), ('readable_by', '1')"),
                (new_store_uuid(),),
            )
            connection.execute(
                _in(schema, "INSERT INTO {schema}.epoch SELECT 0, system_identifier FROM pg_control_system()")
            )
        connection.execute(_in(schema, "UPDATE {schema}.store SET value = %s WHERE name = 'schema'"), (str(number),))


def _in(schema: str, query: str) -> bytes:
    return query.replace("{schema}", sql.Identifier(schema).as_string(None)).encode()


def _lock_number(schema: str) -> int:
    return int.from_bytes(blake2b(schema.encode(), digest_size=8, person=b"foldlog").digest(), signed=True)
