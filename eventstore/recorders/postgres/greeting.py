"""Check the server of each new connection: its settings must keep the promises, and its epoch must be right."""

from __future__ import annotations

from struct import Struct
from typing import Final

import psycopg

from eventstore.recorders.errors import DatabaseError, OperationalError, ProgrammingError
from eventstore.recorders.postgres.binary import text_bytes, to_text
from eventstore.recorders.postgres.faults import ConnectionLost
from eventstore.recorders.postgres.wire import Wire

_SERVER_VERSION_MIN: Final = 14
_TRUE: Final = b"\1"
_seconds: Final = Struct("!d").unpack


def greet(wire: Wire, info: psycopg.ConnectionInfo, schema: str, *, writable: bool, durable: bool) -> None:
    """Check the server of a new connection, and begin an epoch where it was restored or promoted.

    Raises ``OperationalError`` if its settings cannot keep a promise, ``ConnectionLost`` if the connection is for
    writing and the server is a standby, ``DatabaseError`` if this role may not begin an epoch.
    """
    wire.queue("greet")
    answer = wire.ask()[-1]
    if answer.ntuples == 0:
        raise DatabaseError(f"the store in schema {schema!r} is damaged: it has no epoch; restore it from a backup")
    version, is_standby, commit, fsync, idle_s, is_elsewhere, is_later = (
        answer.get_value(0, column) or b"" for column in range(answer.nfields)
    )
    if int.from_bytes(version) < _SERVER_VERSION_MIN:
        raise OperationalError(
            f"this is PostgreSQL {int.from_bytes(version)}; foldlog needs {_SERVER_VERSION_MIN} or later"
        )
    if writable and is_standby == _TRUE:
        raise ConnectionLost("this server is a standby; the primary is needed to write")
    if writable and durable and b"off" in (commit, fsync):
        setting = "synchronous_commit" if commit == b"off" else "fsync"
        raise OperationalError(
            f"{setting} is off on this server, for this role or database, so that what was acknowledged could be lost; "
            f"set {setting} to on, or open the store with durability=relaxed"
        )
    if is_elsewhere == _TRUE and not writable:
        raise OperationalError(
            "this store was restored on another server, and its followers would miss events until it is opened "
            "for writing once"
        )
    if writable and _TRUE in (is_elsewhere, is_later):
        _begin_epoch(wire, info, schema)
    wire.idle_in_transaction_s = _seconds(idle_s)[0]


def _begin_epoch(wire: Wire, info: psycopg.ConnectionInfo, schema: str) -> None:
    """Begin an epoch above all positions that were ever given: this server may give numbers that its predecessor gave.

    No other process writes to the store: each new connection for writing is checked here first. The commit waits for no
    standby: after a failover there may be none yet, and every later confirmation includes this commit. See
    ``0001_first.sql``.
    """
    for statement in ("begin_writing", "commit_locally", "begin_epoch", "commit"):
        wire.queue(statement)
    try:
        wire.ask()
    except ProgrammingError as error:
        wire.abandon()
        wire.queue("owner", text_bytes(schema))
        found = wire.ask()[-1]
        owner = to_text(found.get_value(0, 0) or b"") if found.ntuples else "OWNER"
        raise DatabaseError(
            f"the store in schema {schema!r} was restored from a backup, and this role may not begin its new epoch "
            f"({error}); {as_owner(owner, info, schema)}, then start this again"
        ) from error


def as_owner(owner: str, info: psycopg.ConnectionInfo, schema: str, command: str = "list") -> str:
    """Return the command that the owner of a store has to run."""
    option = "" if schema == "foldlog" else f"&schema={schema}"
    return (
        f"as {owner!r}, the owner of its tables, run: foldlog {command} --db 'postgresql://{owner}@{info.host}:{info.port}/"
        f"{info.dbname}?mode=rwc{option}'"
    )
