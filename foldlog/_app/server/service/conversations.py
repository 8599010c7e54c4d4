"""Begin, list, fork and erase conversations; their attributes and documents."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from foldlog._app.server.parameters import Count, Named, Text, convert
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service.events import AppendedEvents
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonMap
from foldlog._history.history import History
from foldlog._history.lease import Lease
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.events import AttributesDocument, DocumentsDocument
from foldlog.adapters._shared import below as rows_below
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    IdempotencyConflict,
    VersionConflict,
)
from foldlog.eventstore.lists.pages import RecentConversation
from foldlog.eventstore.log.writing import decode_attributes, pairs_of
from foldlog.types import ExpectedVersion

_PAIRS = "^([^=,]+=[^,]*(,[^=,]+=[^,]*)*)?$"
Where = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": _PAIRS})]
"""Attributes as ``name=value``, with commas between."""
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A part of the place in a list: a time in microseconds, or the key of a conversation."""
_Cursor = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})$")]
_Limit = Annotated[int, msgspec.Meta(ge=1)]
_LISTED_MAX = 1_000
"""A page has at most this many conversations."""
_LISTED_TOGETHER = 100
"""The conversations of a part of a page, after which the bytes of the page are looked at."""
_LISTED_BYTES = 1_000_000
"""A page ends when the attributes in it pass this number of bytes."""
_SAME_LIST_S = 60.0
"""The parts of a page come from a list of this age, not from one that is made for each part."""
AttributeValue = str | int | bool | list[str]


class ConversationState(Document, frozen=True):
    """``version`` is the number of events. ``lease`` names the worker that has the lease, and is
    null in a list.
    """

    id: str
    version: int
    attributes: JsonMap
    created_at: str
    updated_at: str
    lease: str | None = None

    @classmethod
    def of_row(
        cls,
        row: RecentConversation | ConversationRow,
        attributes: JsonMap,
        lease: Lease | None = None,
    ) -> ConversationState:
        return cls(
            id=row.id,
            version=row.version,
            attributes=attributes,
            created_at=row.created_at.isoformat(),
            updated_at=row.updated_at.isoformat(),
            lease=None if lease is None else lease.worker,
        )


class ConversationPage(Document, frozen=True):
    """The conversation with the newest event comes first. ``next`` is null at the end.

    The list has all changes up to ``as_of``. While many conversations have changed since,
    ``is_complete`` is false: the list then has the newest changes, and may lack some after
    ``as_of``. ``as_of`` is null if the list was never complete, and for a list by ``below``, which
    is read from the log.
    """

    conversations: list[ConversationState]
    next: str | None
    as_of: str | None = None
    is_complete: bool = True


class UnfinishedConversations(Document, frozen=True):
    """The ids of the conversations, at most 1,000."""

    conversations: list[str]


ReadSeconds = Annotated[int, msgspec.Meta(ge=1, le=3_600)]
"""How long a read token lives. A page in a browser asks its server for the next one."""


class ReadToken(Document, frozen=True):
    """A token for ``Authorization: Bearer``. ``expires_at`` is in seconds since 1970."""

    token: str
    expires_at: int


class ErasedConversation(Document, frozen=True):
    """If ``bytes_pending``, erased bytes may still be in the files of the store. ``unconfirmed``
    are places that may still contain the conversation.
    """

    id: str
    events: int
    bytes_pending: bool
    unconfirmed: tuple[str, ...]


@operation("POST", "/conversations")
def create_conversation(
    request: AdmittedRequest,
    *,
    id: Text | None = None,
    attributes: Named[AttributeValue] | None = None,
    idempotency_key: str | None,
) -> ConversationState:
    """Begin a conversation with attributes.

    ``id`` may be any text. Without it, the server makes one. A token with a filter cannot choose
    the id. Its filter is added to the attributes.
    """
    attributes = {**(attributes or {}), **request.principal.where}
    history = request.histories[request.new_id(id, idempotency_key)]
    recorded = history.append(
        [],
        documents={ATTRIBUTES: attributes},
        expected_version=0,
        idempotency_key=idempotency_key,
    )
    last = recorded[-1]
    return ConversationState(
        id=history.id,
        version=last.id + 1,
        attributes=attributes,
        created_at=last.recorded_at.isoformat(),
        updated_at=last.recorded_at.isoformat(),
    )


@operation("POST", "/conversations/{conversation}/read-tokens", Scope.READ)
def create_read_token(request: AdmittedRequest, *, seconds: ReadSeconds = 300) -> ReadToken:
    """Return a token that reads this conversation and its streams for some seconds, at most an
    hour. Give it to a page in a browser. It shares the limits of the token of this request.
    """
    history = request.history
    key = history._conversation_key()
    if key is None or not history.version():
        raise ConversationNotFound(history.id)
    if request.principal.conversation is not None:
        raise Refusal(403, "a read token makes no other one; ask with the token of your server")
    expires_at = int(time.time()) + seconds
    token = request.principal.read_token(history.id, key, expires_at)
    return ReadToken(token=token, expires_at=expires_at)


