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
from eventstore.stored.rows import Batch, event_of, events_of_rows

__all__ = ["events_between"]

_structural = attrgetter("structural")


def events_between(batches: Sequence[Batch], before: Conversation, now: Conversation) -> list[Event] | None:
    """Return the events by which a conversation has grown, as a reader finds them. None where some are not there, or
    are structural: what they change depends on more than the events themselves.
    """
    head, rows = before.head, list[Row]()
    for batch_before, after, some in batches:
        if batch_before.head == head:
            rows += some
            head = after.head
    if head != now.head or any(map(_structural, rows)):
        return None
    return events_of_rows(rows) or [event_of(now.id, row) for row in rows]
