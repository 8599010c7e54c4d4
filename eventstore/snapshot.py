"""One conversation as of one moment, and the seam for projections that are written with the events.

An inline projection is called in the transaction that appends structural events, so that what it keeps cannot differ
from the log. The store knows nothing of what it keeps: records, numbered by version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from eventstore.events import Event
from eventstore.recorders.base import Conversation, Reader, Record, Transaction
from eventstore.rows import dense_events, event_of

__all__ = ["InlineProjection", "Record", "Snapshot", "WritableSnapshot"]

_PAGE = 1_000


class Snapshot:
    """What one read transaction finds of one conversation. Use it while the transaction is open."""

    def __init__(self, reader: Reader, conversation: Conversation) -> None:
        self._reader = reader
        self._conversation = conversation

    @property
    def conversation(self) -> str:
        return self._conversation.id

    @property
    def version(self) -> int:
        return self._conversation.version

    @property
    def head(self) -> bytes | None:
        """The head of the last event; None while there is none."""
        return self._conversation.head

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """Events with ``start <= id < stop``, in order. Raises ``CorruptEvent`` at one that is missing or unreadable.

        Cost: the events yielded; they are read a page at a time.
        """
        stop = self.version if stop is None else min(stop, self.version)
        while start < stop:
            rows = self._reader.rows(self._conversation.key, start, stop, _PAGE)
            yield from dense_events(self.conversation, rows, start, min(start + _PAGE, stop))
            start += _PAGE

    def shown_events(self, intervals: Sequence[tuple[int, int]]) -> list[Event]:
        """Shown events with an id in one of the inclusive, ascending intervals. Cost: intervals and events returned."""
        return [event_of(self.conversation, row) for row in self._reader.shown_rows(self._conversation.key, intervals)]

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """Of ``start <= id < stop``, the events that change a View other than by adding to its end. Cost: those."""
        stop = self.version if stop is None else min(stop, self.version)
        while True:
            rows = self._reader.structural_rows(self._conversation.key, start, stop, _PAGE)
            for row in rows:
                yield event_of(self.conversation, row)
            if len(rows) < _PAGE:
                return
            start = rows[-1].id + 1

    def record_at(self, projection: str, version: int | None = None) -> Record | None:
        """The newest record of a projection at or before ``version`` (of any version, if None)."""
        return self._reader.record_at(projection, self._conversation.key, self.version if version is None else version)

    def records(self, projection: str, after: int = 0) -> Iterator[Record]:
        """All records of a projection for versions greater than ``after``, ascending, read a page at a time."""
        while True:
            records = self._reader.records(projection, self._conversation.key, after, _PAGE)
            yield from records
            if len(records) < _PAGE:
                return
            after = records[-1].version


class WritableSnapshot(Snapshot):
    """The same within a write transaction: what it finds is the newest, and it may keep records beside it."""

    def __init__(self, transaction: Transaction, conversation: Conversation) -> None:
        super().__init__(transaction, conversation)
        self._transaction = transaction

    def put_records(self, projection: str, records: Iterable[Record]) -> None:
        """Keep records; one of the same version is replaced."""
        self._transaction.put_records(projection, self._conversation.key, records)

    def delete_records(self, projection: str) -> None:
        self._transaction.delete_records(projection, self._conversation.key)


class InlineProjection(Protocol):
    """A read model that is written in the same transaction as the structural events which change it."""

    def project(self, snapshot: WritableSnapshot, events: Sequence[Event]) -> None:
        """``events`` (the whole batch, at least one of them structural) were just appended; ``snapshot`` has them.

        If it raises, nothing is appended. It may be called again for the same events, where the transaction has to be
        run again, so it must have no other effects than the records it puts.
        """
