"""Begin, list, fork and erase conversations; their attributes and documents."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from foldlog._web.service.admitted import AdmittedRequest
from foldlog._web.service.events import AppendedEvents
from foldlog._web.service.operations import APPENDS, OperationAnswer, OperationRequest, operation
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Scope
from foldlog.adapters._shared import below
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationHasForks,
    ConversationNotFound,
    ConversationRow,
)
from foldlog.eventstore.documents.listing import RecentConversation


class NewConversation(OperationRequest):
    """``id`` may be any text. Without it, the server makes one. A token with a filter cannot choose
    the id, because a refusal would tell it of conversations that it may not see. Its filter is
    added to the attributes.
    """

    id: str | None = None
    attributes: dict[str, Any] = {}


class ConversationState(OperationAnswer):
    """``version`` is the number of events. ``lease`` names the worker that has the lease."""

    id: str
    version: int
    attributes: dict[str, Any]
    created_at: str | None = None
    updated_at: str | None = None
    lease: str | None = None


class ListQuery(OperationRequest):
    """``where`` are attributes as ``name=value``, separated by commas. ``below`` is the beginning
    of the ids: then the page has all conversations below it, in no order. ``after`` is ``next`` of
    the page before.
    """

    where: str = ""
    below: str = ""
    limit: int = 100
    after: str | None = None


class ConversationPage(OperationAnswer):
    """The conversation with the newest event comes first. ``next`` is null at the end."""

    conversations: list[ConversationState]
    next: str | None


class ForkBody(OperationRequest):
    """``at`` is a version of the conversation, by default the newest. ``id`` names the fork."""

    at: int | None = None
    id: str | None = None


class Attributes(OperationAnswer):
    attributes: dict[str, Any]


class DocumentValues(OperationAnswer):
    version: int
    documents: dict[str, Any]


class ErasureBody(OperationRequest):
    reason: str
    with_forks: bool = False
    detach_forks: bool = False


class ErasedConversation(OperationAnswer):
    """If ``bytes_pending``, erased bytes may still be in the files of the store. ``unconfirmed``
    are places that may still contain the conversation.
    """

    id: str
    events: int
    bytes_pending: bool
    unconfirmed: list[str]


@operation("POST", "/conversations", Scope.APPEND, status=201)
def create_conversation(request: AdmittedRequest, body: NewConversation) -> ConversationState:
    """Begin a conversation with attributes."""
    where = request.principal.where
    if where and body.id is not None:
        raise Refusal(403, "this token cannot choose an id; leave out 'id'")
    attributes = {**body.attributes, **where}
    history = request.histories.create(body.id or secrets.token_hex(16), attributes)
    return ConversationState(
        id=history.id, version=history.version(), attributes=history.attributes()
    )


@operation("GET", "/conversations", Scope.READ)
def list_conversations(request: AdmittedRequest, query: ListQuery) -> ConversationPage:
    """List the conversations that have some attributes, and that the token may see."""
    asked = _attributes(query.where)
    attributes = {**asked, **request.principal.where}
    if not asked.items() <= attributes.items():
        return ConversationPage(conversations=[], next=None)  # the token sees none of them
    if query.below:
        return _list_below(request, query.below, attributes)
    after = None if query.after is None else _place(query.after)
    listed = request.histories.list(attributes, limit=min(query.limit, 1_000), after=after)
    return ConversationPage(
        conversations=[_state(row, row.attributes or {}) for row in listed.conversations],
        next=None if listed.after is None else ".".join(map(str, listed.after)),
    )


@operation("GET", "/conversations/{conversation}", Scope.READ)
def read_conversation(request: AdmittedRequest) -> ConversationState:
    """Return the version, the attributes and the lease of a conversation."""
    history = request.history
    version = history.version()
    if version == 0:
        raise ConversationNotFound(history.id)
    lease = history.current_lease()
    return ConversationState(
        id=history.id,
        version=version,
        attributes=history.attributes(),
        lease=None if lease is None else lease.worker,
    )


@operation("POST", "/conversations/{conversation}/forks", Scope.APPEND, status=201)
def fork(request: AdmittedRequest, body: ForkBody) -> ConversationState:
    """Begin a conversation that shares the events up to a version."""
    if request.principal.where and body.id is not None:
        raise Refusal(403, "this token cannot choose an id; leave out 'id'")
    history = request.history
    if request.principal.where and body.at is not None:
        request.check_attributes(history.document(ATTRIBUTES, {}, version=body.at))
    made = history.fork(body.at, body.id)
    return ConversationState(id=made.id, version=made.version(), attributes=made.attributes())


@operation("GET", "/conversations/{conversation}/attributes", Scope.READ)
def read_attributes(request: AdmittedRequest) -> Attributes:
    """Return the attributes, such as the user and the title."""
    return Attributes(attributes=request.history.attributes())


@operation("PATCH", "/conversations/{conversation}/attributes", Scope.APPEND)
def change_attributes(request: AdmittedRequest, body: Attributes) -> Attributes:
    """Change attributes by name. Null removes an attribute, and other attributes stay."""
    history = request.history
    request.check_attributes({**history.attributes(), **body.attributes})
    return Attributes(attributes=history.set_attributes(**body.attributes))


@operation("GET", "/conversations/{conversation}/documents", Scope.READ)
def read_documents(request: AdmittedRequest) -> DocumentValues:
    """Return all documents of the conversation by name."""
    history = request.history
    version = history.version()
    return DocumentValues(version=version, documents=history.documents(version))


@operation("PATCH", "/conversations/{conversation}/documents", Scope.APPEND, headers=APPENDS)
def change_documents(request: AdmittedRequest, body: dict[str, Any]) -> AppendedEvents:
    """Set documents by name. Null removes a document."""
    history = request.history
    recorded = history.append(
        [],
        expected_version=request.expected_version,
        idempotency_key=request.idempotency_key,
        documents=request.checked_documents(body),
    )
    return AppendedEvents.after(history, recorded)


@operation("POST", "/conversations/{conversation}/erasure", Scope.ADMINISTER)
def erase(request: AdmittedRequest, body: ErasureBody) -> ErasedConversation:
    """Erase the conversation for good. A tombstone with the reason stays."""
    history = request.history
    if request.principal.where and (body.with_forks or body.detach_forks):
        raise Refusal(403, "this token may not see all forks, so it cannot erase or detach them")
    try:
        tombstone = request.histories.erase(
            history.id,
            reason=body.reason,
            with_forks=body.with_forks,
            detach_forks=body.detach_forks,
        )
    except ConversationHasForks:
        if request.principal.where:
            raise Refusal(409, "the conversation has forks; ask an administrator") from None
        raise
    return ErasedConversation(
        id=tombstone.id,
        events=tombstone.version,
        bytes_pending=tombstone.bytes_pending,
        unconfirmed=list(tombstone.unconfirmed),
    )


def _list_below(request: AdmittedRequest, start: str, where: Mapping[str, Any]) -> ConversationPage:
    listed = []
    for row in below(request.histories, start):
        attributes = request.histories[row.id].attributes()
        if where.items() <= attributes.items():
            listed.append(_state(row, attributes))
    return ConversationPage(conversations=listed, next=None)


def _state(
    row: RecentConversation | ConversationRow, attributes: Mapping[str, Any]
) -> ConversationState:
    return ConversationState(
        id=row.id,
        version=row.version,
        attributes=dict(attributes),
        created_at=row.created_at.isoformat(),
        updated_at=row.updated_at.isoformat(),
    )


def _attributes(where: str) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in where.split(",") if pair]
    if any(not name or not separator for name, separator, _ in pairs):
        raise Refusal(400, f"where is {where!r}; write name=value, with commas between")
    return {name: value for name, _, value in pairs}


def _place(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise Refusal(400, f"after is {text!r}; send 'next' of the page before")
    return int(parts[0]), int(parts[1])
