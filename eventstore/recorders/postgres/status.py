"""What an operator asks of a store in PostgreSQL: is it sound, who holds followers back, how far behind are they?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from eventstore.recorders.statements import statements

__all__ = ["Holder", "Lag", "Status", "findings", "status"]


class Holder(NamedTuple):
    """The oldest transaction that was writing when the status was taken: followers wait for its end. A prepared one has
    no session, and so no pid.
    """

    pid: int | None
    application: str
    state: str
    age_s: float


class Lag(NamedTuple):
    """How far a follower that keeps its place in the store is behind: events that it could read now (10,000 are counted
    at most), and how long ago the first of them was recorded.
    """

    follower: str
    position: int
    events: int
    seconds: float


class Status(NamedTuple):
    """``horizon_age``: how many transactions began to write since the oldest that still does; followers wait for that
    one. ``held_back``: how many events are committed behind it, 10,000 being the most that are counted. ``standbys``:
    those that a commit waits for, as in ``synchronous_standby_names``.
    """

    horizon: int
    horizon_age: int
    held_back: int
    held_by: Holder | None
    last_position: int
    synchronous_commit: str
    standbys: str
    followers: tuple[Lag, ...]


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


def findings(connection: psycopg.Connection[Any], schema: str) -> Iterator[str]:
    """What is wrong with tables and indices. Cost: all of them are read."""
    quoted = sql.Identifier(schema).as_string(None)
    rows_of_nobody = statements("postgresql")["rows_of_nobody"].replace("{schema}", quoted)
    for key, count in connection.execute(rows_of_nobody.encode()).fetchall():
        yield f"{count} events are of conversation number {key}, which is not there"
    if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'").fetchone() is None:
        return
    indices = connection.execute("SELECT indexname::text FROM pg_indexes WHERE schemaname = %s ORDER BY 1", (schema,))
    for (index,) in indices.fetchall():
        try:
            connection.execute("SELECT bt_index_check(%s::regclass, true)", (f'{quoted}."{index}"',))
        except psycopg.DatabaseError as error:
            yield f"index {index}: {' '.join(str(error).split())}"
