"""Following a store in batches with the eventsourcing library's runner.

The library gives a projection one event at a time. A read model that writes a transaction for each of them falls
behind a busy store. ``ConversationBatches`` is ``Conversations`` for such read models: its runner gives them all events
that are there, up to 500 at once, with the position of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import ApplicationRecorder, Mapper, Notification, StoredEvent

from eventstore.errors import CorruptEvent
from eventstore.integrations.eventsourcing import ConversationMapper, Conversations, Factory
from eventstore.integrations.recorders import PollingSubscription
from eventstore.stored.database import DecodedRow
from eventstore.stored.results import Recorded
from eventstore.stored.rows import event_of, from_microseconds

__all__ = ["ConversationBatches", "RecordedBatch"]

BATCH_MAX = 500


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """Events of the whole store in the order of their positions, at least one.

    Instead of an event that cannot be read it holds the ``CorruptEvent`` that says so, with its position.
    """

    originator_id: str
    originator_version: int
    events: tuple[Recorded | CorruptEvent, ...]


@dataclass(frozen=True)
class _Batch(Notification):
    rows: tuple[DecodedRow, ...] = ()


class _BatchMapper(ConversationMapper):
    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        if not isinstance(stored_event, _Batch):
            return super().to_domain_event(stored_event)
        events = tuple(map(_recorded, stored_event.rows))
        return RecordedBatch(str(stored_event.originator_id), stored_event.originator_version, events)


class ConversationBatches(Conversations):
    """The conversations of a store, for a runner that gives its projection a ``RecordedBatch`` at a time."""

    name = Conversations.name

    def construct_mapper(self) -> Mapper[str]:
        return _BatchMapper(transcoder=self.construct_transcoder())

    def construct_recorder(self) -> ApplicationRecorder:
        return cast("Factory", self.factory).recorder_in_batches(_BatchSubscription)


class _BatchSubscription(PollingSubscription):
    def select(self, after: int | None) -> Sequence[Notification]:
        with self.store_recorder.read() as reader:
            rows = tuple(self.store_recorder.database.placed_rows(reader, after or 0, BATCH_MAX))
        if not rows:
            return ()
        last = rows[-1]
        return [_Batch(last.conversation, last.row.id, "", b"", id=last.position, rows=rows)]


def _recorded(placed: DecodedRow) -> Recorded | CorruptEvent:
    position, conversation, row = placed
    try:
        event = event_of(conversation, row, position)
    except CorruptEvent as error:
        return error
    return Recorded(position, conversation, from_microseconds(row.recorded_at), event)
