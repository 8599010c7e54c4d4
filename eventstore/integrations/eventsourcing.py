"""The eventsourcing library on our recorders.

Set ``PERSISTENCE_MODULE=eventstore.integrations.eventsourcing`` and ``FOLDLOG_URL=sqlite:///…``.

``Conversations`` is the library's ``Application`` on a store. A ``ProjectionRunner`` follows it and gives every event
to a projection of yours, exactly once: the projection writes its result and its position in one transaction. Its view
may lie in the same store (``TrackingView``) or in a database of its own (``docs/PROJECTIONS.md``).

Events are ``ConversationEvent``s: one of our registered kinds with its conversation (``originator_id``) and its id
(``originator_version``). The topic of a stored event is its registered name and schema version, never a Python path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import UUID

from eventsourcing import persistence
from eventsourcing.application import Application
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    Mapper,
    MapperDeserialisationError,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic

from eventstore import codec
from eventstore.events import Event
from eventstore.opening import open_recorder
from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.errors import IntegrityError, RecorderError
from eventstore.recorders.types import Conversation, Place, Record, Row
from eventstore.stored.beginning import begin_new
from eventstore.stored.database import Database, DecodedRow
from eventstore.stored.row_codec import RowCodec, WriteSettings
from eventstore.stored.rows import chained, from_microseconds, with_times
from eventstore.transaction import ReadTransaction, WriteTransaction

__all__ = ["ConversationEvent", "ConversationMapper", "Conversations", "Factory", "StoreRecorder", "TrackingView"]

T = TypeVar("T")

_SNAPSHOTS = "snapshots of the eventsourcing library"
_PAGE = 500
_POLL_S = 0.005
_EARLIEST = 0
_NO_STOP = 2**62


@dataclass(frozen=True, slots=True)
class ConversationEvent:
    """An event with its conversation and its id there, and the store's clock when it was recorded.

    ``recorded_at`` is None for an event that was made and not read.
    """

    originator_id: str
    originator_version: int
    event: Event
    recorded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _RecordedEvent(StoredEvent):
    recorded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _RecordedNotification(Notification):
    recorded_at: datetime | None = field(default=None, compare=False)


class Conversations(Application[str]):
    """The conversations of a store as an application of the library.

    Its ``name`` is the one under which a view records how far it has followed. Appending with its ``events.put`` checks
    versions only; the rules of a conversation are those of ``Store.append``.
    """

    name = "conversations"


class ConversationMapper(Mapper[str]):
    """``ConversationEvent`` to ``StoredEvent`` and back, by our codec and registry. Transcoder and cipher are not
    used.
    """

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """Encode an event. Raises ``InvalidEvent`` or ``UnknownEventType``, as ``Store.append`` does."""
        encoded = codec.encode(cast("ConversationEvent", domain_event).event)
        return StoredEvent(
            originator_id=domain_event.originator_id,
            originator_version=domain_event.originator_version,
            topic=f"{encoded.kind}/{encoded.schema}",
            state=encoded.body,
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """Decode an event; an unknown kind becomes an ``UnknownEvent``. Raises ``MapperDeserialisationError``."""
        kind, schema = _kind_and_schema(stored_event.topic)
        try:
            event = codec.decode(kind, schema, stored_event.state, stored_event.originator_version)
        except codec.Undecodable as error:
            raise MapperDeserialisationError(
                f"event {stored_event.originator_version} of {stored_event.originator_id!r} cannot be read: {error}"
            ) from error
        recorded_at = getattr(stored_event, "recorded_at", None)
        if recorded_at is not None:
            with_times((event,), recorded_at)
        return ConversationEvent(str(stored_event.originator_id), stored_event.originator_version, event, recorded_at)


class StoreRecorder:
    """One of our recorders, whose errors are those of the library."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._recorder = database.recorder

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a write transaction and return its result once that is durable.

        Raises the library's ``IntegrityError`` where a version or a tracking position is taken.
        """
        with _errors_of_the_library():
            return self._recorder.transact(work)

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Open a read transaction."""
        with _errors_of_the_library(), self._recorder.read() as reader:
            yield reader

    def value(self, name: str) -> str:
        """Return a fact about the store; see ``eventstore.recorders.base.Recorder.value``."""
        with _errors_of_the_library():
            return self._recorder.value(name)

    def close(self) -> None:
        """Close the database."""
        with _errors_of_the_library():
            self._recorder.close()


@contextmanager
def _errors_of_the_library() -> Iterator[None]:
    try:
        yield
    except RecorderError as error:
        kind = getattr(persistence, type(error).__name__, persistence.OperationalError)
        raise kind(str(error)) from error


class _Recorder(ProcessRecorder):
    """The library's recorder interfaces on one of our recorders."""

    def __init__(self, recorder: StoreRecorder, subscription: type[PollingSubscription] | None = None) -> None:
        self.recorder = recorder
        self._subscription = subscription or PollingSubscription

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """All or none; with ``tracking=`` the tracking too. Raises ``IntegrityError`` where a version is taken
        already.
        """
        tracking: Tracking | None = kwargs.get("tracking")
        now = time.time_ns() // 1_000

        def insert(transaction: Transaction) -> list[Place]:
            if tracking is not None:
                transaction.set_value(f"tracking {tracking.application_name}", str(tracking.notification_id))
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
            if not desc:
                rows = database.rows(reader, found, start, stop, _NO_STOP if limit is None else limit)
                return [_stored_event(found.id, row) for row in rows]
            wanted, span = (stop - start if limit is None else limit), 0
            newest: Sequence[Row] = ()
            while len(newest) < wanted and stop - span > start:
                # Ids may have gaps here, so the window grows until enough is in it.
                span = max(2 * span, wanted)
                newest = database.rows(reader, found, max(start, stop - span), stop, span)
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
                page = self.recorder.database.placed_rows(reader, after, _PAGE if topics else limit)
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

    def insert_tracking(self, tracking: Tracking) -> None:
        self.recorder.transact(
            lambda transaction: transaction.set_value(
                f"tracking {tracking.application_name}", str(tracking.notification_id)
            )
        )

    def max_tracking_id(self, application_name: str) -> int | None:
        found = self.recorder.value(f"tracking {application_name}")
        return int(found) if found else None


