"""An operation of the service: what a request to one method and path means.

The functions of the other modules become operations by the decorator ``operation``. Their
annotations are the types of the request: ``body`` is the type of the JSON body, ``query`` the type
of the query parameters, and the return type the type of the JSON answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import getdoc, signature
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from foldlog._web.service.admitted import Later, Stream
from foldlog._web.service.tokens import Scope

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Headers = tuple[Literal["if-match", "idempotency-key", "foldlog-lease"], ...]
LEASED: Final[Headers] = ("foldlog-lease",)
KEYED: Final[Headers] = ("idempotency-key", *LEASED)
APPENDS: Final[Headers] = ("if-match", *KEYED)
F = TypeVar("F", bound=Callable[..., Any])

_MODULES: Final = (
    "conversations",
    "events",
    "records",
    "views",
    "calls",
    "leases",
    "changes",
    "following",
)
_OPERATION: Final = "__foldlog_operation__"


class OperationRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of bodies and of query parameters. Unknown fields are refused."""


class OperationAnswer(msgspec.Struct, kw_only=True):
    """The base of answers."""


@dataclass(frozen=True)
class Operation:
    """``path`` is below ``/v1``. A segment in braces is a parameter, such as ``{conversation}``.

    ``headers``  the headers that a request may have, of those that guard a write
    """

    name: str
    method: Method
    path: str
    scope: Scope
    summary: str
    handle: Callable[..., Any]
    body: type | None
    query: type | None
    answer: type | None
    status: int
    headers: Headers

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(part[1:-1] for part in self.segments if part.startswith("{"))


def operation(
    method: Method,
    path: str,
    scope: Scope,
    *,
    status: int = 200,
    headers: Headers = (),
) -> Callable[[F], F]:
    """Mark a function as the handler of an operation."""

    def mark(handle: F) -> F:
        setattr(handle, _OPERATION, (method, path, scope, status, headers))
        return handle

    return mark


def all_operations() -> tuple[Operation, ...]:
    return tuple(
        made
        for name in _MODULES
        for made in _operations_of(import_module(f"foldlog._web.service.{name}"))
    )


def _operations_of(module: Any) -> Iterator[Operation]:
    for name, handle in vars(module).items():
        marked = getattr(handle, _OPERATION, None)
        if marked is None or handle.__module__ != module.__name__:
            continue
        method, path, scope, status, headers = marked
        types = get_type_hints(handle)
        parameters = signature(handle).parameters
        (answer,) = {*(get_args(types["return"]) or (types["return"],))} - {Later, Stream}
        yield Operation(
            name=name,
            method=method,
            path=path,
            scope=scope,
            summary=getdoc(handle) or "",
            handle=handle,
            body=types["body"] if "body" in parameters else None,
            query=types["query"] if "query" in parameters else None,
            answer=None if answer is type(None) else answer,
            status=status,
            headers=headers,
        )