@operation("GET", "/conversations")
def list_conversations(
    request: AdmittedRequest,
    *,
    where: Where = "",
    below: str = "",
    limit: _Limit = 100,
    after: _Cursor | None = None,
) -> ConversationPage:
    """List the conversations that have some attributes, and that the token may see.

    ``where`` are attributes as ``name=value``, separated by commas. Write a comma, an equals sign
    or a percent sign inside a name or a value as ``%2C``, ``%3D`` or ``%25``. The values are texts,
    so an attribute that is a number or a boolean is not found. ``below`` is the beginning of the
    ids: then the page has all conversations below it, in no order. ``after`` is ``next`` of the
    page before.
    """
    asked = attributes_in(where)
    attributes = {**asked, **request.principal.where}
    if not asked.items() <= attributes.items():
        return ConversationPage(conversations=[], next=None)  # the token sees none of them
    if below:
        return _list_below(request, below, asked)
    place = None if after is None else convert("after", after.split("."), tuple[_Place, _Place])
    conversations: list[ConversationState] = []
    left = min(limit, _LISTED_MAX)
    size = 0
    # A list has what its reader has just written, through any process.
    age_max_s = 0.0
    as_of: str | None = None
    is_complete = True
    while True:
        page = request.histories.list(
            attributes, limit=min(left, _LISTED_TOGETHER), after=place, age_max_s=age_max_s
        )
        if as_of is None and page.as_of.timestamp():
            as_of = page.as_of.isoformat()
        is_complete = is_complete and page.is_complete
        for row in page.conversations:
            if request.principal.sees(row.attributes or {}):
                conversations.append(ConversationState.of_row(row, row.attributes or {}))
                size += len(msgspec.json.encode(row.attributes))
        place = page.after
        age_max_s = _SAME_LIST_S
        left -= len(page.conversations)
        if place is None or left <= 0 or size > _LISTED_BYTES:
            break
    following = None if place is None else ".".join(map(str, place))
    return ConversationPage(
        conversations=conversations,
        next=following,
        as_of=as_of,
        is_complete=is_complete,
    )


@operation("GET", "/unfinished", Scope.APPEND, is_long=True)
def list_unfinished(request: AdmittedRequest) -> UnfinishedConversations:
    """Return the conversations that a worker left, for example because it died.

    Such a conversation has open calls and no later reply of the model, an open reply whose last
    chunk is ten minutes old, or a lease that was not released, and no worker drives it now. A
    worker that starts takes the lease of each and goes on. Sub-agents are left out, because the
    worker of their conversation resumes them.
    """
    histories = request.histories
    left = (name for name in histories.to_resume() if request.is_visible(histories[name]))
    return UnfinishedConversations(conversations=list(islice(left, _LISTED_MAX)))


@operation("GET", "/conversations/{conversation}")
def read_conversation(request: AdmittedRequest) -> ConversationState:
    """Return the version, the attributes and the lease of a conversation."""
    history = request.history
    row = history._store.conversation(history.id)
    return ConversationState.of_row(row, history.attributes(), history.current_lease())


@operation("POST", "/conversations/{conversation}/forks")
def fork(
    request: AdmittedRequest,
    *,
    at: Count | None = None,
    id: Text | None = None,
    idempotency_key: str | None,
) -> ConversationState:
    """Begin a conversation that shares the events up to a version.

    ``at`` is a version of the conversation, by default the newest. ``id`` names the fork.
    """
    history = request.history
    name = request.new_id(id, idempotency_key)
    if request.principal.where and at is not None:
        request.check_attributes(history.document(ATTRIBUTES, {}, version=at))
    store = request.histories.store
    try:
        made = history.fork(at, name)
    except VersionConflict:
        if idempotency_key is None:
            raise
        if not _is_fork_of(history, store.conversation(name), at):
            raise IdempotencyConflict(name, idempotency_key, 0) from None
        made = request.histories[name]
        request.check_visible(made)  # its attributes may have changed
    return ConversationState.of_row(store.conversation(name), made.attributes())


def _is_fork_of(history: History, row: ConversationRow, at: int | None) -> bool:
    """Return whether a conversation is a fork of ``history`` at a version, or at any version if
    ``at`` is None. The parent of a fork is the conversation whose own events it shares last: in a
    fork of a fork, this may be the first conversation.
    """
    version = row.parent_version
    if version is None or at not in (None, version):
        return False
    lineage = history._store.query(history.id, lambda reading: reading.lineage)
    owners = (border.parent for border in lineage if version <= border.version)
    return row.parent == next(owners, history.id)


