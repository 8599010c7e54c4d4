"""A companion is a conversation ``ID/+NAME`` with additional data that a runtime stores about the
conversation ``ID``, such as the writes of a thread. Companions are erased, copied, redacted and
rekeyed together with their conversation.

``ID`` may also be a path above several conversations, such as ``app/user``. The companion of a
path, for example the state of the user, belongs to all conversations below the path. Erasing a
conversation below the path does not erase the companion of the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile

from foldlog.eventstore import (
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    ReadTransaction,
    Store,
)
from foldlog.eventstore.log.finding import Listed, Moment, beginning_with, find_existing
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation

_OWN = "/+"
"""The text before the name of a companion. An adapter quotes the ids of its runtime, so the ids
never contain ``/+``.
"""


def companion(conversation: str, name: str) -> str:
    """Return the id of the companion with this name."""
    return f"{conversation}{_OWN}{name}"


def companion_of(conversation: str) -> str:
    """Return the conversation that a companion belongs to. For a companion of a companion, return
    the outermost conversation. Return an empty text for a conversation that is not a companion.
    """
    owner, _, name = conversation.rpartition(_OWN)
    if not owner or "/" in name:
        return ""
    return companion_of(owner) or owner


def companions(store: Store, *conversations: str) -> list[ConversationRow]:
    """Return all companions of the conversations, including erased companions and companions of
    companions.
    """
    return _companions(conversations, partial(rows_beginning_with, store))


def companions_at(moment: Moment, conversations: Iterable[str]) -> list[Conversation]:
    """Return the same companions as ``companions``, at one moment."""

    def listed(start: str) -> Iterator[Conversation]:
        if moment.reader.has_beginning(start):
            yield from moment.beginning_with(start)

    return _companions(conversations, listed)


def _companions(
    conversations: Iterable[str], listed: Callable[[str], Iterable[Listed]]
) -> list[Listed]:
    """Return all companions of the conversations. ``listed`` returns the conversations whose ids
    begin with a text.
    """
    ids = dict.fromkeys(map(str, conversations))  # The store refuses an id that is not a text.
    starts = (companion(owner, "") for owner in ids)
    pairs = ((start, row) for start in starts for row in listed(start))
    rows_by_id = {
        row.id: row
        for start, row in pairs
        if "/" not in row.id.removeprefix(start).replace(_OWN, "")
    }
    return [row for row in rows_by_id.values() if row.id not in ids]


def and_companions(store: Store, conversations: Sequence[str]) -> list[str]:
    """Return the ids of the conversations, followed by the ids of their companions."""
    # An id that is not a text is returned unchanged, so that the store refuses it.
    by_text = {str(conversation): conversation for conversation in conversations}
    return [*by_text.values(), *(row.id for row in companions(store, *conversations))]


def with_companions(store: Store, rows: Iterable[ConversationRow]) -> list[ConversationRow]:
    """Return the rows, followed by the rows of their companions that are not erased."""
    rows = [*rows]
    return [
        *rows,
        *(
            companion
            for companion in companions(store, *(row.id for row in rows))
            if companion.erased_at is None
        ),
    ]


def rows_beginning_with(store: Store, start: str) -> Iterator[ConversationRow]:
    """Yield the rows of the conversations whose ids begin with ``start``."""
    if store.database.recorder.query(lambda reader: reader.has_beginning(start)):
        yield from beginning_with(start, store.conversations)


def ids_beginning_with(store: Store, beginning: str) -> Iterator[str]:
    """Yield the ids of conversations that begin with ``beginning``. Sub-agents
    (``session/agent-1``) of a yielded session are left out.
    """
    if not beginning:
        return
    session: str | None = None
    for name in _ids_from_parts(store, beginning):
        if session is None or not name.startswith(f"{session}/"):
            session = name
            yield name
        if name == beginning:
            return


def _ids_from_parts(store: Store, beginning: str) -> Iterator[str]:
    """Yield the ids that begin with ``beginning``. If there is none, both sides of its first slash
    may be shortened: ``se/ag`` then stands for ``session/agent-1``.
    """
    name = None
    for name in ids_from(store, beginning):
        yield name
    session, slash, rest = beginning.partition("/")
    if name is None and slash and rest:
        for session_id in sessions_beginning_with(store, session):
            whole = f"{session_id}/{rest}"
            for name in ids_from(store, whole):
                yield name
                if name == whole:
                    break


def sessions_beginning_with(store: Store, beginning: str) -> Iterator[str]:
    """Yield the sessions of the conversations whose ids begin with ``beginning``: the parts of the
    ids before their first slashes. A session itself may have no conversation.
    """
    sessions = set[str]()
    for name in ids_from(store, beginning):
        session = name.partition("/")[0]
        if session not in sessions:
            sessions.add(session)
            yield session


def ids_from(store: Store, beginning: str) -> Iterator[str]:
    """Yield the ids of the conversations that begin with ``beginning``, in their order."""
    with suppress(ConversationNotFound):
        if beginning:
            yield store.conversation(beginning, as_stored=True).id
    rows = store.iter_conversations(after=beginning or None)
    yield from takewhile(lambda name: name.startswith(beginning), (row.id for row in rows))


def forked_from(store: Store, conversation: str) -> list[str]:
    """Return the conversations from which a fork was made, or an empty list if they are unknown. A
    fork shares events with them, so their companions may have content of the fork.
    """

    def read(reader: Reader) -> list[str]:
        state = find_existing(store.database, reader, conversation, as_stored=True)
        # Neither the lineage nor the ledger needs events, so none are made or restored.
        return origins_of(
            ReadTransaction(reader, state._replace(unmade=0, archived=0), store.database)
        )

    with suppress(EventStoreError):  # The conversation may be erased, or its key may be missing.
        return store.database.recorder.query(read)
    return []


def origins_of(reading: ReadTransaction) -> list[str]:
    """Return the conversations from which a fork was made, or an empty list if the key of the fork
    is missing.
    """
    with suppress(EventStoreError):
        return [origin.parent for origin in reading.origins()]
    return []
