"""Following a store in batches with the eventsourcing library's runner.

The library gives a projection one event at a time. A read model that writes a transaction for each of them falls
behind a busy store. ``ConversationBatches`` is ``Conversations`` for such read models: its runner gives them all events
that are there, up to 1,000 at once, with the position of the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, cast

from eventsourcing.persistence import (
    ApplicationRecorder,
    InfrastructureFactory,
    Mapper,
    Notification,
    StoredEvent,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.projection import BaseProjectionRunner, Projection
from eventsourcing.utils import Environment

from foldlog.eventstore.errors import CorruptEvent
from foldlog.eventstore.integrations.eventsourcing import ConversationMapper, Conversations, Factory
from foldlog.eventstore.integrations.recorders import EventRecorder, PollingSubscription, errors_of_the_library
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.following import DecodedRow, followed, recorded
from foldlog.eventstore.log.results import Recorded

BATCH_MAX = 1_000


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """Events of the whole store in the order of their positions, at least one.

    In the place of an unreadable event stands the ``CorruptEvent`` that names it, with its position.
    """

    events: tuple[Recorded | CorruptEvent, ...]


class BatchView(TrackingRecorder, ABC):
    """A read model that takes batches. ``events`` is how many it has added since it was opened."""

    events: int

    @abstractmethod
    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Add the events of a batch and its position in one transaction."""

    @abstractmethod
    def refresh(self) -> object:
        """Do maintenance that is needed only from time to time, not for each batch."""

    @abstractmethod
    def close(self) -> None:
        """Close the read model."""


V = TypeVar("V", bound=BatchView)


class _BatchProjection(Projection[V]):
    def process_event(self, domain_event: RecordedBatch, tracking: Tracking) -> None:
        self.view.add(domain_event, tracking)


class BatchFollower(Generic[V]):
    """Keeps a view of an open store up to date in a thread of its own. A context manager, which closes the view and
    leaves the store open. Cost: the new events.
    """

    def __init__(self, database: Database, view: V) -> None:
        class OfStore(ConversationBatches):
            name = Conversations.name  # else the library takes that of the class

            def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
                return Factory(env, database)

        self.view = view
        try:
            self._runner = BaseProjectionRunner(
                projection=_BatchProjection(view), application_class=OfStore, tracking_recorder=view, topics=()
            )
        except BaseException:
            view.close()
            raise

    def catch_up(self, timeout_s: float) -> None:
        """Wait until every event that is in the store now is in the view. Raises ``TimeoutError``."""
        self._runner.wait(self._runner.app.recorder.max_notification_id(), timeout=timeout_s)

    def run(self, every_s: float, on_events: Callable[[int], object]) -> None:
        """Follow until Ctrl-C or an error. Every ``every_s`` seconds, refresh the view and report the added events."""
        while not self._runner.is_interrupted.is_set():
            self._runner.run_forever(timeout=every_s)
            self.view.refresh()
            on_events(self.view.events)

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._runner.__exit__(*error)
            self.view.refresh()
        finally:
            self.view.close()


@dataclass(frozen=True)
class _Batch(Notification):
    rows: tuple[DecodedRow, ...] = ()


class _BatchMapper(ConversationMapper):
    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        if isinstance(stored_event, _Batch):
            return RecordedBatch(tuple(recorded(stored_event.rows)))
        return super().to_domain_event(stored_event)


class ConversationBatches(Conversations):
    """The conversations of a store, for a runner that gives its projection a ``RecordedBatch`` at a time."""

    name = Conversations.name

    def construct_mapper(self) -> Mapper[str]:
        return _BatchMapper(transcoder=self.construct_transcoder())

    def construct_recorder(self) -> ApplicationRecorder:
        return EventRecorder(cast("Factory", self.factory).recorder, _BatchSubscription)


class _BatchSubscription(PollingSubscription):
    def select(self, after: int | None) -> Sequence[Notification]:
        with errors_of_the_library():
            rows = followed(self.store_recorder.database, after or 0, BATCH_MAX)
        if not rows:
            return ()
        last = rows[-1]
        return [_Batch(last.conversation, last.row.id, "", b"", id=last.position, rows=tuple(rows))]
