"""The JSON documents that the command prints for ``--json`` and the server sends below ``/api``.

One word stands for one thing: a conversation is ``conversation``, a length ``version``, an event ``event``. Times are
texts in ISO 8601. ``docs/json-schema.json`` is made of these classes by ``scripts/json-schema``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON document, or a part of one. A field that is unset is left out."""


class ConversationDocument(Document, frozen=True, kw_only=True):
    """A conversation in a list. Fields from ``attributes`` on need its events: a short list leaves them out."""

    conversation: str
    version: int
    created_at: str
    updated_at: str
    head: str | None = None
    erased_at: str | None = None
    erased_reason: str | None = None
    bytes_pending: bool = False
    unconfirmed: tuple[str, ...] = ()
    parent: str | None = None
    parent_version: int | None = None
    attributes: dict[str, Any] | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    format: str | UnsetType | None = UNSET
    sent_events: int | UnsetType | None = UNSET
    sent_summaries: int | UnsetType | None = UNSET
    tokens: int | UnsetType | None = UNSET
    condensations: int | UnsetType | None = UNSET
    last_event_at: str | UnsetType | None = UNSET
    problem: str | UnsetType | None = UNSET
    needs_key: bool | UnsetType = UNSET


class ServedConversationDocument(ConversationDocument, frozen=True, kw_only=True):
    """A conversation in the list of the server. Fields that are not counted yet are left out."""

    tokens_saved: int | UnsetType | None = UNSET
    cost: float | UnsetType | None = UNSET
    costs_recorded: int | UnsetType = UNSET
    open_ms: float | UnsetType = UNSET


class ServedPageDocument(Document, frozen=True, kw_only=True):
    """``/api/conversations``: a page of the list, the last recorded first. ``counted`` of ``total`` have figures."""

    conversations: tuple[ServedConversationDocument, ...]
    total: int
    counted: int


class HitDocument(Document, frozen=True, kw_only=True):
    """An event that a search found. ``timestamp`` is when it happened, None where the event does not say."""

    conversation: str
    event: int
    kind: str
    recorded_at: str
    timestamp: str | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


class HitsDocument(Document, frozen=True, kw_only=True):
    """``foldlog search`` and ``/api/search``. ``unread`` damaged events are not in the index."""

    words: str
    hits: tuple[HitDocument, ...]
    unread: int


class HeadDocument(Document, frozen=True, kw_only=True):
    """A head to publish. ``generation``: how many erased conversations had the id before."""

    conversation: str
    version: int
    head: str
    generation: int | UnsetType = UNSET


class AttributesDocument(Document, frozen=True, kw_only=True):
    """``foldlog attributes``."""

    conversation: str
    attributes: dict[str, Any]


class DocumentsDocument(Document, frozen=True, kw_only=True):
    """``foldlog documents``."""

    conversation: str
    version: int
    documents: dict[str, Any]


class ForkDocument(Document, frozen=True, kw_only=True):
    """``foldlog fork``: the new conversation, and where it left its parent."""

    conversation: str
    version: int
    parent: str | None
    parent_version: int | None
    head: str | None


class ReportDocument(Document, frozen=True, kw_only=True):
    """``foldlog report``: the file that was written."""

    conversation: str
    version: int
    file: str
    bytes: int


class RetractedDocument(Document, frozen=True, kw_only=True):
    """``foldlog retract``: ``event`` is the retraction, ``shown`` how many events the View has now."""

    conversation: str
    event: int
    to: int
    taken_back: int
    shown: int


class ErasedDocument(Document, frozen=True, kw_only=True):
    """``foldlog erase``: the tombstone. ``version`` is how many events were erased."""

    conversation: str
    version: int
    head: str
    erased_at: str
    reason: str | None
    bytes_pending: bool
    unconfirmed: tuple[str, ...]


class ProblemDocument(Document, frozen=True, kw_only=True):
    """A finding in one conversation, or in the database where ``conversation`` is None."""

    conversation: str | None
    problem: str


class BackedUpDocument(Document, frozen=True, kw_only=True):
    """``foldlog backup``."""

    file: str
    bytes: int
    conversations: int
    events: int
    findings: tuple[ProblemDocument, ...]


class CopiedDocument(Document, frozen=True, kw_only=True):
    """``foldlog copy``. ``grown_since`` names conversations with events that came while the copy was made."""

    conversations: int
    already_there: int
    events: int
    tombstones: int
    grown_since: tuple[str, ...]
    findings: tuple[ProblemDocument, ...]


class VacuumDocument(Document, frozen=True, kw_only=True):
    """``foldlog vacuum``."""

    imports_discarded: int
    bytes_before: int
    bytes_after: int
    bytes_pending: bool
    space_returned: bool


def schema() -> dict[str, Any]:
    """Return the JSON Schema of all documents, by the names of their classes."""
    kinds = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Document)]
    _, components = msgspec.json.schema_components(kinds[1:], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": components}
