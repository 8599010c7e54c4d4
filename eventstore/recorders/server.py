"""The status of a recorder whose database is a server that other programs use too."""

from __future__ import annotations

from typing import NamedTuple


class Holder(NamedTuple):
    """The oldest transaction that was writing when the status was taken: followers wait for its end. A prepared
    transaction has no session, and so no pid.
    """

    pid: int | None
    application: str
    state: str
    age_s: float


class Lag(NamedTuple):
    """The lag of a follower that keeps its place in the store: how many events it could read now (at most 10,000 are
    counted), and how long ago the first of them was recorded.
    """

    follower: str
    position: int
    events: int
    seconds: float


class Status(NamedTuple):
    """``horizon_age``: how many transactions began to write after the oldest one that still runs; followers wait for
    that one. ``held_back``: how many committed events are beyond its position; at most 10,000 are counted.
    ``standbys``: the standbys that a commit waits for, as in ``synchronous_standby_names``.
    """

    horizon: int
    horizon_age: int
    held_back: int
    held_by: Holder | None
    last_position: int
    synchronous_commit: str
    standbys: str
    followers: tuple[Lag, ...]
