"""The state of a PostgreSQL store for its operator: which session delays followers, and how far
followers lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import psycopg


class Holder(NamedTuple):
    """The oldest writing transaction that this role sees. Followers wait for its end. A transaction
    that waits for the second phase of a two-phase commit has no session, and its ``pid`` is None.
    """

    pid: int | None
    application: str
    state: str
    age_s: float


class Lag(NamedTuple):
    """The lag of a follower that stores its position in the store. ``events`` is the number of
    events that the follower could read now, counted up to 10,000 in each of several joined stores.
    ``seconds`` is the age of the first event that the follower could read, or 0 if there is none.
    """

    follower: str
    position: int
    events: int
    seconds: float


class Status(NamedTuple):
    """``horizon_age`` is the number of transactions from the oldest running one up to the newest
    that has ended, or 0 if none has ended since the oldest one began. ``held_back`` is the number
    of committed events from ``horizon`` on, counted up to 10,000. ``standbys`` names the standbys
    for which a commit waits, as in ``synchronous_standby_names``.
    """

    horizon: int
    horizon_age: int
    held_back: int
    held_by: Holder | None
    last_position: int
    synchronous_commit: str
    standbys: str
    followers: tuple[Lag, ...]


def status(connection: psycopg.Connection[Any], statements: Mapping[str, bytes]) -> Status:
    """Return the status of a store. If a session of another role holds followers back, only members
    of ``pg_monitor`` see it: ``held_by`` then is None, or a younger transaction.
    """

    def ask(name: str) -> list[tuple[Any, ...]]:
        return connection.execute(statements[name], binary=True).fetchall()

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
        tuple(
            Lag(name.decode("utf-8", "surrogatepass"), *rest) for name, *rest in ask("followers")
        ),
    )


def holder(
    connection: psycopg.Connection[Any], statements: Mapping[str, bytes], locks: Sequence[int]
) -> str:
    """Return the end of an error's text: which session holds one of the locks. Return an empty text
    if no session is known to hold them.
    """
    row = connection.execute(statements["lock_holder"], (list(locks),)).fetchone()
    if row is None:
        return ""
    pid, host, application, state, seconds = row
    return (
        f"; the conversation is locked by session {pid} of {application!r} at {host}, which has"
        f" been {state} for {seconds:.0f} s (pg_terminate_backend({pid}) ends it)"
    )
