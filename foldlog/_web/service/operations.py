"""An operation of the service: what a request to one method and path means.

The functions of the other modules become operations by the decorator ``operation``, and their
signatures describe the requests. The first parameter is the ``AdmittedRequest``. A parameter that
the path names, such as ``{event}``, is a part of the path. ``expected_version`` is the header
``If-Match``, and ``idempotency_key`` the header ``Idempotency-Key``. ``body`` is the whole body.
All other parameters are fields of the body, or of the query of a GET. The return type is the
type of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec
from starlette.responses import Response

from foldlog._web.parameters import parameters_of
from foldlog._web.service.request import Deferred
from foldlog._web.service.tokens import Scope

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
F = TypeVar("F", bound=Callable[..., Any])

HEADERS: Final = {"expected_version": "if-match", "idempotency_key": "idempotency-key"}
"""Maps parameters of a handler to the headers that contain them."""
_MODULES: Final = (
    "conversations",
    "events",
    "records",
    "views",
    "calls",
    "leases",
    "changes",
    "follow",
)
_marked: Final[list[Operation]] = []


@dataclass(frozen=True)
class Operation:
    """``path`` is below ``/v1``, and ``pattern`` matches it before its parts are decoded.

    ``in_path``  the parameters of the path
    ``query``    the parameters of the query of a GET
    ``body``     the type of the JSON body
    ``headers``  the parameters of the handler that are headers
    """

    name: str
    method: Method
    path: str
    pattern: re.Pattern[str]
    scope: Scope
    status: int
    handle: Callable[..., Any]
    in_path: type[msgspec.Struct]
    query: type[msgspec.Struct] | None
    body: Any
    answer: Any
    headers: Sequence[str]

    @property
    def summary(self) -> str:
        return getdoc(self.handle) or ""


def operation(method: Method, path: str, scope: Scope, *, status: int = 200) -> Callable[[F], F]:
    """Mark a function as the handler of an operation."""

    def mark(handle: F) -> F:
        name = handle.__name__.title().replace("_", "")
        names_in_path = re.findall(r"{(\w+)}", path)
        types = get_type_hints(handle, include_extras=True)
        in_path = [(each, types.get(each, str)) for each in names_in_path]
        left_out = {"body", *names_in_path, *HEADERS}
        struct = parameters_of(handle, f"{name}Request", left_out, forbids_others=True)
        body = types.get("body", struct if struct.__struct_fields__ else None)
        answers = {*(get_args(types["return"]) or (types["return"],))} - {Deferred, Response}
        _marked.append(
            Operation(
                name=handle.__name__,
                method=method,
                path=path,
                pattern=re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)),
                scope=scope,
                status=status,
                handle=handle,
                in_path=msgspec.defstruct(f"{name}Path", in_path),
                query=struct if method == "GET" else None,
                body=None if method == "GET" else body,
                answer=None if answers == {type(None)} else answers.pop(),
                headers=[each for each in HEADERS if each in types],
            )
        )
        return handle

    return mark


@cache
def all_operations() -> Sequence[Operation]:
    for name in _MODULES:
        import_module(f"foldlog._web.service.{name}")
    return tuple(_marked)
