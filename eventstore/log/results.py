"""The values that a store returns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from foldlog.eventstore.events import Event
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.types import Conversation


class Recorded(NamedTuple):
    """An event with its place in the whole store.

    ``position``      place in the order of all events of the store
    ``conversation``  the id of its conversation
    ``recorded_at``   the store's clock, UTC
    ``event``         the event, with its id
    """

    position: int
    conversation: str
    recorded_at: datetime
    event: Event

    @property
    def id(self) -> int:
        """The event's id in its conversation."""
        return self.event.id


class Logged(NamedTuple):
    """An event of one conversation.

    ``recorded_at``   the store's clock when it was recorded, UTC
    ``event``         the event
    """

    recorded_at: datetime
    event: Event


class Border(NamedTuple):
    """The border of a fork: the fork shares the events below ``version`` with ``parent``."""

    parent: str
    version: int


class ConversationRow(NamedTuple):
    """A conversation in a list.

    ``id``             its id
    ``version``        how many events it has; of an erased one, how many it had
    ``created_at``, ``updated_at``  when its first and its last event were recorded
    ``head``           the hash of its last event, in hexadecimal: a published head reveals
                       every later change
    ``erased_at``, ``erased_reason``  when and why it was erased, else None
    ``bytes_pending``  bytes of its erased events may still be in the store's file: ``vacuum``
                       removes them
    ``parent``, ``parent_version``  of a fork: the conversation whose events it shares, up to this
                                    version
    ``generation``     the number of erased conversations that had its id before
    ``redactions``     the number of its redacted events, of a fork also the shared ones that were
                       redacted since
    ``pending``        the number of records of its source that have no events yet: they are made at
                       its first use
    ``unconfirmed``    the read models that have not come to the position of its erasure: they may
                       still hold its events
    ``archived``       the number of its events that are in an object: its first use restores them
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
    unconfirmed: tuple[str, ...] = ()
    redactions: int = 0
    pending: int = 0
    archived: int = 0


class Ingested(NamedTuple):
    """The outcome of an import.

    ``added``         how many events it added
    ``version``       the version afterwards
    """

    added: int
    version: int


def listed(
    conversation: Conversation,
    generation: int = 0,
    unconfirmed: Sequence[str] = (),
    *,
    bytes_pending: bool = False,
) -> ConversationRow:
    """Return the row of a conversation. ``bytes_pending`` matters only for an erased
    conversation.
    """
    erasure = conversation.erasure
    version, head = conversation.end
    # The events of a fork may all be older than the fork.
    if erasure is None:
        updated_at = max(conversation.created_at, conversation.updated_at or 0)
    else:
        updated_at = erasure.erased_at
    return ConversationRow(
        id=conversation.id,
        version=version,
        created_at=from_microseconds(conversation.created_at),
        updated_at=from_microseconds(updated_at),
        head="" if head is None else head.hex(),
        erased_at=None if erasure is None else from_microseconds(erasure.erased_at),
        erased_reason=None if erasure is None else erasure.reason,
        bytes_pending=bytes_pending and erasure is not None,
        parent=conversation.parent_id,
        parent_version=None if conversation.parent is None else conversation.parent_version,
        generation=generation,
        unconfirmed=tuple(unconfirmed),
        redactions=conversation.redactions,
        pending=max(conversation.pending, 0),
        archived=max(-conversation.pending, 0),
    )
