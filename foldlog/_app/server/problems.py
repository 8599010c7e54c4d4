"""Errors as answers: the status of each error, and problem details (RFC 9457) with the words of the
store, and its numbers as members.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from foldlog._app.server.remedies import neutral
from foldlog._base.json_types import JsonObject
from foldlog._history.effects import NotApproved
from foldlog._history.lease import LeaseTaken
from foldlog.condensers import InvalidCondenser, NoCondensationAvailable
from foldlog.eventstore import (
    CannotRedact,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    CorruptEvent,
    EventStoreError,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    KeyUnavailable,
    StoreRefused,
    StoreUnavailable,
    StreamConflict,
    StreamNotFound,
    UnknownEventType,
    VersionConflict,
)
from foldlog.eventstore.errors import TooManyBytes
from foldlog.projections.errors import NoSuchEvent, NoSuchVersion

MEDIA_TYPE: Final = "application/problem+json"
_HEALS_AFTER_S: Final = 1
"""A client repeats a request after this time if the store could not answer."""

STATUS_BY_ERROR: Final[Mapping[type[Exception], int]] = {
    VersionConflict: 409,
    IdempotencyConflict: 409,
    ConversationHasForks: 409,
    NoCondensationAvailable: 409,
    ConversationErased: 410,
    ConversationNotFound: 404,
    StreamNotFound: 404,
    StreamConflict: 409,
    LeaseTaken: 423,
    NotApproved: 403,
    NoSuchVersion: 404,
    NoSuchEvent: 404,
    InvalidEvent: 422,
    CannotRedact: 422,
    TooManyBytes: 422,
    InvalidCondenser: 422,
    UnknownEventType: 501,
    KeyUnavailable: 503,
    StoreUnavailable: 503,
    StoreRefused: 503,
    CorruptEvent: 500,
    InvalidArgument: 422,
    ValueError: 422,
    TypeError: 422,
    EventStoreError: 500,
}
"""The status of each error. A subclass comes before its base."""


class Refusal(EventStoreError):
    """A refusal of the server itself. ``members`` are added to the document."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.members = members

    @property
    def document(self) -> JsonObject:
        """Return the problem details (RFC 9457)."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that HTTP asks for with this status."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            return {"www-authenticate": "Bearer"}
        if "allowed" in self.members:
            return {"allow": ", ".join(self.members["allowed"])}
        if self.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
            return {"connection": "close"}  # the rest of the body is not read
        if self.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            wait_s = self.members.get("retry_after_s", _HEALS_AFTER_S)
            return {"retry-after": str(max(1, round(wait_s)))}
        return {}


def stopping() -> Refusal:
    """Return the answer to a request that the end of the server cuts off."""
    return Refusal(
        503,
        "the server stops, and may have carried out the request; repeat it with its idempotency"
        " key, at another server or when this one is back",
    )


def refusal_of(error: Exception, *, has_lease: bool = False) -> Refusal:
    """Return the refusal that tells a client of an error. With ``has_lease``, the request carried a
    lease, so ``LeaseTaken`` means that this lease has ended (412).
    """
    if isinstance(error, Refusal):
        return error
    kind = next((kind for kind in STATUS_BY_ERROR if isinstance(error, kind)), None)
    if kind is None:
        return Refusal(500, f"the server failed: {type(error).__name__}")
    status = 412 if kind is LeaseTaken and has_lease else STATUS_BY_ERROR[kind]
    return Refusal(status, _detail_of(error), **{**_members_of(error), "error": kind.__name__})


def _detail_of(error: Exception) -> str:
    """Return the text of an error for clients in all languages. The remedies in the messages of
    some errors are for programs in Python.
    """
    if isinstance(error, NotApproved):
        return f"{error.problem}; a decision of a token with the scope 'approve' allows it"
    if isinstance(error, ConversationHasForks):
        return f"{error.problem}; send with_forks or detach_forks"
    if isinstance(error, ConversationErased):
        return error.problem
    return neutral(str(error))


def _members_of(error: Exception) -> JsonObject:
    """Return the numbers, names and times of an error."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in vars(error).items()
        if name != "problem"
        and not name.startswith("_")
        and isinstance(value, str | int | float | datetime)
    }
