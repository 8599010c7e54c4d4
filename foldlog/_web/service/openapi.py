"""The OpenAPI 3.1 document of the service, made from its operations."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from foldlog._web.service.operations import Operation
from foldlog._web.service.problems import MEDIA_TYPE

_REF: Final = "#/components/schemas/{name}"
_HEADERS: Final = {
    "if-match": 'The version that the conversation must have, such as "12".',
    "idempotency-key": "A request that is repeated with its key appends only once.",
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
    types: list[type] = [ProblemDetails]
    for operation in operations:
        types += [
            each for each in (operation.body, operation.answer, operation.query) if each is not None
        ]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        item = paths.setdefault(f"/v1{operation.path}", {})
        item[operation.method.lower()] = _describe(operation, schema_of, components)
    return msgspec.json.format(
        msgspec.json.encode(
            {
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
        ),
        indent=2,
    )


def _describe(
    operation: Operation, schema_of: dict[type, Any], components: dict[str, Any]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary.partition("\n")[0],
        "description": f"{operation.summary}\n\nScope: {operation.scope.name.lower()}.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in operation.parameters
            ),
            *_query_parameters(operation, schema_of, components),
            *(_header(name.title(), _HEADERS[name]) for name in operation.headers),
        ],
        "responses": {
            str(operation.status): _response(operation, schema_of),
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": schema_of[ProblemDetails]}},
            },
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[operation.body]}},
        }
    return described


def _response(operation: Operation, schema_of: dict[type, Any]) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "Done"}
    return {
        "description": operation.summary.partition("\n")[0],
        "content": {"application/json": {"schema": schema_of[operation.answer]}},
    }


def _header(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _query_parameters(
    operation: Operation, schema_of: dict[type, Any], components: dict[str, Any]
) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    name = schema_of[operation.query]["$ref"].rpartition("/")[2]
    # The parameters stand in the operation, so the document needs no schema of them.
    schema = components[name]
    required = schema.get("required", ())
    return [
        {"name": field, "in": "query", "required": field in required, "schema": each}
        for field, each in schema["properties"].items()
    ]
