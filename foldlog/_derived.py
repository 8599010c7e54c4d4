"""What is derived from a store and kept outside of it, such as an audit database, and the rule by
which it follows.

Removals come first: what was erased or redacted is removed before the text of any event is looked
at. Then come the events, one by one: an event that cannot be taken is left out and named, and stops
no other one.
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
    StoreRestored,
    StoreUnavailable,
    StoreUnusable,
)

R = TypeVar("R")

REFUSED_BY_SQLITE = (sqlite3.DataError, OverflowError, ValueError)
"""The errors of SQLite that blame a value of a row: too large for it, no Unicode."""


class Removal(NamedTuple):
    """What was erased: all events of a conversation at positions before ``position``; with ``ids``,
    the content of these.
    """

    conversation: str
    position: int
    ids: frozenset[int] | None = None

    def covers(self, recorded: Recorded) -> bool:
        return recorded.position < self.position and (
            self.ids is None or recorded.event.id in self.ids
        )


class OmittedEvent(NamedTuple):
    """An event that is left out of what is derived. ``problem`` holds nothing of its content."""

    conversation: str
    event: int
    problem: str

    @classmethod
    def damaged(cls, error: CorruptEvent) -> OmittedEvent:
        return cls(error.conversation, error.event_id, error.problem)

    @classmethod
    def of(cls, recorded: Recorded, error: Exception) -> OmittedEvent:
        return cls(
            recorded.conversation, recorded.event.id, f"it cannot be taken ({type(error).__name__})"
        )


class Changes(NamedTuple, Generic[R]):
    """What a batch changes, in the order in which it is written."""

    conversations: frozenset[str]
    removals: Sequence[Removal]
    rows: Sequence[tuple[Recorded, R]]
    left_out: Sequence[OmittedEvent]


class Derived(ABC, Generic[R]):
    """Tables that follow a store. A subclass says how an event becomes a row, and writes rows; the
    rule stands here.
    """

    batch_size: int
    """The most events in one transaction."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    @abstractmethod
    def position(self) -> int:
        """The position in the store up to which it is complete."""

    @abstractmethod
    def row_of(self, recorded: Recorded) -> R | None:
        """Return the row of an event; None for an event without one. After any error of its own the
        event is left out.
        """

    @abstractmethod
    def write(self, changes: Changes[R], position: int, *, after: int) -> int | None:
        """Remove, add (``add_each``), and set the position, in one transaction. Return the number
        of added rows; None, without a change, where it is not complete up to exactly ``after``.
        """

    @abstractmethod
    def begin_again(self) -> None:
        """Remove everything: it holds what the store lost."""

    @abstractmethod
    def refresh(self) -> object:
        """Do what is due from time to time."""

    @abstractmethod
    def close(self) -> None: ...

    def meet(self, entry: Entry) -> None:
        """Look at an entry of the ledger before anything of its batch is written."""

    def catch_up(self, on_events: Callable[[int], object] = lambda added: None) -> int:
        """Apply what is new in the store. Return the number of added events."""
        added = 0
        while batch := list(islice(followed(self.store, after := self.position), self.batch_size)):
            new = self.apply(batch, batch[-1].position or after, after=after)
            if new is not None:
                added += new
                on_events(
                    sum(
                        isinstance(one, CorruptEvent) or not isinstance(one.event, Entry)
                        for one in batch
                    )
                )
        return added

    def apply(
        self, batch: Sequence[Recorded | CorruptEvent], position: int, *, after: int
    ) -> int | None:
        """Apply what the store has between two positions. Return the number of added events; None
        where it is not complete up to ``after``, because another process has changed it, or it was
        emptied here: then ``catch_up``.
        """
        if self.position != after:
            return None
        for one in batch:
            if isinstance(one, Recorded) and isinstance(one.event, Entry):
                self.meet(one.event)
                if isinstance(one.event, StoreRestored) and after > one.event.after:
                    self.begin_again()
                    return None
        return self.write(self.changes_of(batch), position, after=after)

    def changes_of(self, events: Iterable[Recorded | CorruptEvent]) -> Changes[R]:
        """Return what these events change."""
        batch = list(events)
        removals = removals_of(batch)
        of = defaultdict[str, list[Removal]](list)
        for removal in removals:
            of[removal.conversation].append(removal)
        rows = list[tuple[Recorded, R]]()
        left_out = list[OmittedEvent]()
        for one in batch:
            if isinstance(one, CorruptEvent):
                left_out.append(OmittedEvent.damaged(one))
                continue
            if isinstance(one.event, Entry):
                continue
            try:
                current = self._current(one, of.get(one.conversation, ()))
                row = None if current is None else self.row_of(current)
            except CorruptEvent as error:
                left_out.append(OmittedEvent.damaged(error))
            except StoreDamaged as error:
                left_out.append(OmittedEvent.of(one, error))
            except (
                StoreUnavailable,
                StoreUnusable,
                MemoryError,
            ):  # not because of this event: the batch waits
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the other events are taken
                left_out.append(OmittedEvent.of(one, error))
            else:
                if current is not None and row is not None:
                    rows.append((current, row))
        return Changes(frozenset(one.conversation for one in batch), removals, rows, left_out)

    def _current(self, recorded: Recorded, removals: Sequence[Removal]) -> Recorded | None:
        """Return an event as it is now, if it was read before a removal of the same batch; None for
        an erased one.

        ``removals`` are those of its conversation.
        """
        covering = [removal for removal in removals if removal.covers(recorded)]
        if any(removal.ids is None for removal in covering):
            return None
        if not covering or recorded.event.redacted is not None:
            return recorded
        position, conversation, _, event = recorded
        try:
            [again] = self.store.log(conversation, event.id, event.id + 1)
        except (ConversationErased, ConversationNotFound):  # the entry of that comes later
            return None
        return Recorded(position, conversation, *again)


def followed(store: Store, position: int) -> Iterator[Recorded | CorruptEvent]:
    """Yield all events of a store after a position. Raises what ``Store.follow`` raises, except
    these errors.
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
    """Return what the entries and events of a batch remove."""
    removals = []
    for one in batch:
        if isinstance(one, CorruptEvent):
            continue
        match one.event:
            case Erased():
                removals.append(Removal(one.conversation, one.position))
            case RedactionCopied(event_ids=ids) | Redaction(event_ids=ids):
                removals.append(Removal(one.conversation, one.position, frozenset(ids)))
    return removals


def add_each(
    rows: Sequence[tuple[Recorded, R]],
    add: Callable[[Sequence[R]], object],
    savepoint: Callable[[], AbstractContextManager[object]],
    refused: tuple[type[Exception], ...],
) -> list[OmittedEvent]:
    """Add rows together. Where the database refuses one of them, add each by itself, and return
    those that it refuses.

    ``refused`` are the errors by which it says that the row is to blame, and no others.
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
