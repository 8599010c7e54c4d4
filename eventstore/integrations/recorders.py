"""Our recorder as the eventsourcing library expects it: its events, its subscriptions, and views of projections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.persistence import (
    ApplicationRecorder,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from foldlog.eventstore import codec
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.following import placed_rows
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import PLAIN, chained, from_microseconds, sound
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.changes import NewRecords
from foldlog.eventstore.recorders.errors import RecorderError
from foldlog.eventstore.recorders.types import Place, Record, Row

T = TypeVar("T")

_PAGE = 500
_POLL_S = 0.005
_NO_LIMIT = 2**62
_OF_VIEWS = 0
"""The key that records of views are kept under; no conversation has it."""
_VIEW_CODEC = RowCodec("")


@dataclass(frozen=True)
class _RecordedEvent(StoredEvent):
    recorded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _RecordedNotification(Notification):
    recorded_at: datetime | None = field(default=None, compare=False)


class StoreRecorder:
    """One of our recorders, whose errors are those of the library."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._recorder = database.recorder

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a write transaction and return its result once that is durable.

        Raises the library's ``IntegrityError`` where a version or a tracking position is taken.
        """
        with errors_of_the_library():
            return self._recorder.transact(work)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Open a read transaction."""
        with errors_of_the_library(), self._recorder.read() as reader:
            yield reader

    def value(self, name: str) -> str:
        """Return a fact about the store; see ``foldlog.eventstore.recorders.base.Recorder.value``."""
        with errors_of_the_library():
            return self._recorder.value(name)

    def close(self) -> None:
        """Close the database."""
        with errors_of_the_library():
            self._recorder.close()


@contextmanager
def errors_of_the_library() -> Iterator[None]:
    try:
        yield
    except RecorderError as error:
        kind = getattr(persistence, type(error).__name__, persistence.OperationalError)
        raise kind(str(error)) from error


