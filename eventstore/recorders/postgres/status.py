"""What an operator asks of a store in PostgreSQL: is it sound, who holds followers back, how far behind are they?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql

from eventstore.recorders.errors import ProgrammingError
from eventstore.recorders.server import Holder, Lag, Status
from eventstore.recorders.statements import statements

__all__ = ["findings", "holder", "status", "vacuum"]


def status(connection: psycopg.Connection[Any], schema: str) -> Status:
    """Take the status. Only a role with ``pg_monitor`` sees which session of another role holds the followers back."""
    queries = statements("postgresql")

    def ask(name: str) -> list[tuple[Any, ...]]:
        query = queries[name].replace("{schema}", sql.Identifier(schema).as_string(None))
        return connection.execute(query.encode(), binary=True).fetchall()

    [(horizon, age, held_back, last_position, synchronous_commit, standbys)] = ask("status")
    holders = ask("oldest_writer")
    return Status(
        horizon,
        age,
        held_back,
        Holder(*holders[0]) if holders and age else None,
        last_position,
        synchronous_commit,
        standbys,
        tuple(Lag(name.decode("utf-8", "surrogatepass"), *rest) for name, *rest in ask("followers")),
    )


def holder(connection: psycopg.Connection[Any], locks: Sequence[int]) -> str:
    """Say which other session holds one of these advisory locks; nothing where none does."""
    row = connection.execute(statements("postgresql")["lock_holder"].encode(), (list(locks),)).fetchone()
    if row is None:
        return ""
    pid, host, application, state, seconds = row
    return (
        f"; the conversation is locked by session {pid} of {application!r} at {host}, which is {state} since "
        f"{seconds:.0f} s (pg_terminate_backend({pid}) ends it)"
    )


def vacuum(connection: psycopg.Connection[Any], schema: str) -> int:
    """Vacuum every table that rows are deleted from. Returns how many deleted events are still readable by somebody.

    Raises ``ProgrammingError`` where the role may not: the server only warns of that.
    """
    warnings: list[str] = []

    def keep(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.message_primary or "")

    connection.add_notice_handler(keep)
    for table in ("events", "records", "idempotency_keys", "conversations"):
        connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, table)))
    if warnings:
        raise ProgrammingError(f"{warnings[0]}; grant this role MAINTAIN, or do it as the owner of the tables")
    dead = connection.execute(
        "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = %s AND relname = 'events'", (schema,)
    ).fetchone()
    return 0 if dead is None else int(dead[0])


def findings(connection: psycopg.Connection[Any], schema: str) -> Iterator[str]:
    """What is wrong with tables and indices. Cost: all of them are read."""
    quoted = sql.Identifier(schema).as_string(None)
    rows_of_nobody = statements("postgresql")["rows_of_nobody"].replace("{schema}", quoted)
    for key, count in connection.execute(rows_of_nobody.encode()).fetchall():
        yield f"{count} events are of conversation number {key}, which is not there"
    checker = connection.execute("SELECT to_regprocedure('bt_index_check(regclass, boolean)')").fetchone()
    if checker is None or checker[0] is None:
        return
    indices = connection.execute("SELECT indexname::text FROM pg_indexes WHERE schemaname = %s ORDER BY 1", (schema,))
    for (index,) in indices.fetchall():
        try:
            connection.execute("SELECT bt_index_check(%s::regclass, true)", (f'{quoted}."{index}"',))
        except psycopg.DatabaseError as error:
            yield f"index {index}: {' '.join(str(error).split())}"
