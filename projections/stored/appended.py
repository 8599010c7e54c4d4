"""What this process appended to conversations whose Views are in memory, so that a View grows without a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldlog.eventstore import Conversation, Event
from foldlog.eventstore.log.row import event_of, events_of_rows
from foldlog.eventstore.recorders.types import Row

BATCHES_MAX = 32
_BATCH_BYTES_MAX = 100_000


class Batch(NamedTuple):
    """Rows that this process wrote together, and the conversation before and after."""

    before: Conversation
    after: Conversation
    rows: Sequence[Row]


class Appended:
    """What was appended to the conversations that are watched, since they are: an ``Observer`` of a store."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Batch]] = {}

    def watch(self, conversation: str) -> None:
        """Begin to watch a conversation, or begin again."""
        self._batches[conversation] = []

    def leave(self, conversation: str) -> None:
        self._batches.pop(conversation, None)

    def appended(self, before: Conversation, after: Conversation, rows: Sequence[Row]) -> None:
        """Keep rows of a watched conversation. What exceeds the limit is left out: then a reader asks the store."""
        batches = self._batches.get(after.id)
        if (
            batches is not None
            and len(batches) < BATCHES_MAX
            and sum(len(row.body) for row in rows) <= _BATCH_BYTES_MAX
        ):
            batches.append(Batch(before, after, rows))

    def events_between(self, before: Conversation, now: Conversation) -> Sequence[Event] | None:
        """Return the events by which a conversation has grown, as a reader finds them. Return None where some of them
        are missing or structural (a structural event changes more than itself), and where content was redacted.

        A batch may belong to a transaction that was rolled back, or those of other writers may be missing. Heads reveal
        both: every head depends on all events before it.
        """
        if now.key != before.key or now.erasure is not None or now.redactions != before.redactions:
            return None
        head, rows = before.head, list[Row]()
        for batch in self._batches.get(now.id, ()):
            if batch.before.head == head:
                rows += batch.rows
                head = batch.after.head
        if head != now.head or any(row.structural for row in rows):
            return None
        return events_of_rows(rows) or [event_of(now.id, row) for row in rows]
