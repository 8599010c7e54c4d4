"""Before a connection is used: is the server set up so that what is promised can be kept, and is the schema ours?"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import psycopg
from psycopg import sql

from eventstore.recorders.errors import DatabaseError, OperationalError
from eventstore.recorders.identity import new_store_uuid
from eventstore.recorders.statements import migrations

__all__ = ["greet", "prepare"]

_SERVER_VERSION_MIN: Final = 14
_LOCK_WAIT: Final = "2s"
"""How long a migration waits for a table. All who come later wait behind it, so it gives up early and is repeated."""
_EPOCH_MARGIN: Final = 1 << 28
"""Numbers left out when a store moves to another server: those that the old one may have given after the dump."""


def prepare(connection: psycopg.Connection[Any], schema: str, *, create: bool, writable: bool) -> None:
    """Make the store, or bring it to the newest schema, if it is not there; one process does it, others wait.

    Raises ``DatabaseError`` where the schema is no store, is of a newer version, or may not be made;
    ``LockNotAvailable`` (psycopg's) where a table that has to change is in use: try again.
    """
    newest = max(migrations("postgresql"))
    found = _schema_version(connection, schema)
    if found < newest and writable and (found > 0 or create):
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_WAIT,))
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema),))
            _migrate(connection, schema, _schema_version(connection, schema))
        found = newest
    if found == 0:
        raise DatabaseError(f"there is no store in schema {schema!r} of this database; open it for writing to make one")
    if found < newest:
        raise DatabaseError(
            f"the store in schema {schema!r} has schema version {found}, this version of foldlog needs {newest}; "
            f"open it for writing, as the owner of its tables, to bring it there"
        )


def greet(connection: psycopg.Connection[Any], schema: str, *, writable: bool, durable: bool) -> None:
    """Check the server behind a new connection. Raises ``OperationalError`` where a promise could not be kept on it."""
    server, synchronous_commit, fsync, cluster, of_cluster, last_number, next_number = _ask(
        connection,
        schema,
        """
        SELECT current_setting('server_version_num')::int / 10000, current_setting('synchronous_commit'),
               current_setting('fsync'), (SELECT system_identifier FROM pg_control_system()), e.cluster,
               greatest((SELECT max(position) >> 20 FROM {schema}.events),
                        (SELECT max(first_position) >> 20 FROM {schema}.publications)),
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint + e.epoch
        FROM {schema}.epoch e
        """,
    )
    if server < _SERVER_VERSION_MIN:
        raise OperationalError(f"this is PostgreSQL {server}; foldlog needs {_SERVER_VERSION_MIN} or later")
    if writable and durable and (synchronous_commit == "off" or fsync == "off"):
        setting = "synchronous_commit" if synchronous_commit == "off" else "fsync"
        raise OperationalError(
            f"{setting} is off on this server, for this role or database, so that what was acknowledged could be lost; "
            f"set {setting} to on, or open the store with durability=relaxed"
        )
    if cluster != of_cluster or (last_number or 0) >= next_number:
        if not writable:
            raise OperationalError(
                "this store was restored on another server, and its followers would miss events until it is opened "
                "for writing once"
            )
        _begin_epoch(connection, schema)


def _ask(connection: psycopg.Connection[Any], schema: str, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] | None = connection.execute(_in(schema, query)).fetchone()
    if row is None:
        raise DatabaseError(f"the store in schema {schema!r} is damaged: it has no epoch; restore it from a backup")
    return row


def _begin_epoch(connection: psycopg.Connection[Any], schema: str) -> None:
    """This server counts its transactions from another number than the one that wrote what is here: go on above all
    positions that were ever given. Nobody else writes here now: each connection comes by here first.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_number(schema),))
        connection.execute(_in(schema, """
            UPDATE {schema}.epoch SET cluster = s.system_identifier, epoch = n.highest + %s
            FROM pg_control_system() s, (
                SELECT greatest(e.epoch, (SELECT max(position) >> 20 FROM {schema}.events),
                    (SELECT max(first_position) >> 20 FROM {schema}.publications)) AS highest
                FROM {schema}.epoch e) n
            WHERE cluster != s.system_identifier
               OR n.highest >= epoch + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
            """), (_EPOCH_MARGIN,))  # fmt: skip


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
