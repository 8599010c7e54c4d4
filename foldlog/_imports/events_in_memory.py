"""Make events in memory for conversations in a read-only store. A conversation is copied into
memory when a caller first needs it. The copy keeps the key of the conversation.
"""

from __future__ import annotations

from threading import Event as ThreadEvent, RLock
from typing import Final

from foldlog._imports.making_events import make_events
from foldlog.eventstore import ConversationNotFound, Store
from foldlog.eventstore.maintenance.copy import CopyOptions, copy_conversation
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.tables import Sources, query_sources
from foldlog.formats.open_calls import Recent

_CONVERSATIONS_MAX: Final = 4
"""The number of copies that stay in memory."""


class EventsInMemory:
    """The copies of conversations of one read-only store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = RLock()
        self._copies = Recent[str, tuple[Conversation, Recorder]](_CONVERSATIONS_MAX)

    def of(self, conversation: str) -> Recorder:
        """Return a copy of a conversation in memory, with its events. Cost: if the conversation has
        changed since the last call, the method reads its events and records. Otherwise it reads
        nothing.
        """
        with self._lock:
            present = self._find(conversation)
            copied, recorder = self._copies.get(conversation, (None, None))
            if recorder is None or copied != present:
                recorder = self._copy(present)
                self._copies[conversation] = present, recorder
            return recorder

    def _find(self, conversation: str) -> Conversation:
        row = query_sources(self._store.database, Sources.find, conversation)
        if row is None:
            raise ConversationNotFound(conversation)
        return row

    def _copy(self, row: Conversation) -> Recorder:
        """Return a store in memory with a conversation and its events."""
        recorder = MemoryRecorder()
        copy = Store(recorder)
        recorder.set_next_key(row.key)
        options = CopyOptions(stopped=ThreadEvent())
        copy_conversation(self._store.database, copy.database, row.id, options)
        make_events(copy, row.id)
        return recorder
