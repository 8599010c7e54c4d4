"""Read and follow a store around damage, with the problem in the place of an event that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from foldlog.eventstore import CorruptEvent, Entry, Logged, Recorded, Store


class FollowsStore(Protocol):
    """What follows a store outside of its file: the search index, an audit database (``AuditTables``)."""

    @property
    def position(self) -> int: ...

    def apply(self, batch: Iterable[Recorded | CorruptEvent], position: int, *, after: int) -> int | None: ...

    def catch_up(self) -> int: ...

    def refresh(self) -> object: ...  # from time to time

    def close(self) -> None: ...


def caught_up(derived: FollowsStore, store: Store, most: int, on_events: Callable[[int], object]) -> int:
    """Apply what is new in the store, ``most`` events at a time. Return the number of added events."""
    added = 0
    while batch := list(islice(followed(store, after := derived.position), most)):
        new = derived.apply(batch, batch[-1].position or after, after=after)
        if new is not None:
            added += new
            on_events(sum(isinstance(one, CorruptEvent) or not isinstance(one.event, Entry) for one in batch))
    return added


def followed(store: Store, position: int) -> Iterator[Recorded | CorruptEvent]:
    """Yield all events of a store after a position. Raises what ``Store.follow`` raises, except these errors."""
    while True:
        try:
            yield from store.follow(position)
            return
        except CorruptEvent as error:
            if error.position is None:
                raise
            yield error
            position = error.position


def logged(store: Store, conversation: str, start: int = 0, stop: int | None = None) -> Iterator[Logged | CorruptEvent]:
    """Yield the events of a conversation with ``start <= id < stop``. Raises what ``Store.log`` raises, except these
    errors.
    """
    while stop is None or start < stop:
        try:
            yield from store.log(conversation, start, stop)
            return
        except CorruptEvent as error:
            yield error
            if error.event_id < start:  # it is the conversation itself that cannot be read
                return
            start = error.event_id + 1


def sound(store: Store, conversation: str, start: int, stop: int, findings: list[str]) -> Iterator[Logged]:
    """Yield the events of ``logged`` that can be read; the others are ``findings``, one for a run of one problem."""
    first, following = 0, (-1, "")
    for one in logged(store, conversation, start, stop):
        if not isinstance(one, CorruptEvent):
            yield one
            continue
        if following == (one.event_id, one.problem):
            findings[-1:] = [str(one).replace(f"event {one.event_id}: ", f"events {first} to {one.event_id}: ")]
        else:
            first = one.event_id
            findings.append(str(one))
        following = one.event_id + 1, one.problem
