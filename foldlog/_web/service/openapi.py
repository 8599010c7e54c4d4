"""The OpenAPI 3.1 document of the service, made from its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from foldlog._web.problems import MEDIA_TYPE
from foldlog._web.service.operations import HEADERS, Operation

_REF: Final = "#/components/schemas/{name}"
_HEADERS: Final = {
    "if-match": 'The version that the conversation must have, such as "12".',
    "idempotency-key": "A request that is repeated with its key is carried out only once.",
    "foldlog-lease": "The token of the lease under which the request writes.",
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
        types += [each.in_path, each.query, each.body, each.answer]
    unique = [each for each in dict.fromkeys(types) if each is not None]
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        item = paths.setdefault(f"/v1{each.path}", {})
        item[each.method.lower()] = _describe(each, schema_of, components)
    for each in operations:
        for parameters in (each.in_path, each.query):  # they stand in the operation
            components.pop(getattr(parameters, "__name__", ""), None)
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
    operation: Operation, schema_of: Mapping[Any, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    def parameters(place: str, struct: Any) -> list[dict[str, Any]]:
        schema = {} if struct is None else components[struct.__name__]
        required = schema.get("required", ())
        return [
            {"name": name, "in": place, "required": name in required, "schema": each}
            for name, each in schema.get("properties", {}).items()
        ]

    headers = [HEADERS[name] for name in operation.headers]
    if operation.method != "GET" and "{conversation}" in operation.path:
        headers.append("foldlog-lease")
    answer: dict[str, Any] = {"description": operation.summary.partition("\n")[0]}
    if operation.answer is not None:
        answer["content"] = {"application/json": {"schema": schema_of[operation.answer]}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary.partition("\n")[0],
        "description": f"{operation.summary}\n\nScope: {operation.scope.name.lower()}.",
        "parameters": [
            *parameters("path", operation.in_path),
            *parameters("query", operation.query),
            *(
                {
                    "name": name.title(),
                    "in": "header",
                    "description": _HEADERS[name],
                    "schema": {"type": "string"},
                }
                for name in headers
            ),
        ],
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
