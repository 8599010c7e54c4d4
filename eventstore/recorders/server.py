"""What a recorder can also report if its database is a server that other people use and administer."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Holder", "Lag", "RecorderOnServer", "Status"]


class Holder(NamedTuple):
    """The oldest transaction that was writing when the status was taken: followers wait for its end. A prepared one has
    no session, and so no pid.
    """

    pid: int | None
    application: str
    state: str
    age_s: float


class Lag(NamedTuple):
    """What a follower that keeps its place in the store has yet to read: how many events it could read now (10,000 are
    counted at most), and how long ago the first of them was recorded.
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


@runtime_checkable
class RecorderOnServer(Protocol):
    def status(self) -> Status:
        """Return who holds the followers back, and how far behind they are."""
