"""A search index that follows its store, run by the eventsourcing library's ``ProjectionRunner``.

Texts and the position of the last one are written in one transaction, so each event is in the index exactly once, also
after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventsourcing.persistence import InfrastructureFactory, IntegrityError, Tracking

from eventstore import CorruptEvent, Recorded, Store
from eventstore.integrations.batches import BatchFollower, BatchProjection, BatchView, RecordedBatch, ViewFactory
from eventstore.integrations.eventsourcing import Factory
from eventstore.integrations.tracking import StoreRecorder
from foldlog.search.index import SearchIndex

_STORES: dict[str, Store] = {}
"""Open stores by their uuid: the library makes recorders and views from texts only."""


class OpenStore(Factory):
    """The library's recorders on a store that is open already, in memory too."""

    def __init__(self, env: Any) -> None:
        InfrastructureFactory.__init__(self, env)
        self._recorder = StoreRecorder(_STORES[self.env.get("STORE") or ""].database)

    def close(self) -> None:
        """Leave the store open: the code that opened it closes it."""


class SearchView(BatchView):
    """The index as the library needs it."""

    def __init__(self, store: Store) -> None:
        self._uuid = store.database.uuid
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
        _STORES.pop(self._uuid, None)

    def insert_tracking(self, tracking: Tracking) -> None:
        self._add((), tracking)

    def _add(self, events: Sequence[Recorded | CorruptEvent], tracking: Tracking) -> None:
        if not self.index.add_batch(events, tracking.notification_id):
            raise IntegrityError(f"the search index has position {tracking.notification_id} already")

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.index.tables.position() or None


class _KeepIndex(BatchProjection[SearchView]):
    name = "search"


class SearchViewFactory(ViewFactory[SearchView]):
    """Makes the view of the runner."""

    def tracking_recorder(self, tracking_recorder_class: type[Any] | None = None) -> Any:
        return SearchView(_STORES[self.env.get("STORE") or ""])


class SearchFollower(BatchFollower[SearchView]):
    """Keeps the search index of a store up to date in a thread of its own. A context manager.

    Where another process adds events to the index at the same time, the follower stops with the library's
    ``IntegrityError``: one follower is enough. Raises ``SearchRefused`` when it is made. Cost: the events that are new.
    """

    def __init__(self, store: Store) -> None:
        _STORES[store.database.uuid] = store
        module = f"{__name__}:"
        env = {
            "PERSISTENCE_MODULE": f"{module}OpenStore",
            "STORE": store.database.uuid,
            "SEARCH_PERSISTENCE_MODULE": f"{module}SearchViewFactory",
        }
        super().__init__(_KeepIndex, SearchView, env)
