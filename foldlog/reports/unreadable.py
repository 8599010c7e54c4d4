"""Read around damage, with the problem in the place of an event or of a conversation that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eventstore import ConversationRow, CorruptEvent, EventStoreError, Logged, Recorded, Store, StoreUnusable

if TYPE_CHECKING:
    from eventstore.maintenance.damage import Unlisted


def listed_around_damage(store: Store) -> Iterator[ConversationRow | Unlisted]:
    """Yield all conversations of the store, in the order of ids."""
    from eventstore.log.database import translated
    from eventstore.maintenance.damage import Unlisted, readable_conversations

    after = None
    try:
        for row in store.iter_conversations():
            yield row
            after = row.id
        return
    except StoreUnusable:
        pass  # below, one by one
    with translated():
        for found in readable_conversations(store.database.recorder, after):
            try:
                yield found if isinstance(found, Unlisted) else store.conversation(found.id)
            except EventStoreError as error:
                yield Unlisted(found.id, str(error))


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
