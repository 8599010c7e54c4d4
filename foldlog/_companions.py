"""The companions of a conversation: the conversations ``ID/+NAME`` that a runtime keeps beside it,
such as the writes of a thread. They are part of it: what erases, copies, redacts or rekeys a
conversation does so with them.

``ID`` may also be what the ids of several conversations begin with. Then they share what is kept
there, such as the state of a user, and it is a companion of none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    ReadTransaction,
    Store,
)
from foldlog.eventstore.inside import beginning_with

_OWN = "/+"
"""What precedes the name of a companion. An id that a runtime was given is quoted, so it has no
such part.
"""


def companion(conversation: str, name: str) -> str:
    """Return the id of a companion."""
    return f"{conversation}{_OWN}{name}"


def companion_of(conversation: str) -> str:
    """Return the id of which a conversation, or the one that it is a companion of, is a companion,
    so that lists leave it out; an empty text for another.
    """
    whole, _, name = conversation.rpartition(_OWN)
    return (companion_of(whole) or whole) if whole and "/" not in name else ""


def companions(store: Store, *conversations: str) -> list[ConversationRow]:
    """Return the other companions of these conversations, and theirs, each once, erased ones too.
    Cost: these, and a look-up for each.
    """
    wanted = dict.fromkeys(map(str, conversations))  # the store refuses an id that is not text
    starts = (companion(each, "") for each in wanted)
    begun = ((start, row) for start in starts for row in _beginning_with(store, start))
    found = {
        row.id: row
        for start, row in begun
        if "/" not in row.id.removeprefix(start).replace(_OWN, "")
    }
    return [row for row in found.values() if row.id not in wanted]


def and_companions(store: Store, conversations: Sequence[str]) -> list[str]:
    """Return these ids, and those of their companions, erased ones too, each once."""
    # the store refuses an id that is not text
    each_once = {str(each): each for each in conversations}
    return [*each_once.values(), *(row.id for row in companions(store, *conversations))]


def with_companions(store: Store, rows: Iterable[ConversationRow]) -> list[ConversationRow]:
    """Return conversations, and their companions without erased ones."""
    rows = [*rows]
    return [
        *rows,
        *(each for each in companions(store, *(row.id for row in rows)) if each.erased_at is None),
    ]


def sub_agents(store: Store, conversation: str) -> list[str]:
    """Return the conversations ``ID/…`` whose first event names a parent, as that of a sub-agent of
    Claude Code does, or cannot be read. Cost: these, and their first events.
    """
    return [
        row.id
        for row in _beginning_with(store, f"{conversation}/")
        if row.erased_at is None
        and not companion_of(row.id)
        and _is_begun_by_another(store, row.id)
    ]


def _beginning_with(store: Store, start: str) -> Iterator[ConversationRow]:
    if store.database.recorder.query(lambda reader: reader.has_beginning(start)):
        yield from beginning_with(start, store.conversations)


def _is_begun_by_another(store: Store, conversation: str) -> bool:
    try:
        return any("parent" in event.meta for event in store.events(conversation, 0, 1))
    except ConversationErased:  # since it was listed
        return False
    except EventStoreError:  # without its key
        return True


def ids_meant(store: Store, given: str) -> Iterator[str]:
    """Yield the id that a person may mean: the given one, or those that begin with it; of a session
    and its sub-agents, which are ``session/agent-1``, the session.
    """
    above: str | None = None
    for name in _ids_from_parts(store, given) if given else ():
        if above is None or not name.startswith(f"{above}/"):
            above = name
            yield name
        if name == given:
            return


def _ids_from_parts(store: Store, given: str) -> Iterator[str]:
    """Yield the ids that begin with ``given``; where there are none, those of which each part
    begins so.
    """
    name = None
    for name in ids_from(store, given):
        yield name
    session, slash, rest = given.partition("/")
    if name is None and slash and rest:
        for above in ids_meant(store, session):
            yield from ids_from(store, f"{above}/{rest}")


def ids_from(store: Store, beginning: str) -> Iterator[str]:
    """Yield the ids that begin with ``beginning``."""
    with suppress(ConversationNotFound):
        if beginning:
            yield store.conversation(beginning, pending=True).id
    rows = store.iter_conversations(after=beginning or None)
    yield from takewhile(lambda name: name.startswith(beginning), (row.id for row in rows))


def forked_from(store: Store, conversation: str) -> list[str]:
    """Return the conversations that a fork was begun from: their companions may hold what is in
    it.
    """
    with suppress(EventStoreError):  # it is erased, or its key is not given
        row = store.conversation(conversation, pending=True)
        if row.pending and not row.version:  # an import that was not used
            return []
        return [origin.parent for origin in store.query(conversation, ReadTransaction.origins)]
    return []
