"""The OpenAPI 3.1 document of the service, made from its operations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, get_args

import msgspec

from foldlog._app.server.problems import MEDIA_TYPE, STATUS_BY_ERROR
from foldlog._app.server.service.events import AppendableEvent
from foldlog._app.server.service.operations import Operation
from foldlog._app.server.service.request import LEASE
from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._history.lease import LeaseTaken

_MADE_BY_THE_STORE: Final = ("id", "redacted")
"""Fields of events that a request does not send."""
_NAMED_MEMBERS: Final = {"properties", "additionalProperties"}
_REF: Final = "#/components/schemas/{name}"
_LEASE: Final = {
    "name": LEASE.title(),
    "in": "header",
    "description": "The token of the lease under which the request writes.",
    "schema": {"type": "string"},
}
_UNDER_LEASE: Final = {"renew_lease", "release_lease", "begin_effect"}
_LAST_EVENT: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Follow behind this event: the 'id' of the last frame. It replaces 'after'.",
}
_STREAM: Final = (
    "Server-sent events, with 'Accept: text/event-stream'. Each frame has the lines 'id', 'event'"
    " and 'data', and an empty line ends it. The 'id' is the place behind the frame. The 'event' is"
    " 'event' (the data is a RecordedEvent), 'beat' (the data is {}; it comes after 15 s without"
    " an event), or 'problem' (the data is a ProblemDetails, and the stream ends). The first line"
    " is 'retry: 1000'. The stream ends when the server stops: continue with Last-Event-ID."
)
_ETAG: Final = {
    "description": (
        'The version of the conversation, such as "12", for If-Match. An answer about the version'
        " that a request names with 'at' has none."
    ),
    "schema": {"type": "string"},
}
_PROBLEMS: Final[Mapping[int, tuple[str, str | None, str]]] = {
    400: ("The request does not fit this document.", None, ""),
    401: ("There is no token, or an unknown one.", "WWW-Authenticate", "Bearer"),
    403: ("The token does not allow this, or an approval is missing.", None, ""),
    404: ("There is no such conversation or event, or the token may not see it.", None, ""),
    408: ("The body came too slowly.", None, ""),
    409: ("The state is another one, or the key was used for another request.", None, ""),
    410: ("The conversation was erased.", None, ""),
    412: ("The lease of the request has ended.", None, ""),
    413: ("The body is too large.", None, ""),
    415: ("The body is not application/json, or has an unknown encoding.", None, ""),
    422: ("The request fits this document, and breaks a rule that 'detail' names.", None, ""),
    423: ("Another worker has the lease.", None, ""),
    429: ("The token sends too much. Nothing was done.", "Retry-After", "Seconds to wait."),
    500: ("The server failed, or an event is damaged.", None, ""),
    501: ("A newer foldlog wrote an event that this one cannot fold; update it.", None, ""),
    503: ("The store cannot answer now.", "Retry-After", "Seconds to wait."),
}
"""What each status means, with a header of its answer."""
_MEMBERS: Final[Mapping[int, Mapping[str, str]]] = {
    403: {"decision": "string"},
    409: {"expected": "integer", "actual": "integer", "key": "string", "first_id": "integer"},
    410: {"erased_at": "string", "reason": "string"},
    413: {"bytes_max": "integer"},
    423: {"worker": "string", "until": "string"},
    429: {"retry_after_s": "number"},
}
"""The members of problems beside those of ``ProblemDetails``."""


class ProblemDetails(msgspec.Struct):
    """Problem details (RFC 9457). ``error`` is the name of the error in the library, if it has
    one. Other members contain the numbers of the error.
    """

    type: str
    title: str
    status: int
    detail: str
    error: str | None = None


def document(operations: Sequence[Operation]) -> bytes:
    """Return the OpenAPI document of the operations as JSON."""
    types: list[Any] = [ProblemDetails]
    for operation in operations:
        types += [operation.parameters, operation.body, operation.answer]
    unique = [kind for kind in dict.fromkeys(types) if kind is not None]
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, JsonObject] = {}
    for operation in operations:
        item = paths.setdefault(f"/v1{operation.path}", {})
        item[operation.method.lower()] = _describe(operation, schema_of, components)
    for operation in operations:
        components.pop(operation.parameters.__name__)  # they stand in the operation
    for kind in get_args(AppendableEvent):
        for name in _MADE_BY_THE_STORE:
            del components[kind.__name__]["properties"][name]
    for status in _PROBLEMS:
        components[f"Problem{status}"] = _problem_schema(status)
    _open_objects(components)
    _open_objects(paths)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "foldlog",
            "version": version("foldlog"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {f"Problem{status}": _problem(status) for status in _PROBLEMS},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.format(msgspec.json.encode(described), indent=2)


def _describe(
    operation: Operation, schema_of: Mapping[Any, Any], components: JsonMap
) -> JsonObject:
    """Return the object of an operation, with references to the components."""
    fields = components[operation.parameters.__name__]
    required = fields.get("required", ())
    places = dict.fromkeys(operation.in_path, "path") | dict.fromkeys(operation.in_query, "query")
    parameters = [
        {
            "name": name if name in places else name.title(),
            "in": places.get(name, "header"),
            "required": name in required,
            **{key: value for key, value in schema.items() if key == "description"},
            "schema": {
                key: value
                for key, value in schema.items()
                if key != "description" and value is not None
            },
        }
        for name, schema in fields["properties"].items()
    ]
    writes = operation.method != "GET"
    in_conversation = "conversation" in operation.in_path
    if writes and in_conversation:
        parameters.append(_LEASE | {"required": operation.name in _UNDER_LEASE})
    answer: JsonObject = {"description": _first_sentence(operation.summary)}
    if operation.answer is not None:
        answer["content"] = {operation.media_type: {"schema": schema_of[operation.answer]}}
        if "version" in getattr(operation.answer, "__struct_fields__", ()):
            is_of_now = "at" not in operation.in_query
            answer["headers"] = {"ETag": {**_ETAG, "required": is_of_now}}
    if operation.streams:
        after = next(
            parameter["schema"] for parameter in parameters if parameter["name"] == "after"
        )
        parameters.append(_LAST_EVENT | {"schema": after})
        answer["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        answer["description"] += f"\n\n{_STREAM}"
    described: JsonObject = {
        "operationId": operation.name,
        "summary": _first_sentence(operation.summary),
        "description": f"{operation.summary}\n\nScope: {operation.scope.value}.",
        "parameters": parameters,
        "responses": {
            str(operation.status): answer,
            **{
                str(status): {"$ref": f"#/components/responses/Problem{status}"}
                for status in _statuses(operation)
            },
        },
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schema_of[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


def _statuses(operation: Operation) -> Sequence[int]:
    """Return the statuses of the problems of an operation."""
    writes = operation.method != "GET"
    statuses = {400, 401, 403, 404, 422, 429, 500, 503}
    if "conversation" in operation.in_path:
        statuses |= {409, 410, 501}
        statuses |= {412, 423} if writes else set()
    if writes or operation.streams:
        statuses |= {409, 410}
    names = {field.name for field in msgspec.structs.fields(operation.parameters)}
    if "within" in names:  # a search in one conversation
        statuses |= {410}
    if operation.body is not None:
        statuses |= {408, 413, 415}
    return sorted(statuses)


def _problem(status: int) -> JsonObject:
    """Return the response that has the problem with this status."""
    description, header, value = _PROBLEMS[status]
    problem = _problem_content(description, f"Problem{status}")
    if header is not None:
        described = {"description": value, "required": True, "schema": {"type": "string"}}
        problem["headers"] = {header: described}
    return problem


def _problem_content(description: str, schema: str) -> JsonObject:
    reference = {"$ref": _REF.format(name=schema)}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": reference}}}


def _problem_schema(status: int) -> JsonObject:
    """Return the schema of the problem details with this status."""
    names = sorted(error.__name__ for error, own in STATUS_BY_ERROR.items() if own == status)
    properties: JsonObject = {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer", "enum": [status]},
        "detail": {"type": "string"},
        "error": {"type": "string"},
    }
    if status == HTTPStatus.PRECONDITION_FAILED:
        names = [LeaseTaken.__name__]  # it is the lease of the request that has ended
    if names:
        properties["error"]["description"] = f"The error, such as {', '.join(names)}."
    properties |= {name: {"type": kind} for name, kind in _MEMBERS.get(status, {}).items()}
    return {
        "title": f"Problem{status}",
        "description": _PROBLEMS[status][0],
        "type": "object",
        "properties": properties,
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": True,
    }


def _open_objects(schema: Any) -> None:
    """Say of objects without named members that they may have any. Tell defaults in descriptions,
    because many generators make a member with a ``default`` a required one.
    """
    if isinstance(schema, list):
        for item in schema:
            _open_objects(item)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and not schema.keys() & _NAMED_MEMBERS:
        schema["additionalProperties"] = True
    default = schema.get("default")
    if not isinstance(default, dict) or not default:
        schema.pop("default", None)
        if default:
            description = f"{schema.get('description', '')} By default {json.dumps(default)}."
            schema["description"] = description.strip()
    for member in schema.values():
        _open_objects(member)
