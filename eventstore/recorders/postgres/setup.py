"""Make and migrate the schema of a store, and check the server of each new connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import psycopg
from psycopg import sql

from foldlog.eventstore.errors import StoreDamaged, StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.postgres.positions import ONLY, Part
from foldlog.eventstore.recorders.postgres.wire import ConnectionLost, IsStandby, Wire
from foldlog.eventstore.recorders.statements import commands, migrations, statements
from foldlog.eventstore.recorders.types import as_text, new_store_uuid
from foldlog.eventstore.recorders.versions import (
    MADE_BY,
    THIS_VERSION,
    development_store,
    newer_store,
)

_SERVER_VERSION_MIN: Final = 14
_ENCODINGS: Final = ("UTF8", "SQL_ASCII")
"""The encodings of a database that can have a store. A database with SQL_ASCII converts nothing."""
_LOCK_WAIT: Final = "2s"
"""The time for which a migration waits for the lock of a table. While a migration waits for a
table, later users of the table wait for the migration. A migration that has to wait therefore fails
early and is repeated.
"""


def prepare(
    connection: psycopg.Connection[Any],
    schema: str,
    part: Part | None,
    *,
    create: bool,
    writable: bool,
    durable: bool,
) -> Part:
    """Make the store if it does not exist, or migrate it to the newest schema. One process makes or
    migrates the store, and the other processes wait. Return which part of a joined store is in the
    schema. If ``part`` is not None, the schema must be this part of a joined store.

    Raises ``StoreRefused`` if the schema is not a store, has a newer version, or cannot
    be made by this role.
    """
    facts = _find_facts(connection, schema)
    version = _check_version(facts, schema)
    if version == 0 and create:
        _check_before_making(connection, durable=durable)
    if create or (writable and version > 0):
        facts, version = _bring_up_to_date(connection, schema, part or ONLY, facts)
    if version == 0:
        raise StoreRefused(
            f"schema {schema!r} of this database has no store; to make one, open the URL with"
            " ?mode=rwc",
            kind="foreign",
        )
    if version < _newest():
        raise StoreRefused(
            f"the store in schema {schema!r} has schema version {version}, but this version of"
            f" foldlog needs {_newest()}; {command_of_owner(connection, schema)}",
            kind="schema",
        )
    return _check_part(facts.get("part", str(part or ONLY)), schema, part)


def _newest() -> int:
    return max(migrations("postgresql"))


def _bring_up_to_date(
    connection: psycopg.Connection[Any], schema: str, part: Part, facts: dict[str, str]
) -> tuple[dict[str, str], int]:
    """Make or migrate the store if its schema is not the newest. Return its facts and the number of
    its schema. If this role may not migrate the store, it stays as it is.
    """
    version = _check_version(facts, schema)
    if version == _newest():
        return facts, version
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_WAIT,))
            # Do not wait for a standby here, because the wait could last forever. A later
            # confirmation includes this commit too.
            connection.execute("SET LOCAL synchronous_commit TO local")
            digest = blake2b(schema.encode(), digest_size=8, person=b"foldlog").digest()
            connection.execute(
                "SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(digest, signed=True),)
            )
            facts = _facts_of_store(connection, schema)
            _migrate(connection, schema, _check_version(facts, schema), part)
    except psycopg.errors.InsufficientPrivilege:
        if version == 0:
            raise
        return facts, version
    return facts, _newest()


def _check_part(stored: str, schema: str, part: Part | None) -> Part:
    """Return the stored part. Raises ``StoreRefused`` if another one is wanted."""
    if part is not None and stored != str(part):
        raise StoreRefused(
            f"schema {schema!r} has store {stored}, not {part}; the number of joined stores cannot"
            " be changed. To get another number, copy the store to another schema, ?schema=NAME"
            " (see 'foldlog store copy --help')",
            kind="refused",
        )
    number, _, of = stored.partition(" of ")
    try:
        return Part(int(number), int(of))
    except ValueError as error:
        raise _damaged(schema, "part") from error


def are_made(connection: psycopg.Connection[Any], parts: Mapping[str, Part]) -> bool:
    """Return whether every schema in ``parts`` has its part of a joined store, in the newest
    version.
    """
    queries = [
        _statement_in(
            schema,
            f"SELECT {part.number}, name, value FROM {{schema}}.store WHERE name IN ('part',"
            " 'schema')",
        )
        for schema, part in parts.items()
    ]
    try:
        facts = connection.execute(b" UNION ALL ".join(queries)).fetchall()
    except psycopg.errors.ProgrammingError:
        # A table does not exist, or this role may not read it.
        return False
    newest = str(_newest())
    expected = {(part.number, "part", str(part)) for part in parts.values()}
    return {*facts} == expected | {(part.number, "schema", newest) for part in parts.values()}


def schemas_there(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> list[str]:
    """Return the schemas that exist and have a table ``store``."""
    query = (
        "SELECT schemaname::text FROM pg_tables WHERE tablename = 'store' AND schemaname = ANY (%s)"
    )
    return sorted(schema for (schema,) in connection.execute(query, (list(schemas),)).fetchall())


def check_not_lost(
    connection: psycopg.Connection[Any], missing: Sequence[str], first: str, existing: Sequence[str]
) -> None:
    """Raise ``StoreRefused`` if the missing stores existed once. Of several stores, the store
    ``first`` is made after all others. If ``first`` exists, or if a store has conversations, all
    stores existed once.
    """
    begun = "SELECT 1 FROM {schema}.conversations LIMIT 1"
    if first in existing or any(
        connection.execute(_statement_in(schema, begun)).fetchall() for schema in existing
    ):
        raise lost_stores(missing)


def lost_stores(lost: Sequence[str]) -> StoreRefused:
    return StoreRefused(
        f"this database lacks the stores {', '.join(lost)}, so their conversations cannot be"
        " found; restore the schemas from a backup, copy the stores here, or name their servers"
        " (moved=NUMBER@host:port in the URL)",
        kind="foreign",
    )


class Greeted(Protocol):
    """A store whose server is checked: ``bind`` selects its statements on a connection."""

    schema: str

    def bind(self, wire: Wire, /) -> None: ...


def greet(
    wire: Wire,
    info: psycopg.ConnectionInfo,
    stores: Sequence[Greeted],
    *,
    writable: bool,
    durable: bool,
) -> bool:
    """Check the server of a new connection, in one round trip for all stores on the connection.
    Refuse settings of the server that could lose acknowledged events, and check the epochs of the
    stores. If a store was restored or its server was promoted, begin a new epoch. Return whether
    the server belongs to Citus.

    Raises ``StoreUnavailable`` if the server is too old, or if its settings could lose acknowledged
    events. Raises ``ConnectionLost`` if the connection is for writing, but the server is a standby,
    or if it is for reading, but the store was restored and nobody has begun its new epoch. Raises
    ``StoreRefused`` if the database role may not begin a new epoch, or if prepared statements are
    used through a pooler that does not keep them. Raises ``StoreDamaged`` if a store has no epoch.
    """
    for store in stores:
        store.bind(wire)
        wire.queue("greet")
    if wire.must_keep_names:
        name = wire.name_of("greet").encode()
        wire.queue("passes_names_through", name, info.backend_pid)
        *answers, answer_of_pooler = wire.ask()
        [(passes_names_through,)] = wire.rows(answer_of_pooler)
        if passes_names_through:
            raise StoreRefused(
                "the pooler does not keep the prepared statements of its clients, so statements of"
                " another client could run here: it is older than PgBouncer 1.21, or its"
                " max_prepared_statements is 0; set pooler=transaction in the URL",
                kind="refused",
            )
    else:
        answers = [*wire.ask()]
    is_on_citus = False
    for store, answer in zip(stores, answers, strict=True):
        store.bind(wire)
        is_on_citus = _check_server(
            wire, info, store.schema, wire.rows(answer), writable=writable, durable=durable
        )
    return is_on_citus


def _check_server(
    wire: Wire,
    info: psycopg.ConnectionInfo,
    schema: str,
    rows: Sequence[tuple[Any, ...]],
    *,
    writable: bool,
    durable: bool,
) -> bool:
    """Raise an error if the store cannot be used on this server. Begin a new epoch if the store was
    restored or its server promoted. Return whether the server uses Citus.
    """
    if not rows:
        raise StoreDamaged(
            f"the store in schema {schema!r} is damaged: it has no epoch; restore it from a backup"
        )
    [(*settings, idle_s, is_on_citus, is_elsewhere, is_later)] = rows
    _check_settings(ServerSettings(*settings), writable=writable, durable=durable)
    if is_elsewhere and not writable:
        raise ConnectionLost(
            "this store was restored on another server; open the store for writing once, or its"
            " followers miss events"
        )
    if writable and (is_elsewhere or is_later):
        try:
            _begin_epoch(wire, schema, is_on_citus=bool(is_on_citus))
        except StoreRefused as error:
            wire.leave("rollback")
            wire.queue("owner")
            [(owner,)] = wire.rows(wire.ask()[-1])
            raise StoreRefused(
                f"the store in schema {schema!r} was restored from a backup, and this role may not"
                f" begin its new epoch ({error}); {_as_owner(as_text(owner), info, schema)}, then"
                " start this program again",
                kind="refused",
            ) from error
    wire.idle_in_transaction_s = idle_s
    return bool(is_on_citus)


class ServerSettings(NamedTuple):
    """The settings of a server that decide whether a store may be opened on it."""

    version: int
    is_standby: bool
    commit_is_off: bool
    fsync_is_off: bool


def _check_settings(settings: ServerSettings, *, writable: bool, durable: bool) -> None:
    """Raise an error if the server is too old, cannot be written, or could lose commits."""
    if settings.version < _SERVER_VERSION_MIN:
        raise StoreUnavailable(
            f"this is PostgreSQL {settings.version}; foldlog needs {_SERVER_VERSION_MIN} or later",
            kind="away",
        )
    if writable and settings.is_standby:
        raise IsStandby(
            "this server is a standby; to read from it, add mode=ro to the URL, and to write, name"
            " the primary"
        )
    if writable and durable and (settings.commit_is_off or settings.fsync_is_off):
        setting = "synchronous_commit" if settings.commit_is_off else "fsync"
        raise StoreUnavailable(
            f"{setting} is off on this server, for this role or database, so acknowledged events"
            f" could be lost; set {setting} to on, or open the store with durability=relaxed",
            kind="away",
        )


def _check_before_making(connection: psycopg.Connection[Any], *, durable: bool) -> None:
    """Refuse a server or a database that cannot have a store, before the first table is made."""
    query = statements("postgresql")["node_settings"].encode()
    [(encoding, *settings)] = connection.execute(query).fetchall()
    if encoding not in _ENCODINGS:
        raise StoreRefused(
            f"this database has the encoding {encoding}, which has no byte for most characters;"
            " make another with CREATE DATABASE NAME ENCODING 'UTF8' TEMPLATE template0",
            kind="refused",
        )
    _check_settings(ServerSettings(*settings), writable=True, durable=durable)


def _begin_epoch(wire: Wire, schema: str, *, is_on_citus: bool) -> None:
    """Begin an epoch above all earlier positions, if no other process has begun one meanwhile.
    Without a new epoch, this server could repeat transaction numbers that its predecessor has
    already used.

    Followers read up to the oldest number of the current epoch, so a transaction with a number of
    an earlier epoch must have ended before. Therefore one process at a time begins an epoch, and
    looks again whether the store needs one: after a failover, all writers connect at once, and
    the first of them write while the others still come here.

    The commit does not wait for a standby, because right after a failover there may be no standby.
    A standby that confirms a later commit has also received the commit of the epoch.
    ``0002_first.sql`` describes epochs.
    """
    wire.queue("begin_writing")
    wire.queue("commit_locally")
    if is_on_citus:
        wire.queue("stay")
    wire.queue("lock", epoch_lock(schema))
    wire.queue("needs_epoch")
    [(needs_epoch,)] = wire.rows(wire.ask()[-1])
    if needs_epoch:
        wire.queue("begin_epoch")
    wire.queue("commit")
    wire.ask()


def epoch_lock(schema: str) -> int:
    """Return the number of the advisory lock under which an epoch of a store begins."""
    digest = blake2b(schema.encode(), digest_size=8, person=b"foldlog epoch").digest()
    return int.from_bytes(digest, signed=True)


def command_of_owner(connection: psycopg.Connection[Any], schema: str) -> str:
    row = connection.execute(
        "SELECT tableowner::text FROM pg_tables WHERE schemaname = %s", (schema,)
    ).fetchone()
    return _as_owner("OWNER" if row is None else str(row[0]), connection.info, schema)


def _as_owner(owner: str, info: psycopg.ConnectionInfo, schema: str) -> str:
    # The host may be the folder of a socket.
    user, host, database = (quote(name, safe="") for name in (owner, info.host, info.dbname))
    option = "" if schema == "foldlog" else f"&schema={quote(schema, safe='')}"
    return (
        f"as {owner!r}, the owner of its tables, run: foldlog list --db"
        f" 'postgresql://{user}@{host}:{info.port}/{database}?mode=rwc{option}'"
    )


def _find_facts(connection: psycopg.Connection[Any], schema: str) -> dict[str, str]:
    """Return the facts of the store in a schema, or an empty map if the schema has no tables.
    Raises ``StoreRefused`` if its tables are no store.
    """
    try:
        facts = _read_facts(connection, schema)
    except psycopg.errors.ProgrammingError:
        # The table does not exist, or this role may not read it.
        facts = {}
    return facts if "schema" in facts else _facts_of_store(connection, schema)


def _read_facts(connection: psycopg.Connection[Any], schema: str) -> dict[str, str]:
    query = _statement_in(schema, "SELECT name, value FROM {schema}.store")
    facts: dict[str, str] = dict(connection.execute(query).fetchall())
    if MADE_BY not in facts:
        raise development_store(_name_of(schema), facts.get("schema"))
    return facts


def _name_of(schema: str) -> str:
    return f"the store in schema {schema!r}"


def _facts_of_store(connection: psycopg.Connection[Any], schema: str) -> dict[str, str]:
    """Return the facts in the table ``store``, or nothing if the schema has no tables."""
    query = "SELECT tablename::text, schemaname::text FROM pg_tables WHERE schemaname = ANY (%s)"
    tables = connection.execute(query, ([schema, f"{schema}_00"],)).fetchall()
    if any(name == f"{schema}_00" for _, name in tables):
        raise StoreRefused(
            f"this database has several stores, {schema}_00 and others; set the number of"
            " stores in the URL (?stores=)",
            kind="refused",
        )
    if not tables:
        return {}
    if not {"store", "epoch", "conversations", "events"} <= {table for table, _ in tables}:
        raise StoreRefused(
            f"schema {schema!r} has tables, but is not a foldlog store; choose another schema"
            " (?schema=)",
            kind="foreign",
        )
    return _read_facts(connection, schema)


def _damaged(schema: str, fact: str) -> StoreDamaged:
    return StoreDamaged(
        f"schema {schema!r} is damaged: its table 'store' has no valid {fact}; restore a backup"
    )


def _check_version(facts: Mapping[str, str], schema: str) -> int:
    """Return the version of a store's schema, 0 if there is no store. A newer version that this
    program can still use counts as the newest version that this program knows.
    """
    if not facts:
        return 0
    newest = _newest()
    try:
        version, readable_by = int(facts["schema"]), int(facts["readable_by"])
    except (KeyError, ValueError) as error:
        raise _damaged(schema, "version") from error
    if readable_by > newest:
        raise newer_store(_name_of(schema), version, newest)
    return min(version, newest)


def _migrate(
    connection: psycopg.Connection[Any],
    schema: str,
    schema_version: int,
    part: Part,
) -> None:
    """Make the tables of the store, or bring them from ``schema_version`` to the newest version."""
    if schema_version == 0:
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    storage = _storage(connection)
    for number, script in migrations("postgresql").items():
        if number <= schema_version:
            continue
        for command in commands(script):
            connection.execute(_statement_in(schema, command, storage))
        if number == min(migrations("postgresql")):
            # A function inside an UPDATE would run on the server of this connection, and not on the
            # server of the table.
            identity = "SELECT {schema}.here(), {schema}.timeline() FROM {schema}.epoch"
            [here] = connection.execute(_statement_in(schema, identity)).fetchall()
            connection.execute(
                _statement_in(schema, "UPDATE {schema}.epoch SET cluster = %s, timeline = %s"), here
            )
            connection.execute(
                _statement_in(
                    schema,
                    "INSERT INTO {schema}.store VALUES "
                    "('uuid', %s), ('part', %s), ('schema', '0'), ('readable_by', %s), (%s, %s)",
                ),
                (new_store_uuid(), str(part), str(number), MADE_BY, THIS_VERSION),
            )
        connection.execute(
            _statement_in(schema, "UPDATE {schema}.store SET value = %s WHERE name = 'schema'"),
            (str(number),),
        )


def _storage(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Return clauses for the columns of CREATE TABLE: the server stores their values uncompressed,
    or compresses them with lz4. Citus cannot change the compression of a table later. A server
    below version 16 compresses the former too, and a server that was built without lz4 uses pglz.
    """
    query = """SELECT current_setting('server_version_num')::int >= 160000, 'lz4' = ANY (enumvals)
        FROM pg_settings WHERE name = 'default_toast_compression'"""
    [(has_external, has_lz4)] = connection.execute(query).fetchall()
    return {
        "{external}": "STORAGE EXTERNAL" if has_external else "",
        "{lz4}": "COMPRESSION lz4" if has_lz4 else "",
    }


def _statement_in(schema: str, query: str, storage: Mapping[str, str] = {}) -> bytes:
    for place, words in storage.items():
        query = query.replace(place, words)
    return in_schema(schema, query)


def in_schema(schema: str, query: str) -> bytes:
    name, literal = _quoted(schema)
    return query.replace("{schema_name}", literal).replace("{schema}", name).encode()


@lru_cache(maxsize=64)
def _quoted(schema: str) -> tuple[str, str]:
    """Return the name of a schema as an identifier and as a literal. A recorder that opens needs
    them for each of its statements.
    """
    return sql.Identifier(schema).as_string(None), sql.Literal(schema).as_string(None)
