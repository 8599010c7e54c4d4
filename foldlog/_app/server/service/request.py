"""A request to an operation."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from foldlog._app.server.problems import Refusal, refusal_of
from foldlog._app.server.server_sent_events import StoreChanges
from foldlog._app.server.service.exports import HeldExports
from foldlog._app.server.service.tokens import Principal
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog._history.lease import LeaseBlock
from foldlog._reports.figures.prices import Prices
from foldlog.adapters._shared import recent
from foldlog.eventstore import (
    ATTRIBUTES,
    DELETED,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
)

LEASE: Final = "foldlog-lease"
VIEW_BYTES_MAX: Final = 32 * 1024 * 1024
"""A read of a View whose events have more bytes is refused. Its answer has up to three times as
many bytes, because the messages have the texts too.
"""
_log: Final = logging.getLogger("foldlog.serve")


@dataclass
class AdmittedRequest:
    """A request that was let in. ``headers`` have names in small letters."""

    histories: Histories
    principal: Principal
    conversation: str
    headers: Mapping[str, str]
    changes: StoreChanges
    is_disconnected: Callable[[], Awaitable[bool]]
    prices: Prices
    exports: HeldExports

    @cached_property
    def history(self) -> History:
        """Return the history that the path names. Raises ``ConversationNotFound`` if the token may
        not see it, with the words for a conversation that does not exist. Adopts the lease of the
        header ``Foldlog-Lease``, and raises ``LeaseTaken`` if it has ended.
        """
        history = self.history_without_lease
        lease = self.headers.get(LEASE)
        if lease is not None:
            LeaseBlock.adopt(history, lease)
        return history

    @cached_property
    def history_without_lease(self) -> History:
        """Return the same history for outcomes of tools, which are recorded without a lease too."""
        history = self.histories[self.conversation]
        self.check_visible(history)
        return history

    @property
    def lease_block(self) -> LeaseBlock:
        """Return the lease of the header ``Foldlog-Lease``. Raises a ``Refusal`` without one."""
        block = self.history._lease_block
        if block is None:
            raise Refusal(400, "send the token of the lease in the header Foldlog-Lease")
        return block

    def require_lease(self) -> None:
        """Refuse a request without the header ``Foldlog-Lease``."""
        _ = self.lease_block

    def check_visible(self, history: History) -> None:
        """Raise an error if the token may not see the conversation, or not any more. The damage of
        a conversation whose attributes cannot be read is not told, because it may be another's.
        """
        self.principal.check_valid()
        if self.principal.conversation_key is not None:
            self.principal.check_conversation_key(history._conversation_key())
        if not self.principal.where:
            return
        try:
            is_visible = self._sees(history)
        except CorruptEvent as damage:
            _log.error("a conversation is damaged: %s", damage)
            is_visible = False
        if not is_visible:
            raise ConversationNotFound(history.id)

    def check_again(self, *histories: History) -> None:
        """Check conversations that passed ``check_visible`` again, after they were read by their
        ids from the store. Raises ``ConversationErased`` to a token that does not see all
        conversations if one of them was erased meanwhile, because another conversation may have its
        id now. Raises the errors of ``check_visible``.
        """
        for history in histories:
            history.version()
            self.check_visible(history)

    def is_visible(self, history: History) -> bool:
        """Return whether the token may see the conversation. A token without a filter may see every
        id, also an id without a conversation. Any other token does not see a conversation whose
        attributes cannot be read.
        """
        try:
            return not self.principal.where or self._sees(history)
        except (CorruptEvent, KeyUnavailable):
            return False

    def _sees(self, history: History) -> bool:
        """Return whether the filter of the token lets it see the conversation."""
        try:
            return self.principal.sees(history.attributes())
        except (ConversationErased, ConversationNotFound):
            return False

    @contextmanager
    def hiding_others(self) -> Iterator[None]:
        """Raise a ``Refusal`` without names in place of an error about a conversation that the
        token may not see.
        """
        try:
            yield
        except (CorruptEvent, KeyUnavailable) as error:
            if not self.principal.where or not self._is_about_another(error):
                raise
            problem = (
                "a conversation that this token may not see is damaged"
                if isinstance(error, CorruptEvent)
                else "conversations are encrypted under a key that the server does not have"
            )
            status = refusal_of(error).status
            raise Refusal(status, f"{problem}; tell the administrator of the store") from None

    def _is_about_another(self, error: CorruptEvent | KeyUnavailable) -> bool:
        """Return whether an error may be about a conversation that the token may not see."""
        if isinstance(error, KeyUnavailable):
            return self.conversation == ""
        named = error.conversation
        return named != self.conversation and not self.is_visible(self.histories[named])

    def visible_ids(self, attributes: JsonMap) -> list[str]:
        """Return the ids of the conversations with these attributes that the token may see, the
        most recently active first. A text in ``attributes`` also finds a list that contains the
        text, but the token's filter does not: it must be the whole value. The filter replaces
        ``attributes`` of the same names, so the caller refuses other values of them first.
        """
        rows = recent(self.histories, {**attributes, **self.principal.where})
        return [row.id for row in rows if self.principal.sees(row.attributes or {})]

    def refuse_filter(self, what: str) -> None:
        """Raise a ``Refusal`` if the token does not see all conversations."""
        if not self.principal.sees_all:
            raise Refusal(
                403,
                f"this token sees some conversations only; {what} need a token without a filter",
            )

    def check_attributes(self, attributes: JsonMap) -> None:
        """Raise a ``Refusal`` if the token could not see a conversation with these attributes."""
        if not self.principal.sees(attributes):
            allowed = ", ".join(f"{name}={value}" for name, value in self.principal.where.items())
            raise Refusal(403, f"this token writes only conversations with {allowed}")

    def checked_documents(self, values: JsonMap) -> JsonObject:
        """Return new values of documents for the store: null deletes a document. Raises a
        ``Refusal`` if the token could not see the conversation afterwards.
        """
        if ATTRIBUTES in values:
            attributes = values[ATTRIBUTES] or {}
            if not isinstance(attributes, Mapping):
                raise Refusal(422, "the document 'attributes' must be a map of names to values")
            self.check_attributes(attributes)
        return {name: DELETED if value is None else value for name, value in values.items()}

    def new_id(self, chosen: str | None, idempotency_key: str | None) -> str:
        """Return the id of a new conversation. A repeated request has the same id."""
        if chosen is not None:
            if self.principal.where:
                # A refusal of the id would tell of conversations that the token may not see.
                raise Refusal(403, "this token cannot choose an id; leave out 'id'")
            return chosen
        if idempotency_key is None:
            return secrets.token_hex(16)
        named = f"{self.principal.name}\0{self.conversation}\0{idempotency_key}"
        return sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class Deferred:
    """The answer of an operation that has to wait. ``wait`` runs in the event loop, so it costs no
    thread.
    """

    wait: Callable[[], Awaitable[Any]]
