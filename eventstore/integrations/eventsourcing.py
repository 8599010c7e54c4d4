"""The eventsourcing library on our recorders.

Set ``PERSISTENCE_MODULE=foldlog.eventstore.integrations.eventsourcing`` and ``FOLDLOG_URL=sqlite:///…``.

``Conversations`` is the library's ``Application`` on a store. A ``ProjectionRunner`` follows it and gives every event
to a projection of yours, exactly once: the projection writes its result and its position in one transaction. Its view
may lie in the same store (``TrackingView``) or in a database of its own (``docs/PROJECTIONS.md``).

Events are ``ConversationEvent``s: one of our registered kinds with its conversation (``originator_id``) and its id
(``originator_version``). The topic of a stored event is its registered name and schema version, never a Python path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from eventsourcing.application import Application
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    Mapper,
    MapperDeserialisationError,
    ProcessRecorder,
    StoredEvent,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic

from foldlog.eventstore import codec
from foldlog.eventstore.events import Event
from foldlog.eventstore.integrations.recorders import (
    EventRecorder,
    EventsOfAggregates,
    StoreRecorder,
    TrackingView,
    kind_and_schema,
)
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import with_times
from foldlog.eventstore.opening import recorder_and_settings

__all__ = ["ConversationEvent", "ConversationMapper", "Conversations", "Factory", "StoreRecorder", "TrackingView"]


@dataclass(frozen=True, slots=True)
class ConversationEvent:
    """An event with its conversation and its id there, and the store's clock when it was recorded.

    ``recorded_at`` is None for an event that was made and not read.
    """

    originator_id: str
    originator_version: int
    event: Event
    recorded_at: datetime | None = field(default=None, compare=False)


class Conversations(Application[str]):
    """The conversations of a store as an application of the library.

    Its ``name`` is the one under which a view records how far it has followed. Appending with its ``events.put`` checks
    versions only; the rules of a conversation are those of ``Store.append``.
    """

    name = "conversations"


class ConversationMapper(Mapper[str]):
    """``ConversationEvent`` to ``StoredEvent`` and back, by our codec, without transcoder and cipher."""

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """Encode an event. Raises ``InvalidEvent`` or ``UnknownEventType``, as ``Store.append`` does."""
        encoded = codec.encode(cast("ConversationEvent", domain_event).event, finite=True)
        return StoredEvent(
            originator_id=domain_event.originator_id,
            originator_version=domain_event.originator_version,
            topic=f"{encoded.kind}/{encoded.schema}",
            state=encoded.body,
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """Decode an event; an unknown kind becomes an ``UnknownEvent``. Raises ``MapperDeserialisationError``."""
        kind, schema = kind_and_schema(stored_event.topic)
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


_View = TypeVar("_View", bound=TrackingRecorder)


class Factory(InfrastructureFactory[TrackingRecorder]):
    """Makes the library's recorders on the store that ``FOLDLOG_URL`` names (``memory:`` if none); or on the store that
    another caller opened, and closes.
    """

    def __init__(self, env: Environment | EnvType | None, database: Database | None = None) -> None:
        super().__init__(env)
        self._does_close = database is None
        self.recorder = StoreRecorder(database or self._opened())

    def _opened(self) -> Database:
        if self.env.get(self.CIPHER_TOPIC) or self.env.get("CIPHER_KEY") or self.env.get(self.COMPRESSOR_TOPIC):
            raise InfrastructureFactoryError(
                "foldlog's store encrypts and compresses events itself; "
                "leave CIPHER_TOPIC, CIPHER_KEY and COMPRESSOR_TOPIC unset"
            )
        return Database(*recorder_and_settings(self.env.get("FOLDLOG_URL", "memory:") or "memory:"))

    def mapper(self, transcoder: Any = None, mapper_class: Any = None) -> Any:
        return super().mapper(transcoder, mapper_class or ConversationMapper)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        if purpose != "events":
            raise InfrastructureFactoryError(f"foldlog keeps no {purpose} of the library; leave snapshotting disabled")
        return EventsOfAggregates(self.recorder)

    def application_recorder(self) -> ApplicationRecorder:
        return EventRecorder(self.recorder)

    def tracking_recorder(self, tracking_recorder_class: type[_View] | None = None) -> _View:
        named = self.env.get(self.TRACKING_RECORDER_TOPIC)
        view: Any = tracking_recorder_class or (resolve_topic(named) if named else TrackingView)
        return cast("_View", view(self.recorder))

    def process_recorder(self) -> ProcessRecorder:
        return EventRecorder(self.recorder)

    def close(self) -> None:
        if self._does_close:
            self.recorder.close()
