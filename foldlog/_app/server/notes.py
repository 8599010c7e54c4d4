"""Notes and bookmarks of the readers of a page. Notes are stored beside the events of a
conversation, never as events.

A note is encrypted with its conversation and erased with its conversation. A note may quote
redacted content, so a redaction removes all notes of the conversation.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from foldlog._app.server.parameters import Text
from foldlog._reports.answers.events import NoteDocument, NotesDocument
from foldlog.eventstore import InvalidArgument, Store, StoreUnavailable
from foldlog.eventstore.cached_values import CachedValues, cached_records, value_of

TEXT_MAX = 10_000
"""The maximum number of characters of a note."""
_NAME = "notes"
_CODE = 1
"""The version of the stored notes."""
_TRIES = 20
"""How often a note is written again if another program wrote at the same time."""


def conversations_with_notes(store: Store) -> set[str]:
    """Return the ids of the conversations with a note. Cost: one statement looks at each
    conversation, and the notes are read.
    """
    names = store.database.recorder.query(lambda reader: reader.ids_with_records(_NAME))
    noted = set[str]()
    for name in names:
        _, record = cached_records(store, _NAME, name, name).get(name, (0, None))
        if record is not None and value_of(record.body):
            noted.add(name)
    return noted


class NoteChange(Struct):
    """What a reader writes, such as ``{"event": 12, "text": "…"}``."""

    event: Annotated[int, Meta(ge=0)] | None = None
    text: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None


class Notes:
    """The notes of a store's conversations. Many threads may use this object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()

    def of(self, conversation: Text) -> NotesDocument:
        """Return the notes of a conversation. Raises ``ConversationNotFound`` or
        ``ConversationErased``.
        """
        with self._lock:
            return NotesDocument(
                conversation=conversation,
                notes=self._load(CachedValues(self._store, _NAME, _CODE), conversation),
            )

    def change(self, conversation: str, event: int | None, text: str | None) -> NotesDocument:
        """Write a note on an event, or on the whole conversation if ``event`` is None, and return
        all notes. The note replaces an earlier note on the same event. If the text is None, the
        earlier note is removed.

        The note is on disk when the method returns. Raises ``InvalidArgument`` if the conversation
        has no such event, ``ConversationNotFound`` or ``ConversationErased``. Raises
        ``StoreUnavailable`` if other programs write to the store all the time.
        """
        with self._lock:
            for _ in range(_TRIES):
                cache = CachedValues(self._store, _NAME, _CODE, at_once=False)
                row = self._store.conversation(conversation)
                if event is not None and event >= row.version:
                    raise InvalidArgument(
                        f"conversation {conversation!r} has no event {event}; use 0 to"
                        f" {row.version - 1}"
                    )
                others = [note for note in self._load(cache, conversation) if note.event != event]
                if text is not None:
                    now = datetime.now(UTC).isoformat(timespec="seconds")
                    others.append(NoteDocument(event=event, text=text, at=now))
                notes = tuple(
                    sorted(others, key=lambda note: -1 if note.event is None else note.event)
                )
                cache.keep(row, notes)
                cache.flush()
                if self._load(CachedValues(self._store, _NAME, _CODE), conversation) == notes:
                    return NotesDocument(conversation=conversation, notes=notes)
        raise StoreUnavailable(
            "the note was not stored, because other programs write to the store; send it again",
            kind="busy",
        )

    def _load(self, cache: CachedValues, conversation: str) -> tuple[NoteDocument, ...]:
        """Return the stored notes. Raises ``ConversationNotFound`` or ``ConversationErased``."""
        row = self._store.conversation(conversation)
        # raises ConversationErased
        self._store.query(conversation, lambda reading: reading.version)
        notes: tuple[NoteDocument, ...] = cache.load(
            [row], tuple[NoteDocument, ...], of_any_version=True
        ).get(row.id, ())
        return notes
