"""A search index that follows its store, run by the eventsourcing library's runner.

Texts and the position of the last one are written in one transaction, so each event is in the index exactly once, also
after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventsourcing.persistence import IntegrityError, Tracking

from foldlog.eventstore import CorruptEvent, Recorded, Store
from foldlog.eventstore.integrations.batches import BatchFollower, BatchView, RecordedBatch
from foldlog.search.index import SearchIndex


class SearchView(BatchView):
    """The index as the library needs it."""

    def __init__(self, store: Store) -> None:
        self.index = SearchIndex(store)
        self.events = 0

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Add the events of a batch and its position in one transaction."""
        self._add(batch.events, tracking)
        self.events += len(batch.events)

    def refresh(self) -> None:
        """Remove what was erased."""
        self.index.remove_erased()

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def insert_tracking(self, tracking: Tracking) -> None:
        self._add((), tracking)

    def _add(self, events: Sequence[Recorded | CorruptEvent], tracking: Tracking) -> None:
        if not self.index.add_batch(events, tracking.notification_id):
            raise IntegrityError(f"the search index has position {tracking.notification_id} already")

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.index.tables.position() or None


class SearchFollower(BatchFollower[SearchView]):
    """Keeps the search index of a store up to date in a thread of its own. A context manager.

    Where another process adds events to the index at the same time, the follower stops with the library's
    ``IntegrityError``: one follower is enough. Raises ``SearchRefused`` when it is made. Cost: the events that are new.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store.database, SearchView(store))
