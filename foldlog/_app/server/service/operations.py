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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec
from starlette.responses import Response

from foldlog._app.server.parameters import Field, signature_fields
from foldlog._app.server.service.request import Deferred
from foldlog._app.server.service.tokens import Scope

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
F = TypeVar("F", bound=Callable[..., Any])

HEADERS: Final = {
    "expected_version": (
        "if-match",
        Annotated[
            str,
            msgspec.Meta(
                pattern=r'^(\*|"?[0-9]{1,15}"?)$',
                description='The version that the conversation must have, such as "12".',
            ),
        ],
    ),
    "idempotency_key": (
        "idempotency-key",
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                description="A request that is repeated with its key is carried out only once.",
            ),
        ],
    ),
}
"""Maps parameters of a handler to the headers that contain them, with their types."""
JSON: Final = "application/json"
_MODULES: Final = (
    "conversations",
    "events",
    "views",
    "calls",
    "leases",
    "follow",
    "search",
    "reports",
)
_WHOLE_FLOAT: Final = re.compile("Expected `int( . null)?`, got `float`")
_marked: Final[list[Operation]] = []


@dataclass(frozen=True)
class Operation:
    """A method and a path of the service, and how a request to them is read and answered.

    ``path``        below ``/v1``
    ``parameters``  the fields of the path (in the order of ``in_path``), of the headers
                    ``in_headers``, and of the query ``in_query``
    ``body``        the type of the JSON body, and ``decode`` reads it
    ``streams``     whether it can also answer with server-sent events
    ``media_type``  of the answer
    ``is_long``     whether it may read for seconds, so that it waits for other long reads
    """

    name: str
    method: Method
    path: str
    scope: Scope
    status: int
    handle: Callable[..., Any]
    parameters: type[msgspec.Struct]
    in_path: Sequence[str]
    in_headers: Sequence[str]
    in_query: Collection[str]
    body: Any
    answer: Any
    streams: bool
    media_type: str
    is_long: bool

    @cached_property
    def decode(self) -> Callable[[bytes | bytearray], Any]:
        """The function that reads a body. Raises ``msgspec.ValidationError`` or ``DecodeError``."""
        decode = msgspec.json.Decoder(self.body).decode
        decode_whole_floats = msgspec.json.Decoder(self.body, strict=False).decode

        def read(body: bytes | bytearray) -> Any:
            try:
                return decode(body)
            except msgspec.ValidationError as error:
                # In JSON, 1.0 is a whole number, and some languages write it so.
                if not _WHOLE_FLOAT.search(str(error)):
                    raise
                # The lax decoder also takes texts for numbers, so nothing else may be wrong.
                msgspec.convert(_whole_floats_as_integers(msgspec.json.decode(body)), self.body)
                return decode_whole_floats(body)

        return read

    @property
    def summary(self) -> str:
        return getdoc(self.handle) or ""


def _whole_floats_as_integers(value: Any) -> Any:
    """Return a JSON value with an integer for each float that is whole."""
    if isinstance(value, dict):
        return {key: _whole_floats_as_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_floats_as_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class PathNode(msgspec.Struct):
    """The operations at a place in the tree of paths, and the places below it."""

    by_method: dict[str, Operation] = {}
    below: dict[str, PathNode] = {}


def operation(
    method: Method,
    path: str,
    scope: Scope | None = None,
    *,
    status: int | None = None,
    media_type: str = JSON,
    is_long: bool = False,
) -> Callable[[F], F]:
    """Mark a function as the handler of an operation. By default, a GET needs the scope ``READ``,
    all others ``APPEND``; a POST answers 201, all others 200.
    """

    def mark(handle: F) -> F:
        name = handle.__name__.title().replace("_", "")
        fields = {field[0]: field for field in signature_fields(handle)}
        in_path = re.findall(r"{(\w+)}", path)
        in_headers = [header for header in HEADERS if header in fields]
        others = [fields[field] for field in fields if field not in (*in_path, *HEADERS)]
        query = others if method == "GET" else []
        parameters: list[Field] = [fields.get(part, (part, str)) for part in in_path]
        parameters += [(header, HEADERS[header][1], None) for header in in_headers]
        if "body" in fields:
            body = fields["body"][1]
        elif others and method != "GET":
            body = msgspec.defstruct(
                f"{name}Request", others, kw_only=True, forbid_unknown_fields=True
            )
        else:
            body = None
        returned = get_type_hints(handle)["return"]
        answers = {*(get_args(returned) or (returned,))} - {Deferred, Response}
        _marked.append(
            Operation(
                name=handle.__name__,
                method=method,
                path=path,
                scope=scope or (Scope.READ if method == "GET" else Scope.APPEND),
                status=status or (201 if method == "POST" else 200),
                handle=handle,
                parameters=msgspec.defstruct(
                    f"{name}Parameters",
                    parameters + query,
                    kw_only=True,
                    rename={header: HEADERS[header][0] for header in in_headers},
                ),
                in_path=in_path,
                in_headers=[HEADERS[header][0] for header in in_headers],
                in_query={field[0] for field in query},
                body=body,
                answer=_answer_type(answers, media_type),
                streams=Response in get_args(returned),
                media_type=media_type,
                is_long=is_long,
            )
        )
        return handle

    return mark


def _answer_type(answers: set[Any], media_type: str) -> Any:
    """Return the type of the body of an answer, or None for an answer without one."""
    if media_type != JSON:
        return str
    return None if answers == {type(None)} else answers.pop()


@cache
def all_operations() -> Sequence[Operation]:
    """Return the operations of all modules, in the order of the document."""
    for name in _MODULES:
        import_module(f"foldlog._app.server.service.{name}")
    return tuple(_marked)


@cache
def operations_by_path() -> PathNode:
    """Return the operations as a tree of the parts of their paths. The part ``{}`` stands for any
    text.
    """
    root = PathNode()
    for marked in all_operations():
        node = root
        for part in marked.path.split("/")[1:]:
            node = node.below.setdefault("{}" if part.startswith("{") else part, PathNode())
        node.by_method[marked.method] = marked
    return root
