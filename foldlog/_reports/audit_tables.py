"""Update tables that are derived from the events of a store but stored elsewhere, such as an audit
database.

In each batch, erased and redacted content is removed before the text of any event is read. Then the
events are added. An event that cannot be added is left out and reported, and all other events are
added.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    Entry,
    Erased,
    Recorded,
    Redaction,
    RedactionCopied,
    Store,
    StoreDamaged,
    StoreRefused,
    StoreRestored,
    StoreUnavailable,
)

R = TypeVar("R")

REFUSED_BY_SQLITE = (sqlite3.DataError, OverflowError, ValueError)
"""The errors that are raised if SQLite cannot store a row, for example because a number is too
large.
"""


class Removal(NamedTuple):
    """Removes all events of a conversation before ``position``. With ``ids``, only the content of
    these events is removed.
    """

    conversation: str
    position: int
    ids: frozenset[int] | None = None

    def covers(self, recorded: Recorded) -> bool:
        """Return whether the removal removes the event, or its content."""
        return recorded.position < self.position and (
            self.ids is None or recorded.event.id in self.ids
        )


class OmittedEvent(NamedTuple):
    """An event that is left out of the derived tables. ``problem`` never contains the content of
    the event.
    """

    conversation: str
    event: int
    problem: str

    @classmethod
    def damaged(cls, error: CorruptEvent) -> OmittedEvent:
        return cls(error.conversation, error.event_id, error.problem)

    @classmethod
    def of(cls, recorded: Recorded, error: Exception) -> OmittedEvent:
        return cls(
            recorded.conversation, recorded.event.id, f"it cannot be added ({type(error).__name__})"
        )


class Changes(NamedTuple, Generic[R]):
    """The changes that a batch of events makes to the tables. The removals are written before the
    rows.
    """

    conversations: frozenset[str]
    removals: Sequence[Removal]
    rows: Sequence[tuple[Recorded, R]]
    left_out: Sequence[OmittedEvent]


class Derived(ABC, Generic[R]):
    """Derived tables. This class decides the order in which the tables change. A subclass makes the
    row of an event, and writes rows.
    """

    batch_size: int

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    @abstractmethod
    def position(self) -> int:
        """The position in the store up to which the tables are complete."""

    @abstractmethod
    def row_of(self, recorded: Recorded) -> R | None:
        """Return the row for an event, or None if the event needs no row. If this method raises an
        error, the event is left out.
        """

    @abstractmethod
    def write(self, changes: Changes[R], position: int, *, after: int) -> int | None:
        """Write the changes and the new position, and return the number of added events. If
        ``after`` is not the present ``position``, change nothing and return None.
        """

    @abstractmethod
    def begin_again(self) -> None:
        """Remove all rows. After a restore of the store, the tables may have events that the store
        has lost.
        """

    @abstractmethod
    def refresh(self) -> object:
        """Do periodic work, such as confirming removals."""

    @abstractmethod
    def close(self) -> None: ...

    def catch_up(self, on_events: Callable[[int], object] = lambda events: None) -> int:
        """Add all new events, and return the number of added events. After each batch,
        ``on_events`` gets the number of its events, also of those that were left out.
        """
        added = 0
        while True:
            after = self.position
            batch = list(islice(follow(self.store, after), self.batch_size))
            if not batch:
                return added
            position = batch[-1].position
            assert position is not None  # ``follow`` raises an error without a position.
            added_now = self.apply(batch, position, after=after)
            if added_now is not None:
                added += added_now
                events = [
                    item
                    for item in batch
                    if isinstance(item, CorruptEvent) or not isinstance(item.event, Entry)
                ]
                on_events(len(events))

    def apply(
        self, batch: Sequence[Recorded | CorruptEvent], position: int, *, after: int
    ) -> int | None:
        """Apply a batch. Return None if ``after`` is not the present ``position``, or if the batch
        emptied the tables. After None, call ``catch_up``.
        """
        if self.position != after:
            return None
        for item in batch:
            event = item.event if isinstance(item, Recorded) else None
            if isinstance(event, StoreRestored) and after > event.after:
                self.begin_again()
                return None
        return self.write(self.changes_of(batch), position, after=after)

    def changes_of(self, events: Iterable[Recorded | CorruptEvent]) -> Changes[R]:
        """Return the changes that a batch makes to the tables."""
        batch = list(events)
        removals = removals_of(batch)
        removals_by_conversation = defaultdict[str, list[Removal]](list)
        for removal in removals:
            removals_by_conversation[removal.conversation].append(removal)
        rows = list[tuple[Recorded, R]]()
        left_out = list[OmittedEvent]()
        for item in batch:
            if isinstance(item, CorruptEvent):
                left_out.append(OmittedEvent.damaged(item))
                continue
            if isinstance(item.event, Entry):
                continue
            try:
                current = self._current(item, removals_by_conversation.get(item.conversation, ()))
                row = None if current is None else self.row_of(current)
            except CorruptEvent as error:
                left_out.append(OmittedEvent.damaged(error))
            except StoreDamaged as error:
                left_out.append(OmittedEvent.of(item, error))
            except (StoreUnavailable, StoreRefused, MemoryError):
                raise  # The event is not the cause, so the batch is tried again later.
            except Exception as error:  # noqa: BLE001 - the other events are still added
                left_out.append(OmittedEvent.of(item, error))
            else:
                if current is not None and row is not None:
                    rows.append((current, row))
        return Changes(frozenset(item.conversation for item in batch), removals, rows, left_out)

    def _current(self, recorded: Recorded, removals: Sequence[Removal]) -> Recorded | None:
        """Return an event as the removals of its batch have left it, or None if it is erased. The
        event may have been read before the removal.
        """
        covering = [removal for removal in removals if removal.covers(recorded)]
        if any(removal.ids is None for removal in covering):
            return None
        if not covering or recorded.event.redacted is not None:
            return recorded
        position, conversation, _, event = recorded
        try:
            [stored] = self.store.log(conversation, event.id, event.id + 1)
        except (ConversationErased, ConversationNotFound):
            return None  # The entry of this erasure comes in a later batch.
        return Recorded(position, conversation, *stored)


def follow(store: Store, position: int) -> Iterator[Recorded | CorruptEvent]:
    """Follow the store, and yield ``CorruptEvent`` in place of a damaged event. Raises the other
    errors of ``Store.follow``, and ``CorruptEvent`` if the position of the damaged event is
    unknown.
    """
    while True:
        try:
            yield from store.follow(position)
            return
        except CorruptEvent as error:
            if error.position is None:
                raise
            yield error
            position = error.position


def removals_of(batch: Iterable[Recorded | CorruptEvent]) -> list[Removal]:
    """Return the erasures and redactions that the entries and receipts of a batch record."""
    removals = []
    for item in batch:
        if isinstance(item, CorruptEvent):
            continue
        match item.event:
            case Erased():
                removals.append(Removal(item.conversation, item.position))
            case RedactionCopied(event_ids=ids) | Redaction(event_ids=ids):
                removals.append(Removal(item.conversation, item.position, frozenset(ids)))
    return removals


def add_each(
    rows: Sequence[tuple[Recorded, R]],
    add: Callable[[Sequence[R]], object],
    savepoint: Callable[[], AbstractContextManager[object]],
    refused: tuple[type[Exception], ...],
) -> list[OmittedEvent]:
    """Add all rows. If the database refuses a row, add the rows one by one, and return the events
    whose rows were refused. ``refused`` are the errors that the database raises for a row that it
    refuses.
    """
    try:
        with savepoint():
            add([row for _, row in rows])
        return []
    except refused:
        pass
    left_out = []
    for recorded, row in rows:
        try:
            with savepoint():
                add([row])
        except refused as error:
            left_out.append(OmittedEvent.of(recorded, error))
    return left_out
