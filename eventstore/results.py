"""What a store returns."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from eventstore.events import Event
from eventstore.recorders.base import Conversation
from eventstore.stored.rows import from_microseconds

__all__ = ["ConversationRow", "Ingested", "Logged", "Recorded", "listed"]


class Recorded(NamedTuple):
    """An event with its place in the whole store. ``recorded_at`` is the store's clock, UTC."""

    position: int
    conversation: str
    recorded_at: datetime
    event: Event

    @property
    def id(self) -> int:
        """The event's id in its conversation."""
        return self.event.id


class Logged(NamedTuple):
    """An event of one conversation with the store's clock when it was recorded, UTC."""

    recorded_at: datetime
    event: Event


class ConversationRow(NamedTuple):
    """A conversation in a list. ``head`` is that of its last event, in hexadecimal: publish it, and every later change
    to the history shows. An erased conversation has its version and head of before; ``bytes_pending`` says that bytes
    of its events may still be in the store's file: ``vacuum`` removes them. A fork names its ``parent``, and the
    version up to which it shares the parent's events. ``generation`` is the number of erased conversations that
    had its id before.
    """

    id: str
    version: int
    created_at: datetime
    updated_at: datetime
    head: str
    erased_at: datetime | None
    erased_reason: str | None
    bytes_pending: bool = False
    parent: str | None = None
    parent_version: int | None = None
    generation: int = 0


class Ingested(NamedTuple):
    """What an import did: how many events it added, and the version since."""

    added: int
    version: int


def listed(found: Conversation, *, bytes_pending: bool = False, generation: int = 0) -> ConversationRow:
    """Return a conversation as a list shows it. ``bytes_pending`` counts only for an erased one."""
    erasure = found.erasure
    head = found.head if erasure is None else erasure.head
    updated_at = found.updated_at if erasure is None else erasure.erased_at
    return ConversationRow(
        id=found.id,
        version=found.version if erasure is None else erasure.events,
        created_at=from_microseconds(found.created_at),
        updated_at=from_microseconds(found.created_at if updated_at is None else updated_at),
        head="" if head is None else head.hex(),
        erased_at=None if erasure is None else from_microseconds(erasure.erased_at),
        erased_reason=None if erasure is None else erasure.reason,
        bytes_pending=bytes_pending and erasure is not None,
        parent=found.parent_id,
        parent_version=None if found.parent is None else found.parent_version,
        generation=generation,
    )
