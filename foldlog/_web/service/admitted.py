"""A request to an operation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from anyio import Event, move_on_after, sleep, to_thread
from starlette.responses import Response, StreamingResponse

from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog._history.lease import LeaseBlock
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Principal, Scope
from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    DELETED,
    ConversationErased,
    ConversationNotFound,
    EventStoreError,
    Store,
)
from foldlog.types import ExpectedVersion

LEASE: Final = "foldlog-lease"
IDEMPOTENCY_KEY: Final = "idempotency-key"
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class AdmittedRequest:
    """A request that was let in. ``parameters`` are the parameters of the path, ``headers`` have
    names in small letters.
    """

    histories: Histories
    principal: Principal
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    changes: StoreChanges
    is_disconnected: Callable[[], Awaitable[bool]]
    is_ending: Callable[[], bool]

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
        history = self.histories[self.parameters["conversation"]]
        self.check_visible(history)
        return history

    def check_visible(self, history: History) -> None:
        if not self.principal.where:
            return
        try:
            attributes = history.attributes()
        except ConversationErased:
            raise ConversationNotFound(history.id) from None
        if not self.principal.sees(attributes):
            raise ConversationNotFound(history.id)

    def check_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Raise a ``Refusal`` if the token could not see a conversation with these attributes."""
        if not self.principal.sees(attributes):
            allowed = ", ".join(f"{name}={value}" for name, value in self.principal.where.items())
            raise Refusal(403, f"this token writes only conversations with {allowed}")

    def checked_documents(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return new values of documents for the store: null deletes a document. Raises a
        ``Refusal`` if the token could not see the conversation afterwards.
        """
        if ATTRIBUTES in values:
            attributes = values[ATTRIBUTES] or {}
            if not isinstance(attributes, Mapping):
                raise Refusal(422, "the document 'attributes' must be a map of names to values")
            self.check_attributes(attributes)
        return {name: DELETED if value is None else value for name, value in values.items()}

    @property
    def expected_version(self) -> ExpectedVersion:
        """The version in ``If-Match``. Without the header, any version."""
        tag = self.headers.get("if-match")
        if tag is None or tag.strip() == "*":
            return ANY_VERSION
        digits = tag.strip().removeprefix('"').removesuffix('"')
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
            raise Refusal(400, f'If-Match is {tag!r}; send the version in quotes, such as "12"')
        return int(digits)

    @property
    def idempotency_key(self) -> str | None:
        return self.headers.get(IDEMPOTENCY_KEY)

    @property
    def lease(self) -> str:
        lease = self.headers.get(LEASE)
        if lease is None:
            raise Refusal(400, "send the token of the lease in the header Foldlog-Lease")
        return lease

    def require(self, scope: Scope) -> None:
        if self.principal.scope < scope:
            raise Refusal(
                403,
                f"this token has the scope {self.principal.scope.name.lower()!r}, and the request"
                f" needs {scope.name.lower()!r}",
            )


class Later:
    """The answer of an operation that has to wait. ``wait`` runs in the event loop, so it costs no
    thread.
    """

    def __init__(self, wait: Callable[[], Awaitable[Any]]) -> None:
        self.wait = wait


class Stream:
    """The answer of an operation that goes on: server-sent events."""

    def __init__(self, events: Callable[[], AsyncIterator[str]]) -> None:
        self._events = events

    def response(self, ended: Callable[[], None]) -> Response:
        async def stream() -> AsyncIterator[str]:
            try:
                async for text in self._events():
                    yield text
            finally:
                ended()

        headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


class StoreChanges:
    """Wakes the followers when the store has changed. One task asks the store for all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = Event()
        self._followers = 0

    async def run(self) -> None:
        before: int | None = None
        while True:
            await sleep(_POLL_S)
            if not self._followers:
                continue
            try:
                now = await to_thread.run_sync(self._store.database.data_version)
            except EventStoreError:
                continue  # the followers read again by themselves, and report the problem
            if now != before:
                before = now
                self._changed.set()
                self._changed = Event()

    async def wait(self, seconds: float) -> None:
        """Return when the store has changed, or after some seconds."""
        self._followers += 1
        try:
            with move_on_after(seconds):
                await self._changed.wait()
        finally:
            self._followers -= 1
