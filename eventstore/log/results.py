"""The values that a store returns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationErased
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.types import Conversation


class Recorded(NamedTuple):
    """An event with its position in the whole store.

    ``position``      the place of the event in the order of all events of the store
    ``conversation``  the id of the conversation
    ``recorded_at``   the time of the append by the store's clock, in UTC
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
    """An event of one conversation, with the time of its append.

    ``recorded_at``   the time of the append by the store's clock, in UTC
    ``event``         the event, with its id
    """

    recorded_at: datetime
    event: Event


class Border(NamedTuple):
    """The version at which a fork leaves its parent. The fork shares the events below ``version``
    with ``parent``.
    """

    parent: str
    version: int


class ConversationRow(NamedTuple):
    """A conversation in a list.

    ``id``             the id of the conversation
    ``version``        the number of events; for an erased conversation, the number before the
                       erasure
    ``created_at``     the time at which the conversation began; for a fork, the time of the fork
    ``updated_at``     the time at which the last event was recorded, but not before ``created_at``;
                       for an erased conversation, the time of the erasure
    ``head``           the hash of the last event, in hexadecimal: with a published head, you can
                       detect every later change of the conversation
    ``erased_at``      the time of the erasure, or None
    ``erased_reason``  the reason for the erasure, or None
    ``bytes_pending``  whether bytes of erased events may still be in the store's file: ``vacuum``
                       removes them
    ``parent``         the conversation with which a fork shares events, or None
    ``parent_version``  the version up to which a fork shares events with its parent, or None
    ``generation``     the number of erased conversations that had this id before
    ``redactions``     the number of redacted events; for a fork, the number of its parent when the
                       fork began, and its later redactions; 0 for an erased conversation
    ``unmade``         the number of records of the source without events: foldlog makes the events
                       at the first use
    ``unconfirmed``    the read models that have not reached the position of the erasure, so they
                       may still contain the erased events
    ``archived``       the number of events in an archive: the first use restores these events
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
    unmade: int = 0
    archived: int = 0

    def check_not_erased(self) -> ConversationRow:
        """Return this row. Raises ``ConversationErased`` if the conversation is erased."""
        if self.erased_at is not None:
            raise ConversationErased(self.id, self.erased_at.isoformat(), self.erased_reason or "")
        return self


class Ingested(NamedTuple):
    """The outcome of an import.

    ``added``         the number of added events
    ``version``       the version of the conversation after the import
    """

    added: int
    version: int


def row_of(
    conversation: Conversation,
    generation: int = 0,
    unconfirmed: Sequence[str] = (),
    *,
    bytes_pending: bool = False,
) -> ConversationRow:
    """Return the row of a conversation. ``bytes_pending`` says whether the store's file may contain
    bytes of erased events. It only counts if this conversation is erased.
    """
    erasure = conversation.erasure
    version, head = conversation.end
    # All events of a fork may be older than the fork.
    if erasure is None:
        updated_at = max(conversation.created_at, conversation.updated_at or 0)
    else:
        updated_at = erasure.erased_at
    # A list of all conversations makes many rows: ``benchmarks/commands.py`` shows the time.
    return tuple.__new__(ConversationRow, (
        conversation.id,
        version,
        from_microseconds(conversation.created_at),
        from_microseconds(updated_at),
        "" if head is None else head.hex(),
        None if erasure is None else from_microseconds(erasure.erased_at),
        None if erasure is None else erasure.reason,
        bytes_pending and erasure is not None,
        conversation.parent_id,
        None if conversation.parent is None else conversation.parent_version,
        generation,
        tuple(unconfirmed),
        conversation.redactions if erasure is None else 0,
        conversation.unmade,
        conversation.archived,
    ))  # fmt: skip
