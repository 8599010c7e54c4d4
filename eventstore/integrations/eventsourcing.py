"""Run applications and projections of the eventsourcing library on a foldlog store.

Set ``PERSISTENCE_MODULE=foldlog.eventstore.integrations.eventsourcing`` and
``FOLDLOG_URL=sqlite:///…``.

``Conversations`` is a subclass of the library's ``Application`` that works on a store. A
``ProjectionRunner`` follows a ``Conversations`` application and passes every event to your
projection once. Your projection writes its result and its position in one transaction. A projection
may write its view to the same store (``TrackingView``) or to another database
(``docs/PROJECTIONS.md``).

The library's events are ``ConversationEvent`` objects. A ``ConversationEvent`` is a foldlog event
with its conversation (``originator_id``) and its id (``originator_version``). The topic of a stored
event is its kind with its schema version, never a Python path.

If a read model cannot follow a busy store with one transaction per event, use
``ConversationBatches``. The runner of ``ConversationBatches`` passes up to 1,000 new events at a
time, as a ``RecordedBatch``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar, cast
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

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import codec
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.codec_json import Undecodable
from foldlog.eventstore.errors import CorruptEvent, InvalidEvent, KeyUnavailable, StoreUnavailable
from foldlog.eventstore.events import Event, UnknownEvent
from foldlog.eventstore.log.database import Database, check_not_erased
from foldlog.eventstore.log.following import decode_placed, placed_rows, read_placed_rows
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.row import (
    PLAIN,
    from_microseconds,
    make_rows,
    new_salt,
    sound,
    with_times,
)
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.opening import recorder_and_settings
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import (
    NOT_BEGUN,
    Conversation,
    Place,
    PlacedRow,
    Record,
    Row,
)

BATCH_MAX = 1_000
"""The maximal number of events in a ``RecordedBatch``."""
_PAGE = 500
_POLL_S = 0.005
"""The pause, in seconds, between two looks for new events."""
_NO_LIMIT = 2**62
_IDS: Final = 2**32
"""A row has four bytes for the id of its event."""
_SCHEMA_DIGITS_MAX = 9
"""The number of digits of the greatest schema version that a topic can name."""
_VIEWS_KEY = 0
"""A ``TrackingView`` stores its records under the key 0, which no conversation has."""
_VIEW_CODEC = RowCodec("")

T = TypeVar("T")
V = TypeVar("V", bound=TrackingRecorder)


# -- events


@dataclass(frozen=True, slots=True)
class ConversationEvent:
    """An event with its conversation, its id in the conversation, and the time at which the store
    recorded it.

    ``recorded_at`` is None if the event was not read from a store.
    """

    originator_id: str
    originator_version: int
    event: Event
    recorded_at: datetime | None = field(default=None, compare=False)


class Conversations(Application[str]):
    """The conversations of a store, as an application of the eventsourcing library.

    A view stores its position under the ``name`` of its application. ``events.put`` checks the
    versions, but not the rules that ``Store.append`` checks.
    """

    name = "conversations"


class ConversationMapper(Mapper[str]):
    """Converts a ``ConversationEvent`` to a ``StoredEvent`` and back. The mapper uses foldlog's
    codec instead of the library's transcoder and cipher.
    """

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """Encode an event. Raises the errors of ``Store.append``. Raises ``InvalidEvent`` for an
        event of an aggregate, because a foldlog store keeps only conversations.
        """
        if not isinstance(domain_event, ConversationEvent):
            raise InvalidEvent(
                f"{type(domain_event).__qualname__} is an event of an aggregate, but foldlog's"
                " persistence module stores only events of conversations; set another persistence"
                " module for the application of your aggregates:"
                " MYAPP_PERSISTENCE_MODULE=eventsourcing.sqlite for the class MyApp"
            )
        encoded = codec.encode(domain_event.event, finite=True)
        return StoredEvent(
            originator_id=domain_event.originator_id,
            originator_version=domain_event.originator_version,
            topic=f"{encoded.kind}/{encoded.schema}",
            state=encoded.body,
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """Decode an event. An event of an unknown kind becomes an ``UnknownEvent``. Raises
        ``MapperDeserialisationError`` if the stored event is damaged.
        """
        kind, schema = kind_and_schema(stored_event.topic)
        try:
            event = codec.decode(kind, schema, stored_event.state, stored_event.originator_version)
        except Undecodable as error:
            raise MapperDeserialisationError(
                f"event {stored_event.originator_version} of {stored_event.originator_id!r} cannot"
                f" be read: {error}"
            ) from error
        recorded_at = getattr(stored_event, "recorded_at", None)
        if recorded_at is not None:
            with_times((event,), recorded_at)
        return ConversationEvent(
            str(stored_event.originator_id), stored_event.originator_version, event, recorded_at
        )


# -- recorders


@dataclass(frozen=True)
class _RecordedEvent(StoredEvent):
    """A stored event with the time when it was recorded."""

    recorded_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _RecordedNotification(Notification):
    """A notification with the time when its event was recorded."""

    recorded_at: datetime | None = field(default=None, compare=False)


class StoreRecorder:
    """A recorder of foldlog that raises the errors of the eventsourcing library."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._recorder = database.recorder

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a write transaction. Wait until the transaction is durable, then return
        the result of ``work``.

        Raises the library's ``IntegrityError`` if another writer took a version or a tracking
        position first.
        """
        with errors_of_the_library():
            return self._recorder.transact(work)

    def query(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` in a read transaction. If the connection breaks, ``work`` runs again."""
        with errors_of_the_library():
            return self._recorder.query(work)

    def value(self, name: str) -> str:
        with errors_of_the_library():
            return self._recorder.value(name)

    def close(self) -> None:
        with errors_of_the_library():
            self._recorder.close()


