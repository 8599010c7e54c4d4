"""Answers about stored events."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document, OfConversation, OfVersion


class FoundDocument(Document):
    """An event that contains all searched words, and the text around these words."""

    event: int
    snippet: str


class FindDocument(Document):
    """The answer of ``/api/find``."""

    hits: tuple[FoundDocument, ...]


class HitDocument(OfConversation, kw_only=True):
    """An event that a search found. ``timestamp`` is the time when the event happened, or null if
    it is unknown. If the source names no time zone, ``timestamp`` has none. If a sub-agent has the
    event, ``task`` is the conversation at the top of its task.
    """

    task: str | UnsetType = UNSET
    event: int
    kind: str
    recorded_at: str
    timestamp: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


class HitsDocument(Document):
    """The output of ``foldlog search`` and the answer of ``/api/search``. ``more`` is true if
    further events contain the words. ``read`` is the number of searched conversations, and
    ``conversations`` is the number of all conversations. A search ends early if it has found
    enough, or if it runs out of time. ``unread`` are the problems of conversations that could not
    be read. ``is_partial`` is true if the search for the conversations of a search line did not
    read all, and is else left out.
    """

    words: str
    hits: tuple[HitDocument, ...]
    more: bool
    read: int
    conversations: int
    unread: tuple[str, ...]
    is_partial: bool | UnsetType = UNSET


class AttributesDocument(OfConversation):
    """The output of ``foldlog attributes``."""

    attributes: JsonObject


class DocumentsDocument(OfVersion):
    """The output of ``foldlog show --documents``."""

    documents: JsonObject


class AppendedDocument(OfVersion):
    """The output of ``foldlog append``: the ids of the new events, and the version after the
    append.
    """

    events: tuple[int, ...]


class RetractedDocument(OfConversation):
    """The output of ``foldlog retract``. ``event`` is the id of the retraction. ``shown`` is the
    number of events in the View after the retraction.
    """

    event: int
    to: int
    taken_back: int
    shown: int


class NoteDocument(Document):
    """A note that a user of the page wrote about an event. If ``event`` is null, the note is about
    the conversation. A note without a text is a bookmark.
    """

    event: int | None
    text: str
    at: str


class NotesDocument(OfConversation):
    """The answer of ``/api/notes``: the notes of a conversation in the order of events."""

    notes: tuple[NoteDocument, ...]


class EventsDocument(OfConversation):
    """The answer of ``/api/events``: full events from ``start`` on. If the events are long, the
    document has fewer events than requested.
    """

    start: int
    events: tuple[JsonObject, ...]


class BorderDocument(Document):
    """The version at which a fork begins. The fork shares all earlier events with its parent."""

    parent: str
    parent_version: int


class ShownDocument(OfConversation):
    """The output of ``foldlog show`` and the answer of ``/api/event``: a stored event.
    ``/api/event`` leaves out the source record.
    """

    event: JsonObject


class LogDocument(OfVersion, kw_only=True):
    """The output of ``foldlog log``: stored events, and the problems of events that cannot be read.
    ``--kind`` chooses events by their ``label``.
    """

    borders: tuple[BorderDocument, ...] | UnsetType = UNSET
    events: tuple[JsonObject, ...]
    findings: tuple[str, ...] = ()


class UnreadEventDocument(Document):
    """An event that cannot be read, and the problem."""

    event: int
    problem: str