class StoreTracking(TrackingRecorder):
    """Keeps the positions of projections in a store."""

    def __init__(self, recorder: StoreRecorder) -> None:
        self.recorder = recorder

    def track(self, transaction: Transaction, tracking: Tracking) -> None:
        """Record the position of a projection, within the caller's transaction. Raises ``IntegrityError`` where that
        notification was processed already.
        """
        transaction.set_value(f"tracking {tracking.application_name}", str(tracking.notification_id))

    def insert_tracking(self, tracking: Tracking) -> None:
        self.recorder.transact(lambda transaction: self.track(transaction, tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        found = self.recorder.value(f"tracking {application_name}")
        return int(found) if found else None


class TrackingView(StoreTracking):
    """The base of a projection's view. The view writes its records and its position in one transaction.

    class Counts(TrackingView):
        def count(self, kind: str, tracking: Tracking) -> None:
            def work(transaction: Transaction) -> None:
                self.put_records(transaction, "counts", [...])
                self.track(transaction, tracking)
            self.recorder.transact(work)
    """

    def record_at(self, reader: Reader, name: str, version: int) -> Record | None:
        """Return the newest record of this view at or before a version; records belong to no conversation."""
        found = reader.records(_OF_VIEWS, name, version, 1, backwards=True)
        return _VIEW_CODEC.decoded_record(name, found[0]) if found else None

    def put_records(self, transaction: Transaction, name: str, records: Iterable[Record]) -> None:
        """Keep records of this view, within a transaction; one of the same version is replaced."""
        encoded = [_VIEW_CODEC.encoded_record(name, record) for record in records]
        transaction.change(_OF_VIEWS, NewRecords(name, encoded))


class EventRecorder(StoreTracking, ProcessRecorder):
    """The library's recorders of events on one of our recorders."""

    def __init__(self, recorder: StoreRecorder, subscription: type[PollingSubscription] | None = None) -> None:
        super().__init__(recorder)
        self._subscription = subscription or PollingSubscription

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Insert all events or none, and the tracking, if given. Raises ``IntegrityError`` where a version is taken."""
        tracking: Tracking | None = kwargs.get("tracking")
        now = time.time_ns() // 1_000

        def insert(transaction: Transaction) -> list[Place]:
            if tracking is not None:
                self.track(transaction, tracking)
            return [_insert(self.recorder.database, transaction, stored, now) for stored in stored_events]

        return [place() for place in self.recorder.transact(insert)]

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return events of a conversation. Raises ``CorruptEvent`` where one is damaged. Cost: those in the range of
        versions, also with ``limit`` if ``desc``.
        """
        database = self.recorder.database
        with self.recorder.read() as reader:
            found = database.find(reader, str(originator_id))
            if found is None:
                return []
            start = 0 if gt is None else gt + 1
            stop = found.version if lte is None else min(lte + 1, found.version)
            at_most = _NO_LIMIT if limit is None or desc else limit  # ids may have gaps: the newest are found last
            rows = ReadTransaction(reader, found, database).rows(start, stop, at_most)
            return [_RecordedEvent(**_fields(found.id, row)) for row in (rows[::-1][:limit] if desc else rows)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        after = (start or 0) - 1 if inclusive_of_start else (start or 0)
        selected: list[Notification] = []
        with self.recorder.read() as reader:
            while len(selected) < limit:
                page = placed_rows(self.recorder.database, reader, after, _PAGE if topics else limit)
                for position, conversation, row in page:
                    if (topics and _topic(row) not in topics) or (stop is not None and position > stop):
                        continue
                    if row.encoding != PLAIN and selected:
                        return selected[:limit]  # who asks for what follows is told of the damage
                    selected.append(_RecordedNotification(id=position, **_fields(conversation, row, position)))
                if not page or (stop is not None and page[-1].position >= stop):
                    break
                after = page[-1].position
        return selected[:limit]

    def max_notification_id(self) -> int | None:
        return int(self.recorder.value("last_position")) or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        return self._subscription(self, gt, topics)


class EventsOfAggregates(EventRecorder):
    """The same events without their positions and times."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super().insert_events(stored_events, **kwargs)

    def select_events(self, originator_id: UUID | str, **which: Any) -> Sequence[StoredEvent]:
        selected = super().select_events(originator_id, **which)
        return [StoredEvent(each.originator_id, each.originator_version, each.topic, each.state) for each in selected]


class PollingSubscription(Subscription[ApplicationRecorder]):
    """Polls for new notifications, and reads them when another connection has committed. A poll costs microseconds."""

    def __init__(self, recorder: EventRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        self.store_recorder = recorder.recorder
        self._page: Iterator[Notification] = iter(())
        self._seen = ""

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            for notification in self._page:
                self._last_notification_id = notification.id
                return notification
            self._page = iter(self._poll())
        raise StopIteration

    def select(self, after: int | None) -> Sequence[Notification]:
        """Return the next notifications after a position; an empty sequence where there is none yet."""
        return self._recorder.select_notifications(after, _PAGE, topics=self._topics, inclusive_of_start=False)

    def _poll(self) -> Sequence[Notification]:
        data_version = self.store_recorder.value("data_version")
        if data_version != self._seen:
            page = self.select(self._last_notification_id)
            if page:
                return page
            self._seen = data_version
        time.sleep(_POLL_S)
        return ()


def _insert(database: Database, transaction: Transaction, stored: StoredEvent, now: int) -> Place:
    kind, schema = kind_and_schema(stored.topic)
    version, conversation = stored.originator_version, str(stored.originator_id)
    encoded = codec.encode(codec.decode(kind, schema, stored.state, version))
    as_stored = encoded._replace(kind=kind, schema=schema, body=stored.state)
    found = database.find(transaction, conversation) or begin_new(transaction, database, conversation, now)
    writing = WriteTransaction(transaction, found, database)
    rows, _ = chained(found._replace(version=version), [as_stored], now)
    place = writing.insert(rows)
    writing.end()
    return place


def kind_and_schema(topic: str) -> tuple[str, int]:
    """Return the kind and schema of a topic ``name/schema``. Any other topic is a kind without a schema."""
    kind, _, schema = topic.rpartition("/")
    return (kind, int(schema)) if kind and schema.isdigit() else (topic, 0)


def _topic(row: Row) -> str:
    return f"{row.kind}/{row.schema}" if row.schema else row.kind


def _fields(conversation: str, row: Row, position: int | None = None) -> dict[str, Any]:
    """Return the fields of an event. Raises ``CorruptEvent`` for a damaged row."""
    sound(conversation, row, position)
    return {
        "originator_id": conversation,
        "originator_version": row.id,
        "topic": _topic(row),
        "state": row.body,
        "recorded_at": from_microseconds(row.recorded_at),
    }
