"""Keep what is derived from a store up to date, run by the eventsourcing library's runner.

What is new and the position of the last event are written in one transaction, so each event is there exactly once, also
after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from eventsourcing.persistence import Tracking

from foldlog.eventstore import CorruptEvent, Recorded, Store
from foldlog.eventstore.integrations.batches import BatchFollower, BatchView, RecordedBatch


class FollowsStore(Protocol):
    """What follows a store outside of its file: the search index, an audit database."""

    @property
    def position(self) -> int:
        """The position in the store up to which it is complete."""

    def apply(self, batch: Iterable[Recorded | CorruptEvent], position: int, *, after: int) -> int | None:
        """Apply what the store has between two positions. Return the number of added events; None where it is not
        complete up to ``after``, because another process has changed it, or it was emptied: then ``catch_up``.
        """

    def catch_up(self) -> int:
        """Apply what is new in the store. Return the number of added events."""

    def refresh(self) -> object:
        """Do what is needed only from time to time."""

    def close(self) -> None: ...


D = TypeVar("D", bound=FollowsStore)


class DerivedView(BatchView, Generic[D]):
    """What follows a store, as the library needs it."""

    def __init__(self, derived: D) -> None:
        self.derived = derived
        self.events = 0
        self._after = derived.position

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Apply a batch. Where another process has applied more since the last one, what is new is read again."""
        added = self.derived.apply(batch.events, tracking.notification_id, after=self._after)
        self.events += self.derived.catch_up() if added is None else added
        self._after = self.derived.position

    def insert_tracking(self, tracking: Tracking) -> None:
        self.add(RecordedBatch(()), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.derived.position or None

    def refresh(self) -> Any:
        return self.derived.refresh()

    def close(self) -> None:
        self.derived.close()


class Follower(BatchFollower[DerivedView[D]]):
    """Keeps the search index or an audit database up to date in a thread of its own. A context manager, which closes
    it. Other processes may change it at the same time. Cost: the events that are new.
    """

    def __init__(self, store: Store, derived: D) -> None:
        super().__init__(store.database, DerivedView(derived))
