"""A search index that follows its store, run by the eventsourcing library's runner.

Texts and the position of the last one are written in one transaction, so each event is in the index exactly once, also
after a crash.
"""

from __future__ import annotations

from eventsourcing.persistence import Tracking

from foldlog._search.index import SearchIndex
from foldlog.eventstore import Store
from foldlog.eventstore.integrations.batches import BatchFollower, BatchView, RecordedBatch


class SearchView(BatchView):
    """The index as the library needs it."""

    def __init__(self, store: Store) -> None:
        self.index = SearchIndex(store)
        self.events = 0
        self._after = self.index.tables.position()

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Apply a batch. Where a search has changed the index since the last one, what is new is read again."""
        added = self.index.apply(batch.events, tracking.notification_id, after=self._after)
        self.events += self.index.catch_up() if added is None else added
        self._after = self.index.tables.position()

    def refresh(self) -> None:
        """Remove the bytes of what was removed."""
        self.index.tables.purge()

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def insert_tracking(self, tracking: Tracking) -> None:
        self.add(RecordedBatch(()), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.index.tables.position() or None


class SearchFollower(BatchFollower[SearchView]):
    """Keeps the search index of a store up to date in a thread of its own. A context manager.

    Searches, and other followers, may add events to the index at the same time. Raises ``SearchRefused`` when it is
    made. Cost: the events that are new.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store.database, SearchView(store))
