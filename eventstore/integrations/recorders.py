"""The library's recorders of events and snapshots on one of our recorders, and its subscriptions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
)

from eventstore import codec
from eventstore.integrations.tracking import StoreRecorder, StoreTracking
from eventstore.log.database import Database
from eventstore.log.following import DecodedRow, placed_rows
from eventstore.log.reading import ReadTransaction
from eventstore.log.row import chained, from_microseconds
from eventstore.log.writing import WriteTransaction, begin_new
from eventstore.recorders.base import Transaction
from eventstore.recorders.errors import IntegrityError
from eventstore.recorders.types import Conversation, Place, Record, Row

_SNAPSHOTS = "snapshots of the eventsourcing library"
_PAGE = 500
_POLL_S = 0.005
_EARLIEST = 0
_NO_STOP = 2**62


@dataclass(frozen=True)
class _RecordedEvent(StoredEvent):
    recorded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _RecordedNotification(Notification):
    recorded_at: datetime | None = field(default=None, compare=False)


class EventRecorder(StoreTracking, ProcessRecorder):
    """The library's recorder interfaces on one of our recorders."""

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
        start = _EARLIEST if gt is None else gt + 1
        database = self.recorder.database
        with self.recorder.read() as reader:
            found = database.find(reader, str(originator_id))
            if found is None:
                return []
            stop = found.version if lte is None else min(lte + 1, found.version)
            reading = ReadTransaction(reader, found, database)
            if not desc:
                rows = reading.rows(start, stop, _NO_STOP if limit is None else limit)
                return [_stored_event(found.id, row) for row in rows]
            wanted, span = (stop - start if limit is None else limit), 0
            newest: Sequence[Row] = ()
            while len(newest) < wanted and stop - span > start:
                # Ids may have gaps here, so the window grows until enough is in it.
                span = max(2 * span, wanted)
                newest = reading.rows(max(start, stop - span), stop, span)
            return [_stored_event(found.id, row) for row in reversed(newest[-wanted:] if wanted else [])]

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
                selected += [
                    notification
                    for notification in map(_notification, page)
                    if (not topics or notification.topic in topics) and (stop is None or notification.id <= stop)
                ]
                if not page or (stop is not None and page[-1].position >= stop):
                    break
                after = page[-1].position
        return selected[:limit]

    def max_notification_id(self) -> int | None:
        return int(self.recorder.value("last_position")) or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        return self._subscription(self, gt, topics)


class SnapshotRecorder(AggregateRecorder):
    """Snapshots of the library's aggregates, as records: they have the versions of events without being events."""

    def __init__(self, recorder: StoreRecorder, purpose: str) -> None:
        self.recorder = recorder
        self._projection = f"{_SNAPSHOTS}: {purpose}"

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> None:
        def insert(transaction: Transaction) -> None:
            for stored in stored_events:
                database = self.recorder.database
                found = _found_or_begun(database, transaction, str(stored.originator_id), time.time_ns() // 1_000)
                writing = WriteTransaction(transaction, found, database)
                kept = writing.record_at(self._projection, stored.originator_version)
                if kept is not None and kept.version == stored.originator_version:
                    raise IntegrityError(
                        f"{writing.conversation!r} has a snapshot of version {stored.originator_version} already"
                    )
                body = stored.topic.encode() + b"\n" + stored.state
                writing.put_records(self._projection, [Record(stored.originator_version, 1, None, body)])
                writing.end()

        self.recorder.transact(insert)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        with self.recorder.read() as reader:
            found = self.recorder.database.find(reader, str(originator_id))
            if found is None:
                return []
            reading = ReadTransaction(reader, found, self.recorder.database)
            records = list(reading.records(self._projection, -1 if gt is None else gt))
        kept = [record for record in records if lte is None or record.version <= lte]
        ordered = kept[::-1] if desc else kept
        return [_snapshot(found.id, record) for record in ordered[:limit]]


class PollingSubscription(Subscription[ApplicationRecorder]):
    """Polls for new notifications, and reads them when another connection has committed. A poll costs microseconds."""

    def __init__(self, recorder: EventRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder, gt, topics)
        self.store_recorder = recorder.recorder
        self._page: Iterator[Notification] = iter(())
        self._seen = ""

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            notification = next(self._page, None)
            if notification is not None:
                self._last_notification_id = notification.id
                return notification
            self._page = iter(self._wait())
        raise StopIteration

    def select(self, after: int | None) -> Sequence[Notification]:
        """Return the next notifications after a position; an empty sequence where there is none yet."""
        return self._recorder.select_notifications(after, _PAGE, topics=self._topics, inclusive_of_start=False)

    def _wait(self) -> Sequence[Notification]:
        while not self._has_been_stopped:
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
    version = stored.originator_version
    encoded = codec.encode(codec.decode(kind, schema, stored.state, version))
    as_stored = encoded._replace(kind=kind, schema=schema, body=stored.state)
    found = _found_or_begun(database, transaction, str(stored.originator_id), now)
    writing = WriteTransaction(transaction, found, database)
    rows, _ = chained(found._replace(version=version), [as_stored], now)
    place = writing.insert(rows)
    writing.end()
    return place


def _found_or_begun(database: Database, transaction: Transaction, conversation: str, now: int) -> Conversation:
    found = database.find(transaction, conversation)
    return begin_new(transaction, database, conversation, now) if found is None else found


def kind_and_schema(topic: str) -> tuple[str, int]:
    """Return the kind and schema of a topic ``name/schema``. Any other topic is a kind without a schema."""
    kind, _, schema = topic.rpartition("/")
    return (kind, int(schema)) if kind and schema.isdigit() else (topic, 0)


def _topic(row: Row) -> str:
    return f"{row.kind}/{row.schema}" if row.schema else row.kind


def _stored_event(conversation: str, row: Row) -> StoredEvent:
    return _RecordedEvent(
        originator_id=conversation,
        originator_version=row.id,
        topic=_topic(row),
        state=row.body,
        recorded_at=from_microseconds(row.recorded_at),
    )


def _notification(placed: DecodedRow) -> Notification:
    row = placed.row
    return _RecordedNotification(
        originator_id=placed.conversation,
        originator_version=row.id,
        topic=_topic(row),
        state=row.body,
        id=placed.position,
        recorded_at=from_microseconds(row.recorded_at),
    )


def _snapshot(conversation: str, record: Record) -> StoredEvent:
    topic, _, state = record.body.partition(b"\n")
    return StoredEvent(conversation, record.version, topic.decode(), state)
