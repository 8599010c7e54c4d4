"""A search index that follows its store, run by the eventsourcing library's ``ProjectionRunner``.

Texts and the position of the last one are written in one transaction, so each event is in the index exactly once, also
after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from eventsourcing.persistence import InfrastructureFactory, IntegrityError, Tracking, TrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner

from eventstore import Store
from eventstore.integrations.batches import ConversationBatches, RecordedBatch
from eventstore.integrations.eventsourcing import Factory
from eventstore.integrations.tracking import StoreRecorder
from foldlog.search.index import SearchIndex

__all__ = ["OpenStore", "SearchFollower", "SearchView", "ViewFactory"]

_STORES: dict[str, Store] = {}
"""Open stores by their uuid: the library makes recorders and views from texts only."""


class OpenStore(Factory):
    """The library's recorders on a store that is open already, in memory too."""

    def __init__(self, env: Any) -> None:
        InfrastructureFactory.__init__(self, env)
        self._recorder = StoreRecorder(_STORES[self.env.get("STORE") or ""].database)

    def close(self) -> None:
        """Leave the store open: the code that opened it closes it."""


class SearchView(TrackingRecorder):
    """The index, as the library sees it."""

    def __init__(self, store: Store) -> None:
        self.index = SearchIndex(store)
        self.events = 0

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Add the events of a batch and its position in one transaction."""
        if not self.index.add_batch(batch.events, tracking.notification_id):
            raise IntegrityError(f"the search index has position {tracking.notification_id} already")
        self.events += len(batch.events)

    def insert_tracking(self, tracking: Tracking) -> None:
        if not self.index.add_batch((), tracking.notification_id):
            raise IntegrityError(f"the search index has position {tracking.notification_id} already")

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.index.tables.position() or None


class _KeepIndex(Projection[SearchView]):
    name = "search"

    def process_event(self, domain_event: RecordedBatch, tracking: Tracking) -> None:
        self.view.add(domain_event, tracking)


class ViewFactory(InfrastructureFactory[SearchView]):
    """Makes the view of the runner."""

    def tracking_recorder(self, tracking_recorder_class: type[Any] | None = None) -> Any:
        return SearchView(_STORES[self.env.get("STORE") or ""])

    def aggregate_recorder(self, purpose: str = "events") -> Any:
        raise TypeError(f"a search index holds no {purpose} of aggregates; use it as the view of a projection")

    application_recorder = process_recorder = aggregate_recorder


class SearchFollower:
    """Keeps the search index of a store up to date in a thread of its own. A context manager.

    Where another process adds events to the index at the same time, the follower stops with the library's
    ``IntegrityError``: one follower is enough. Raises ``SearchRefused`` when it is made. Cost: the events that are new.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        _STORES[store.database.uuid] = store
        module = f"{__name__}:"
        self._runner = ProjectionRunner(
            application_class=ConversationBatches,
            projection_class=_KeepIndex,
            view_class=SearchView,
            env={
                "PERSISTENCE_MODULE": f"{module}OpenStore",
                "STORE": store.database.uuid,
                "SEARCH_PERSISTENCE_MODULE": f"{module}ViewFactory",
            },
        )
        self._view = self._runner.view

    def catch_up(self, timeout_s: float) -> None:
        """Wait until every event that is in the store now is in the index. Raises ``TimeoutError``."""
        self._runner.wait(self._runner.app.recorder.max_notification_id(), timeout=timeout_s)

    def run(self, every_s: float, on_events: Callable[[int], object]) -> None:
        """Follow until Ctrl-C or an error; remove what was erased every ``every_s`` seconds, and tell how many events
        were added.
        """
        while not self._runner.is_interrupted.is_set():
            self._runner.run_forever(timeout=every_s)
            self._view.index.remove_erased()
            on_events(self._view.events)

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._runner.__exit__(kind, error, traceback)
            self._view.index.remove_erased()
        finally:
            self._view.index.close()
            _STORES.pop(self._store.database.uuid, None)
