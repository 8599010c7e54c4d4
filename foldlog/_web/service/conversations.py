"""Begin, list, fork and erase conversations; their attributes and documents."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from foldlog._web.service.call import Call
from foldlog._web.service.events import Appended, documents_of
from foldlog._web.service.operations import operation
from foldlog._web.service.problems import Problem
from foldlog._web.service.tokens import Scope
from foldlog.eventstore import ConversationNotFound
from foldlog.eventstore.documents.listing import RecentConversation


class NewConversation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``id`` may be any text. Without it, the server makes one. A token with a filter cannot choose
    the id, because a refusal would tell it of conversations that it may not see. Its filter is
    added to the attributes.
    """

    id: str | None = None
    attributes: dict[str, Any] = {}


class ConversationDocument(msgspec.Struct, kw_only=True):
    """``version`` is the number of events. ``lease`` names the worker that has the lease."""

    id: str
    version: int
    attributes: dict[str, Any]
    created_at: str | None = None
    updated_at: str | None = None
    lease: str | None = None


class ListQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``where`` are attributes as ``name=value``, separated by commas. ``after`` is ``next`` of the
    page before.
    """

    where: str = ""
    limit: int = 100
    after: str | None = None


class ConversationList(msgspec.Struct, kw_only=True):
    """The conversation with the newest event comes first. ``next`` is null at the end."""

    conversations: list[ConversationDocument]
    next: str | None


class ForkBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``at`` is a version of the conversation, by default the newest. ``id`` names the fork."""

    at: int | None = None
    id: str | None = None


class AttributesDocument(msgspec.Struct, kw_only=True):
    attributes: dict[str, Any]


class DocumentsDocument(msgspec.Struct, kw_only=True):
    version: int
    documents: dict[str, Any]


class ErasureBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str
    with_forks: bool = False
    detach_forks: bool = False


class ErasureDocument(msgspec.Struct, kw_only=True):
    """If ``bytes_pending``, erased bytes may still be in the files of the store. ``unconfirmed``
    are places that may still contain the conversation.
    """

    id: str
    events: int
    bytes_pending: bool
    unconfirmed: list[str]


@operation("POST", "/conversations", Scope.APPEND, status=201)
def create_conversation(call: Call, body: NewConversation) -> ConversationDocument:
    """Begin a conversation with attributes."""
    where = call.principal.where
    if where and body.id is not None:
        raise Problem(403, "this token cannot choose an id; leave out 'id'")
    attributes = {**body.attributes, **where}
    history = call.histories.create(body.id or secrets.token_hex(16), attributes)
    return ConversationDocument(
        id=history.id, version=history.version(), attributes=history.attributes()
    )


@operation("GET", "/conversations", Scope.READ)
def list_conversations(call: Call, query: ListQuery) -> ConversationList:
    """List the conversations that have some attributes, and that the token may see."""
    attributes = {**_attributes(query.where), **call.principal.where}
    after = None if query.after is None else _place(query.after)
    listed = call.histories.list(attributes, limit=min(query.limit, 1_000), after=after)
    return ConversationList(
        conversations=[_document(row) for row in listed.conversations],
        next=None if listed.after is None else ".".join(map(str, listed.after)),
    )


@operation("GET", "/conversations/{conversation}", Scope.READ)
def read_conversation(call: Call) -> ConversationDocument:
    """Return the version, the attributes and the lease of a conversation."""
    history = call.history
    version = history.version()
    if version == 0:
        raise ConversationNotFound(history.id)
    lease = history.current_lease()
    return ConversationDocument(
        id=history.id,
        version=version,
        attributes=history.attributes(),
        lease=None if lease is None else lease.worker,
    )


@operation("POST", "/conversations/{conversation}/forks", Scope.APPEND, status=201)
def fork(call: Call, body: ForkBody) -> ConversationDocument:
    """Begin a conversation that shares the events up to a version."""
    if call.principal.where and body.id is not None:
        raise Problem(403, "this token cannot choose an id; leave out 'id'")
    made = call.history.fork(body.at, body.id)
    return ConversationDocument(id=made.id, version=made.version(), attributes=made.attributes())


@operation("GET", "/conversations/{conversation}/attributes", Scope.READ)
def read_attributes(call: Call) -> AttributesDocument:
    """Return the attributes, such as the user and the title."""
    return AttributesDocument(attributes=call.history.attributes())


@operation("PATCH", "/conversations/{conversation}/attributes", Scope.APPEND)
def change_attributes(call: Call, body: AttributesDocument) -> AttributesDocument:
    """Change attributes by name. Null removes an attribute, and other attributes stay."""
    history = call.history
    call.check_attributes({**history.attributes(), **body.attributes})
    return AttributesDocument(attributes=history.set_attributes(**body.attributes))


@operation("GET", "/conversations/{conversation}/documents", Scope.READ)
def read_documents(call: Call) -> DocumentsDocument:
    """Return all documents of the conversation by name."""
    history = call.history
    version = history.version()
    return DocumentsDocument(version=version, documents=history.documents(version))


@operation("PATCH", "/conversations/{conversation}/documents", Scope.APPEND, writes=True)
def change_documents(call: Call, body: dict[str, Any]) -> Appended:
    """Set documents by name. Null removes a document."""
    history = call.history
    recorded = history.append(
        [],
        expected_version=call.expected_version,
        idempotency_key=call.idempotency_key,
        documents=documents_of(body),
    )
    return Appended.of(recorded, history.version() if not recorded else 0)


@operation("POST", "/conversations/{conversation}/erasure", Scope.ADMINISTER)
def erase(call: Call, body: ErasureBody) -> ErasureDocument:
    """Erase the conversation for good. A tombstone with the reason stays."""
    history = call.history
    tombstone = call.histories.erase(
        history.id,
        reason=body.reason,
        with_forks=body.with_forks,
        detach_forks=body.detach_forks,
    )
    return ErasureDocument(
        id=tombstone.id,
        events=tombstone.version,
        bytes_pending=tombstone.bytes_pending,
        unconfirmed=list(tombstone.unconfirmed),
    )


def _document(row: RecentConversation) -> ConversationDocument:
    return ConversationDocument(
        id=row.id,
        version=row.version,
        attributes=dict(row.attributes or {}),
        created_at=row.created_at.isoformat(),
        updated_at=row.updated_at.isoformat(),
    )


def _attributes(where: str) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in where.split(",") if pair]
    if any(not name or not separator for name, separator, _ in pairs):
        raise Problem(400, f"where is {where!r}; write name=value, with commas between")
    return {name: value for name, _, value in pairs}


def _place(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise Problem(400, f"after is {text!r}; send 'next' of the page before")
    return int(parts[0]), int(parts[1])