_OF_VIEWS = 0
"""The key that records of views are kept under; no conversation has it."""
_VIEW_CODEC = RowCodec.of("")


class TrackingView(TrackingRecorder):
    """The base of a projection's view: what it keeps and how far it has come are written in one transaction.

    class Counts(TrackingView):
        def count(self, kind: str, tracking: Tracking) -> None:
            def work(transaction: Transaction) -> None:
                self.put_records(transaction, "counts", [...])
                self.track(transaction, tracking)
            self.recorder.transact(work)
    """

    def __init__(self, recorder: StoreRecorder) -> None:
        self.recorder = recorder

    def record_at(self, reader: Reader, name: str, version: int) -> Record | None:
        """Return the newest record of this view at or before a version; records belong to no conversation."""
        found = reader.records(_OF_VIEWS, name, version, 1, backwards=True)
        return _VIEW_CODEC.decoded_record(name, found[0]) if found else None

    def put_records(self, transaction: Transaction, name: str, records: Iterable[Record]) -> None:
        """Keep records of this view, within a transaction; one of the same version is replaced."""
        transaction.put_records(name, _OF_VIEWS, [_VIEW_CODEC.encoded_record(name, record) for record in records])

    def track(self, transaction: Transaction, tracking: Tracking) -> None:
        """Within a transaction of one's own. Raises ``IntegrityError`` where that notification was processed
        already.
        """
        transaction.set_value(f"tracking {tracking.application_name}", str(tracking.notification_id))

    def insert_tracking(self, tracking: Tracking) -> None:
        self.recorder.transact(lambda transaction: self.track(transaction, tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        found = self.recorder.value(f"tracking {application_name}")
        return int(found) if found else None


class _SnapshotRecorder(AggregateRecorder):
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
    """Asks for what is new whenever another connection has committed. A poll costs microseconds."""

    def __init__(self, recorder: _Recorder, gt: int | None, topics: Sequence[str]) -> None:
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


_View = TypeVar("_View", bound=TrackingRecorder)


class Factory(InfrastructureFactory[TrackingRecorder]):
    """Makes the library's recorders on the store that ``FOLDLOG_URL`` names (``memory:`` if none)."""

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        if self.env.get(self.CIPHER_TOPIC) or self.env.get("CIPHER_KEY") or self.env.get(self.COMPRESSOR_TOPIC):
            raise InfrastructureFactoryError(
                "foldlog's store encrypts and compresses events itself; "
                "leave CIPHER_TOPIC, CIPHER_KEY and COMPRESSOR_TOPIC unset"
            )
        recorder = open_recorder(self.env.get("FOLDLOG_URL", "memory:") or "memory:")
        self._recorder = StoreRecorder(Database(recorder, WriteSettings.chosen(None, None)))

    def mapper(self, transcoder: Any = None, mapper_class: Any = None) -> Any:
        return super().mapper(transcoder, mapper_class or ConversationMapper)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        return _SnapshotRecorder(self._recorder, purpose)

    def application_recorder(self) -> ApplicationRecorder:
        return _Recorder(self._recorder)

    def tracking_recorder(self, tracking_recorder_class: type[_View] | None = None) -> _View:
        named = self.env.get(self.TRACKING_RECORDER_TOPIC)
        view: Any = tracking_recorder_class or (resolve_topic(named) if named else TrackingView)
        return cast("_View", view(self._recorder))

    def recorder_in_batches(self, subscription: type[PollingSubscription]) -> ApplicationRecorder:
        """Return an application recorder whose subscriptions are of another class."""
        return _Recorder(self._recorder, subscription)

    def process_recorder(self) -> ProcessRecorder:
        return _Recorder(self._recorder)

    def close(self) -> None:
        self._recorder.close()


def _insert(database: Database, transaction: Transaction, stored: StoredEvent, now: int) -> Place:
    kind, schema = _kind_and_schema(stored.topic)
    version = stored.originator_version
    encoded = codec.encode(codec.decode(kind, schema, stored.state, version))
    as_stored = encoded._replace(kind=kind, schema=schema, body=stored.state)
    found = _found_or_begun(database, transaction, str(stored.originator_id), now)
    writing = WriteTransaction(transaction, found, database)
    place = writing.insert(chained(found._replace(version=version), [as_stored], now))
    writing.end()
    return place


def _found_or_begun(database: Database, transaction: Transaction, conversation: str, now: int) -> Conversation:
    found = database.find(transaction, conversation)
    return begin_new(transaction, conversation, now) if found is None else found


def _kind_and_schema(topic: str) -> tuple[str, int]:
    """Return the kind and schema of a topic ``name/schema``. Any other topic, such as those of the library's own tests,
    is a kind without schema.
    """
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
