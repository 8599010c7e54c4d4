"""Conversations whose events cannot be stored, since their store can only be read: each is made in
memory when it is first asked for, under the key that it has in its store.
"""

from __future__ import annotations

from threading import Event, RLock
from typing import Final

from foldlog._archive.projecting import make_events
from foldlog._formats.calls import Recent
from foldlog.eventstore import ConversationNotFound, Store
from foldlog.eventstore.inside import Conversation
from foldlog.eventstore.maintenance.copy import copy_conversation
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

_CONVERSATIONS_MAX: Final = 4
"""The number of conversations that are in memory at once."""


class EventsInMemory:
    """The conversations of a store that were asked for last. Any number of threads may use it."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, RLock()
        self._made = Recent[str, tuple[Conversation, Recorder]](_CONVERSATIONS_MAX)

    def of(self, conversation: str) -> Recorder:
        """Return a store in memory that has this conversation alone, as it is now, with all its
        events. Cost: its events and records, where it is not as it was.
        """
        with self._lock:
            found = self._found(conversation)
            known, recorder = self._made.get(conversation, (None, None))
            if recorder is None or known != found:
                recorder = self._copied(found)
                self._made[conversation] = found, recorder
            return recorder

    def _found(self, conversation: str) -> Conversation:
        database = self._store.database

        def find(reader: Reader) -> Conversation | None:
            return database.find(reader, conversation, pending=True)

        found = database.recorder.query(find)
        if found is None:
            raise ConversationNotFound(conversation)
        return found

    def _copied(self, found: Conversation) -> Recorder:
        recorder = MemoryRecorder()
        copy = Store(recorder)
        recorder.set_next_key(found.key)
        copy_conversation(self._store.database, copy.database, found.id, Event())
        make_events(copy, found.id)
        return recorder
