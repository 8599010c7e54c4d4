"""Update tables that are derived from a store, with the runner of the eventsourcing library.

New events, and the position of the newest event, are written in one transaction. So each event is
added exactly once, even after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar

from eventsourcing.persistence import InfrastructureFactory, Tracking, TrackingRecorder
from eventsourcing.projection import BaseProjectionRunner, Projection
from eventsourcing.utils import Environment

from foldlog._base.telemetry import measure, tell
from foldlog._derived.tables import Derived
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.integrations.eventsourcing import (
    ConversationBatches,
    Conversations,
    Factory,
    RecordedBatch,
)

_LAG_MAX_S = 60.0
"""If an event is not in the tables after this number of seconds, a message is logged."""
_MESSAGE_EVERY_S = 60.0
"""The minimum time in seconds between two messages about late events."""


D = TypeVar("D", bound=Derived[Any])


class DerivedView(TrackingRecorder, Generic[D]):
    """Presents the derived tables to the eventsourcing library as one of its views. ``events``
    counts the events that were added since the view was opened.
    """

    def __init__(self, derived: D) -> None:
        self.derived = derived
        self.events = 0
        self._after = derived.position

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Apply a batch. If another process has applied events since the last batch, ignore the
        batch, and read all new events from the store.
        """
        added = self.derived.apply(batch.events, tracking.notification_id, after=self._after)
        self.events += self.derived.catch_up() if added is None else added
        self._after = self.derived.position

    def insert_tracking(self, tracking: Tracking) -> None:
        self.add(RecordedBatch(()), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.derived.position or None

    def close(self) -> None:
        self.derived.close()


class _DerivedProjection(Projection[DerivedView[D]]):
    def process_event(self, domain_event: RecordedBatch, tracking: Tracking) -> None:
        self.view.add(domain_event, tracking)


class Follower(Generic[D]):
    """Updates tables that are derived from a store, such as an audit database, in a thread.

    A ``with`` block closes the tables at its end, but not the store. Other processes may update the
    same tables. Cost: the new events are read.
    """

    def __init__(self, store: Store, derived: D) -> None:
        class OfStore(ConversationBatches):
            name = Conversations.name  # by default, the library uses the name of the class

            def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
                return Factory(env, store.database)

        self.view = view = DerivedView(derived)
        self._store = store
        self._silent_until = 0.0
        try:
            self._runner = BaseProjectionRunner(
                projection=_DerivedProjection(view),
                application_class=OfStore,
                tracking_recorder=view,
                topics=(),
            )
        except BaseException:
            view.close()
            raise

    def catch_up(self, timeout_s: float) -> None:
        """Wait until the tables have all events that are in the store now. Raises ``TimeoutError``
        after ``timeout_s`` seconds.
        """
        self._runner.wait(self._runner.app.recorder.max_notification_id(), timeout=timeout_s)

    def run(self, every_s: float, on_events: Callable[[int], object]) -> None:
        """Follow the store until Ctrl-C or an error. Every ``every_s`` seconds, refresh the view
        and report the number of added events.
        """
        while not self._runner.is_interrupted.is_set():
            self._runner.run_forever(timeout=every_s)
            self.view.derived.refresh()
            self._tell_lag()
            on_events(self.view.events)

    def _tell_lag(self) -> None:
        """Report the age of the first event that is not yet in the tables, if it can be read."""
        with suppress(EventStoreError):
            for first in self._store.follow(self.view.derived.position, limit=1):
                seconds = (datetime.now(UTC) - first.recorded_at).total_seconds()
                is_due = seconds > _LAG_MAX_S and time.monotonic() >= self._silent_until
                if is_due:
                    self._silent_until = time.monotonic() + _MESSAGE_EVERY_S
                # ``tell`` logs a message in addition to the measurement.
                report = tell if is_due else measure
                report(
                    "foldlog.follower.behind",
                    follower=type(self.view.derived).__name__,
                    seconds=seconds,
                    position=first.position,
                )

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._runner.__exit__(*error)
            self.view.derived.refresh()
        finally:
            self.view.close()
