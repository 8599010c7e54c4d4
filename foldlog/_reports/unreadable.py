"""Read around damage, with the problem in the place of an event that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from foldlog.eventstore import CorruptEvent, Logged, Recorded, Store


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
    """Yield the events of ``logged`` that can be read; the others are ``findings``."""
    for one in logged(store, conversation, start, stop):
        if isinstance(one, CorruptEvent):
            findings.append(str(one))
        else:
            yield one
