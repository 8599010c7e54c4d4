"""Errors as problem details (RFC 9457): the words of the store, and its numbers as members."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

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
    UnknownEventType,
    VersionConflict,
)
from foldlog.projections.errors import NoSuchEvent, NoSuchVersion

MEDIA_TYPE: Final = "application/problem+json"
HEALS_AFTER_S: Final = 1

_STATUS: Final[Mapping[type[Exception], int]] = {
    VersionConflict: 409,
    IdempotencyConflict: 409,
    ConversationHasForks: 409,
    NoCondensationAvailable: 409,
    ConversationErased: 410,
    ConversationNotFound: 404,
    LeaseTaken: 423,
    NoSuchVersion: 404,
    NoSuchEvent: 404,
    InvalidEvent: 422,
    CannotRedact: 422,
    InvalidCondenser: 422,
    InvalidArgument: 400,
    UnknownEventType: 501,
    KeyUnavailable: 503,
    StoreUnavailable: 503,
    StoreRefused: 503,
    CorruptEvent: 500,
}
"""The status of each error. A subclass comes before its base."""

_TITLES: Final = {
    400: "the request is wrong",
    401: "a token is needed",
    403: "the token does not allow this",
    404: "not found",
    405: "the path has no such method",
    409: "the conversation has changed",
    410: "erased",
    412: "the lease has ended",
    413: "the request is too large",
    415: "the body must be JSON",
    422: "the event breaks a rule",
    423: "another worker has the lease",
    429: "too many requests",
    500: "the server failed",
    501: "this version of foldlog does not know the event",
    503: "the store cannot answer now",
}


class Refusal(EventStoreError):
    """A refusal of the service itself. ``members`` are added to the document."""

    def __init__(self, status: int, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.members = status, detail, members


def refusal_of(error: Exception, *, has_lease: bool) -> Refusal:
    """Return the problem that tells a client of an error. With ``has_lease``, the request carried a
    lease, so ``LeaseTaken`` means that this lease has ended (412).
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, LeaseTaken) and has_lease:
        return Refusal(412, str(error), **_members(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return Refusal(status, str(error), error=kind.__name__, **_members(error))
    if isinstance(error, EventStoreError) and not isinstance(error, ValueError | TypeError):
        return Refusal(500, str(error), error=type(error).__name__)
    if isinstance(error, ValueError | TypeError):
        return Refusal(400, str(error))
    return Refusal(500, f"the server failed: {type(error).__name__}")


def document(problem: Refusal) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": _TITLES.get(problem.status, "refused"),
        "status": problem.status,
        "detail": problem.detail,
        **problem.members,
    }


def headers(problem: Refusal) -> dict[str, str]:
    if problem.status == 503:
        return {"retry-after": str(HEALS_AFTER_S)}
    if problem.status == 429:
        return {"retry-after": str(max(1, round(problem.members.get("retry_after_s", 1))))}
    if problem.status == 401:
        return {"www-authenticate": "Bearer"}
    return {}


def _members(error: Exception) -> dict[str, Any]:
    """Return the public values of an error that JSON can hold: numbers, ids, times."""
    members: dict[str, Any] = {}
    for name, value in vars(error).items():
        if name.startswith("_"):
            continue
        if isinstance(value, datetime):
            members[name] = value.isoformat()
        elif isinstance(value, str | int | float | bool):
            members[name] = value
    return members
