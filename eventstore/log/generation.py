"""Decide which conversation of an id is meant, where the id of an erased one was used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldlog.eventstore.errors import ConversationNotFound
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.row import beginning_with_an_event, not_erased
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation


@dataclass
class Generation:
    """One conversation of an id: the first one that a writer finds. ``key`` is its key, once it is found.

    ``replaces_erased``: if the conversation that it finds is erased, it begins another one with the same id.
    """

    key: int | None = None
    replaces_erased: bool = False


def find_meant(
    database: Database, reader: Reader, conversation: str, generation: Generation | None
) -> tuple[Conversation | None, int | None]:
    """Return the conversation to append to, or None for one that is to begin, and the key of the erased one that it
    then replaces.

    Raises ``ConversationErased`` where that conversation is erased, whatever has its id now; ``ConversationNotFound``
    where it was found before and is no longer in the store; ``CorruptEvent``.
    """
    found = database.find(reader, conversation)
    if generation is not None and generation.key is not None and (found is None or found.key != generation.key):
        not_erased(reader.conversation(generation.key))
        raise ConversationNotFound(conversation)
    if generation is not None and generation.replaces_erased and found is not None and found.erasure is not None:
        return None, found.key
    if found is not None and (found.erasure is not None or found.version == 0):
        return beginning_with_an_event(not_erased(found)), None  # which raises
    return found, None


def tombstones_before(reader: Reader, found: Conversation) -> Sequence[Conversation]:
    """Return the erased conversations that had this id before, the first one first. Cost: these conversations."""
    tombstones: list[Conversation] = []
    key = found.replaces
    while key is not None:
        earlier = reader.conversation(key)
        if earlier is None or earlier.erasure is None or any(earlier.key == one.key for one in tombstones):
            break
        tombstones.append(earlier)
        key = earlier.replaces
    return tombstones[::-1]