_LIBRARY_ERRORS: Final[dict[str, type[persistence.PersistenceError]]] = {
    "taken": persistence.IntegrityError,
    "closed": persistence.InterfaceError,
    "nested": persistence.InterfaceError,
}


@contextmanager
def errors_of_the_library() -> Iterator[None]:
    """Raise the library's errors in place of foldlog's. ``KeyUnavailable`` passes unchanged."""
    try:
        yield
    except KeyUnavailable:
        raise
    except FAILURES as error:
        default: type[persistence.PersistenceError] = persistence.DatabaseError
        if isinstance(error, StoreUnavailable):
            default = persistence.OperationalError
        raise _LIBRARY_ERRORS.get(error.kind, default)(str(error)) from error


class TrackingView(TrackingRecorder):
    """The base class of a projection's view. A ``TrackingView`` writes its records and its position
    in one transaction.

        class Counts(TrackingView):
            def count(self, kind: str, tracking: Tracking) -> None:
                def work(transaction: Transaction) -> None:
                    self.put_records(transaction, "counts", [...])
                    self.track(transaction, tracking)
                self.recorder.transact(work)
    """

    def __init__(self, recorder: StoreRecorder) -> None:
        self.recorder = recorder

    def track(self, transaction: Transaction, tracking: Tracking) -> None:
        """Record the position of a projection in the caller's transaction. Raises
        ``IntegrityError`` if the notification was already processed.
        """
        transaction.set_value(
            f"tracking {tracking.application_name}", str(tracking.notification_id)
        )

    def insert_tracking(self, tracking: Tracking) -> None:
        self.recorder.transact(lambda transaction: self.track(transaction, tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        position = self.recorder.value(f"tracking {application_name}")
        return _number_of(position) if position else None

    def record_at(self, reader: Reader, name: str, version: int) -> Record | None:
        """Return the newest record of the view at or before ``version``. Return None if there is
        none, or if it is damaged.
        """
        records = reader.records(_VIEWS_KEY, name, version, 1, backwards=True)
        return _VIEW_CODEC.decoded_record(name, records[0]) if records else None

    def put_records(self, transaction: Transaction, name: str, records: Iterable[Record]) -> None:
        encoded = [_VIEW_CODEC.encoded_record(name, record) for record in records]
        transaction.put_records(_VIEWS_KEY, name, encoded)


class EventRecorder(TrackingView, ProcessRecorder):
    """The library's recorder of stored events, notifications and tracking on a foldlog store."""

    def __init__(
        self, recorder: StoreRecorder, subscription: type[PollingSubscription] | None = None
    ) -> None:
        super().__init__(recorder)
        self._subscription = subscription or PollingSubscription

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Insert all events or none, and record ``tracking`` in the same transaction."""
        tracking: Tracking | None = kwargs.get("tracking")
        now = time.time_ns() // 1_000

        def insert(transaction: Transaction) -> list[Place]:
            if tracking is not None:
                self.track(transaction, tracking)
            return [
                _insert(self.recorder.database, transaction, stored, now)
                for stored in stored_events
            ]

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
        database = self.recorder.database

        def select(reader: Reader) -> Sequence[StoredEvent]:
            state = database.find(reader, str(originator_id))
            if state is None:
                return []
            start = 0 if gt is None else gt + 1
            stop = state.version if lte is None else min(lte + 1, state.version)
            # Ids may have gaps, so the newest rows are known only after all rows were read.
            at_most = _NO_LIMIT if limit is None or desc else limit
            rows = ReadTransaction(reader, state, database).rows(start, stop, at_most)
            if desc:
                rows = rows[::-1][:limit]
            return [_RecordedEvent(**_fields(state.id, row)) for row in rows]

        return self.recorder.query(select)

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        first = start or 0
        if inclusive_of_start and first > 0:
            first -= 1

        def select(reader: Reader) -> Sequence[Notification]:
            after = first
            selected: list[Notification] = []
            while len(selected) < limit:
                page = placed_rows(
                    self.recorder.database, reader, after, _PAGE if topics else limit
                )
                for position, conversation, row, _ in page:
                    has_other_topic = bool(topics) and _topic(row) not in topics
                    if has_other_topic or (stop is not None and position > stop):
                        continue
                    if row.encoding != PLAIN and selected:
                        # The next call begins with this damaged row, and raises its error.
                        return selected[:limit]
                    selected.append(
                        _RecordedNotification(id=position, **_fields(conversation, row, position))
                    )
                if not page or (stop is not None and page[-1].position >= stop):
                    break
                after = page[-1].position
            return selected[:limit]

        return self.recorder.query(select)

    def max_notification_id(self) -> int | None:
        return _number_of(self.recorder.value("last_position")) or None

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        return self._subscription(self, gt, topics)


class EventsOfAggregates(EventRecorder):
    """The library's recorder of aggregates, whose stored events have no positions and times."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:
        super().insert_events(stored_events, **kwargs)

    def select_events(self, originator_id: UUID | str, **options: Any) -> Sequence[StoredEvent]:
        selected = super().select_events(originator_id, **options)
        return [
            StoredEvent(event.originator_id, event.originator_version, event.topic, event.state)
            for event in selected
        ]


class PollingSubscription(Subscription[ApplicationRecorder]):
    """Polls for new notifications, and reads the store only after another connection has committed.
    A poll takes microseconds.
    """

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
        """Return the next notifications after a position, or nothing if no later notification
        exists.
        """
        return self._recorder.select_notifications(
            after, _PAGE, topics=self._topics, inclusive_of_start=False
        )

    def _poll(self) -> Sequence[Notification]:
        """Return the notifications after the last one, or nothing after a short pause."""
        data_version = self.store_recorder.value("data_version")
        if data_version != self._seen:
            page = self.select(self._last_notification_id)
            if page:
                return page
            self._seen = data_version
        time.sleep(_POLL_S)
        return ()


def _number_of(position: str) -> int:
    """Return the number of a position. Raises ``ProgrammingError`` for a position in several joined
    stores, which is no number.
    """
    if "." in position:
        raise persistence.ProgrammingError(
            "several joined stores (?stores=) have no one order of notifications; follow their"
            " events with Store.follow"
        )
    return int(position)


def _encode(kind: str, schema: int, state: bytes, event: Event) -> Encoded:
    """Return the stored form of an event with the body ``state``. If this version of foldlog does
    not know the kind, the state may be any bytes.
    """
    if isinstance(event, UnknownEvent):
        return Encoded(kind, schema, event.shown, event.is_structural, state, event)
    return codec.encode(event)._replace(kind=kind, schema=schema, body=state)


def _insert(database: Database, transaction: Transaction, stored: StoredEvent, now: int) -> Place:
    """Insert an event under the id that the library has given to it. Raises ``InvalidEvent`` for an
    id or a state that no event can have.
    """
    kind, schema = kind_and_schema(stored.topic)
    version = stored.originator_version
    conversation = str(stored.originator_id)
    if not 0 <= version < _IDS:
        raise InvalidEvent(
            f"an event of conversation {conversation!r} has the version {version}; give a version"
            f" from 0 to {_IDS - 1}"
        )
    try:
        event = codec.decode(kind, schema, stored.state, version)
    except Undecodable as error:
        raise InvalidEvent(
            f"event {version} of conversation {conversation!r} cannot be stored: {error}"
        ) from error
    encoded = _encode(kind, schema, stored.state, event)
    state = check_not_erased(database.find(transaction, conversation))
    if state is None:
        state = begin_new(
            transaction, database, Conversation(NOT_BEGUN, conversation, now, new_salt())
        )
    if version < state.begins:
        raise StoreUnavailable(
            f"conversation {conversation!r} already has event {version}, which it shares with"
            " another conversation",
            kind="taken",
        )
    writing = WriteTransaction(transaction, state, database)
    rows, _ = make_rows(state._replace(version=version), [encoded], now)
    place = writing.insert(rows)
    writing.end()
    return place


def kind_and_schema(topic: str) -> tuple[str, int]:
    """Return the kind and the schema version in a topic. Another topic is a kind with version 0."""
    kind, _, schema = topic.rpartition("/")
    is_number = schema.isascii() and schema.isdigit() and len(schema) <= _SCHEMA_DIGITS_MAX
    return (kind, int(schema)) if kind and is_number else (topic, 0)


def _topic(row: Row) -> str:
    return f"{row.kind}/{row.schema}" if row.schema else row.kind


def _fields(conversation: str, row: Row, position: int | None = None) -> JsonObject:
    """Return the fields of the library's stored event for a row. Raises ``CorruptEvent`` for a
    damaged row.
    """
    sound(conversation, row, position)
    return {
        "originator_id": conversation,
        "originator_version": row.id,
        "topic": _topic(row),
        "state": row.body,
        "recorded_at": from_microseconds(row.recorded_at),
    }


class Factory(InfrastructureFactory[TrackingRecorder]):
    """Makes the library's recorders for the store of ``database``, or for the store that
    ``FOLDLOG_URL`` names. The caller closes ``database``. If ``FOLDLOG_URL`` is not set, the store
    is in memory.
    """

    def __init__(self, env: Environment | EnvType | None, database: Database | None = None) -> None:
        super().__init__(env)
        self._does_close = database is None
        self.recorder = StoreRecorder(database or self._opened())

    def _opened(self) -> Database:
        """Open the store that ``FOLDLOG_URL`` names."""
        if (
            self.env.get(self.CIPHER_TOPIC)
            or self.env.get("CIPHER_KEY")
            or self.env.get(self.COMPRESSOR_TOPIC)
        ):
            raise InfrastructureFactoryError(
                "foldlog's store encrypts and compresses events itself; "
                "leave CIPHER_TOPIC, CIPHER_KEY and COMPRESSOR_TOPIC unset"
            )
        return Database(*recorder_and_settings(self.env.get("FOLDLOG_URL", "memory:") or "memory:"))

    def mapper(self, transcoder: Any = None, mapper_class: Any = None) -> Any:
        return super().mapper(transcoder, mapper_class or ConversationMapper)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        if purpose != "events":
            raise InfrastructureFactoryError(
                f"foldlog does not store {purpose} of the eventsourcing library; leave"
                " snapshotting disabled"
            )
        return EventsOfAggregates(self.recorder)

    def application_recorder(self) -> ApplicationRecorder:
        return EventRecorder(self.recorder)

    def tracking_recorder(self, tracking_recorder_class: type[V] | None = None) -> V:
        named = self.env.get(self.TRACKING_RECORDER_TOPIC)
        view: Any = TrackingView
        if tracking_recorder_class is not None:
            view = tracking_recorder_class
        elif named:
            view = resolve_topic(named)
        return cast("V", view(self.recorder))

    def process_recorder(self) -> ProcessRecorder:
        return EventRecorder(self.recorder)

    def close(self) -> None:
        if self._does_close:
            self.recorder.close()
            # The library closes an application again when Python deletes it, perhaps while this
            # thread writes to the same server.
            self._does_close = False


# -- batches
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """One or more events of the whole store, in the order of their positions.

    In place of an unreadable event, the batch has a ``CorruptEvent`` with the event's id and
    position.
    """

    events: tuple[Recorded | CorruptEvent, ...]


@dataclass(frozen=True)
class _Batch(Notification):
    """A notification that carries the rows of a batch to the mapper."""

    rows: tuple[PlacedRow, ...] = ()


class _BatchMapper(ConversationMapper):
    """Decodes the rows of a ``_Batch`` together."""

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        if isinstance(stored_event, _Batch):
            return RecordedBatch(tuple(decode_placed(stored_event.rows)))
        return super().to_domain_event(stored_event)


class ConversationBatches(Conversations):
    """The conversations of a store, for a runner that passes batches of events (``RecordedBatch``)
    to its projection.
    """

    name = Conversations.name

    def construct_mapper(self) -> Mapper[str]:
        return _BatchMapper(transcoder=self.construct_transcoder())

    def construct_recorder(self) -> ApplicationRecorder:
        return EventRecorder(cast("Factory", self.factory).recorder, _BatchSubscription)


class _BatchSubscription(PollingSubscription):
    """A subscription that reads many events at once, as one notification."""

    def select(self, after: int | None) -> Sequence[Notification]:
        position = after or 0
        while not self._has_been_stopped:
            with errors_of_the_library():
                page = read_placed_rows(self.store_recorder.database, position, BATCH_MAX)
            if not page:
                break
            last = page[-1]
            position = last.position
            rows = page
            if self._topics:
                rows = [placed for placed in page if _topic(placed.row) in self._topics]
            if rows:
                fields = last.conversation, last.row.id, "", b""
                return [_Batch(*fields, id=position, rows=tuple(rows))]
            self._last_notification_id = position  # no later call reads these rows again
        return ()
