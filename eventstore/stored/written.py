"""Keep the rows that this process appended to some conversations, so that its own readers need not ask for them.

Only watched conversations are kept, and of each only the rows since it was read: a View folds these rows in and begins
again. Rows may belong to a transaction that was rolled back, or rows of other writers may be missing. Heads reveal
both: every head depends on all events before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from eventstore.events import Event
from eventstore.recorders.types import Conversation, Row
from eventstore.stored.rows import Batch, event_of, events_of_rows

_structural = attrgetter("structural")


def events_between(batches: Sequence[Batch], before: Conversation, now: Conversation) -> list[Event] | None:
    """Return the events by which a conversation has grown, as a reader finds them. Return None where some of them are
    missing or structural: a structural event changes more than itself.
    """
    head, rows = before.head, list[Row]()
    for batch_before, after, some in batches:
        if batch_before.head == head:
            rows += some
            head = after.head
    if head != now.head or any(map(_structural, rows)):
        return None
    return events_of_rows(rows) or [event_of(now.id, row) for row in rows]