@operation("GET", "/conversations/{conversation}/attributes")
def read_attributes(request: AdmittedRequest) -> AttributesDocument:
    """Return the attributes, such as the user and the title."""
    history = request.history
    return AttributesDocument(conversation=history.id, attributes=history.attributes())


@operation("PATCH", "/conversations/{conversation}/attributes")
def change_attributes(
    request: AdmittedRequest, *, attributes: Named[AttributeValue | None]
) -> AttributesDocument:
    """Change attributes by name. Null removes an attribute, and other attributes stay."""
    history = request.history
    request.check_attributes({**history.attributes(), **attributes})
    changed = history.set_attributes(**attributes)
    return AttributesDocument(conversation=history.id, attributes=changed)


@operation("GET", "/conversations/{conversation}/documents")
def read_documents(request: AdmittedRequest) -> DocumentsDocument:
    """Return all documents of the conversation by name."""
    history = request.history
    version = history.version()
    documents = history.documents(version)
    return DocumentsDocument(conversation=history.id, version=version, documents=documents)


@operation("PATCH", "/conversations/{conversation}/documents")
def change_documents(
    request: AdmittedRequest,
    *,
    body: Named[Any],
    expected_version: ExpectedVersion,
    idempotency_key: str | None,
) -> AppendedEvents:
    """Set documents by name. Null removes a document."""
    history = request.history
    recorded = history.append(
        [],
        expected_version=expected_version,
        idempotency_key=idempotency_key,
        documents=request.checked_documents(body),
    )
    return AppendedEvents.after(history, recorded)


@operation("POST", "/conversations/{conversation}/erasure", Scope.ADMINISTER, status=200)
def erase(
    request: AdmittedRequest, *, reason: Text, with_forks: bool = False, detach_forks: bool = False
) -> ErasedConversation:
    """Erase the conversation for good. A tombstone with the reason stays."""
    history = request.history
    if request.principal.where and (with_forks or detach_forks):
        raise Refusal(403, "this token may not see all forks, so it cannot erase or detach them")
    tombstone: ConversationRow | None = None
    try:
        while tombstone is None:
            # The erasure goes by the id, which another conversation may have by then.
            expected = history._store.conversation(history.id)
            with suppress(VersionConflict):  # the conversation has a new event, so read it again
                tombstone = request.histories.erase(
                    history.id,
                    reason=reason,
                    with_forks=with_forks,
                    detach_forks=detach_forks,
                    expected=expected,
                )
    except ConversationHasForks:
        if request.principal.where:
            raise Refusal(409, "the conversation has forks; ask an administrator") from None
        raise
    request.exports.clear()
    return ErasedConversation.of(tombstone, events=tombstone.version)


def _list_below(request: AdmittedRequest, start: str, asked: JsonMap) -> ConversationPage:
    """Return all conversations below the beginning of an id that have some attributes, and that the
    token may see.
    """
    listed = []
    asked_pairs = {*pairs_of(asked)}
    for row in rows_below(request.histories, start):
        history = request.histories[row.id]
        with suppress(ConversationErased):  # since its row was read
            # Another conversation may have the id since then, so the row is read again.
            present = history._store.conversation(history.id, as_stored=True)
            if request.is_visible(history):
                attributes = _attributes_of(history)
                if asked_pairs <= {*pairs_of(attributes)}:
                    listed.append(ConversationState.of_row(present, attributes))
    return ConversationPage(conversations=listed, next=None)


def _attributes_of(history: History) -> JsonMap:
    """Return the attributes of a conversation. If their event is damaged, return the attributes by
    which other lists find the conversation. Raises ``CorruptEvent`` if these are damaged too.
    """
    try:
        return history.attributes()
    except CorruptEvent:
        record = history._store.query(
            history.id, lambda reading: next(reading.own_records(ATTRIBUTES), None)
        )
        attributes = None if record is None else decode_attributes(record.body)
        if attributes is None:
            raise
        return attributes


def attributes_in(where: str) -> Mapping[str, str]:
    """Return the attributes of a parameter ``where``. Raises a ``Refusal``."""
    if not re.search(_PAIRS, where):
        raise Refusal(400, f"where is {where!r}; write name=value, with commas between")
    attributes: dict[str, str] = {}
    for pair in filter(None, where.split(",")):
        name, _, value = pair.partition("=")
        if attributes.setdefault(unquote(name), unquote(value)) != unquote(value):
            raise Refusal(400, f"where gives {unquote(name)!r} two values; give it one value")
    return attributes
