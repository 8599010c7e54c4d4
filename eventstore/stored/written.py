"""The rows that this process appended to some conversations, so that a reader of its own need not ask for them.

Only conversations that somebody watches are kept, and of each only what was written since it was read: a View folds
these rows in and begins again. Rows may be of a transaction that was taken back, or lack what others wrote. Their heads
tell: every head commits to all events before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from eventstore.events import Event
from eventstore.recorders.types import Conversation, Row
from eventstore.stored.row_codec import have_bytes
from eventstore.stored.rows import event_of, events_of_rows

__all__ = ["RowsWritten", "events_between"]

_BATCHES_MAX = 32
_BYTES_MAX = 1_000_000
_body = attrgetter("body")


class RowsWritten:
    """The last rows that were written to one conversation, by batch, each with the conversation before it."""

    __slots__ = ("_bytes_left", "batches")

    def __init__(self) -> None:
        self.batches: list[tuple[Conversation, Sequence[Row]]] = []
        self._bytes_left = _BYTES_MAX

    def add(self, before: Conversation, rows: Sequence[Row]) -> None:
        """Note a batch. Where there were too many, or one with bytes, the rest is left out: a reader asks the store."""
        self._bytes_left -= sum(map(len, map(_body, rows))) + have_bytes(rows) * _BYTES_MAX
        if self._bytes_left >= 0 and len(self.batches) < _BATCHES_MAX:
            self.batches.append((before, rows))


def events_between(written: RowsWritten, before: Conversation, now: Conversation) -> list[Event] | None:
    """Return the events by which a conversation has grown, as a reader finds them; None where some are not there."""
    head, rows = before.head, list[Row]()
    for conversation, batch in written.batches:
        if conversation.head == head and conversation.version == before.version + len(rows):
            rows += batch
            head = batch[-1].head
    if head != now.head or before.version + len(rows) != now.version:
        return None
    return events_of_rows(rows) or [event_of(now.id, row) for row in rows]
