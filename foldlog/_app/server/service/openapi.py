"""The OpenAPI 3.1 document of the service, made from its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from foldlog._app.server.problems import MEDIA_TYPE
from foldlog._app.server.service.operations import Operation
from foldlog._app.server.service.request import LEASE
from foldlog._base.json_types import JsonMap, JsonObject

_REF: Final = "#/components/schemas/{name}"
_LEASE: Final = {
    "name": LEASE.title(),
    "in": "header",
    "description": "The token of the lease under which the request writes.",
    "schema": {"type": "string"},
}


class ProblemDetails(msgspec.Struct):
    """Refusal details (RFC 9457). Other members contain the numbers of the error, such as
    ``expected`` and ``actual``.
    """

    type: str
    title: str
    status: int
    detail: str
    error: str | None = None


def document(operations: Sequence[Operation]) -> bytes:
    types: list[Any] = [ProblemDetails]
    for each in operations:
        types += [each.parameters, each.body, each.answer]
    unique = [each for each in dict.fromkeys(types) if each is not None]
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, JsonObject] = {}
    for each in operations:
        item = paths.setdefault(f"/v1{each.path}", {})
        item[each.method.lower()] = _describe(each, schema_of, components)
    for each in operations:
        components.pop(each.parameters.__name__)  # they stand in the operation
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
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.format(msgspec.json.encode(described), indent=2)


def _describe(
    operation: Operation, schema_of: Mapping[Any, Any], components: JsonMap
) -> JsonObject:
    fields = components[operation.parameters.__name__]
    required = fields.get("required", ())
    places = dict.fromkeys(operation.in_path, "path") | dict.fromkeys(operation.in_query, "query")
    parameters = [
        {
            "name": name if name in places else name.title(),
            "in": places.get(name, "header"),
            "required": name in required,
            **{key: schema.pop(key) for key in ("description",) if key in schema},
            "schema": {key: value for key, value in schema.items() if value is not None},
        }
        for name, schema in fields["properties"].items()
    ]
    if operation.method != "GET" and "conversation" in operation.in_path:
        parameters.append(_LEASE)
    answer: JsonObject = {"description": operation.summary.partition("\n")[0]}
    if operation.answer is not None:
        answer["content"] = {"application/json": {"schema": schema_of[operation.answer]}}
    described: JsonObject = {
        "operationId": operation.name,
        "summary": operation.summary.partition("\n")[0],
        "description": f"{operation.summary}\n\nScope: {operation.scope.value}.",
        "parameters": parameters,
        "responses": {
            str(operation.status): answer,
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": schema_of[ProblemDetails]}},
            },
        },
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schema_of[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    return described
