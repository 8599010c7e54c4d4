"""The ASGI application below ``/v1``.

The application finds the operation itself, because a conversation may have any id: the parts of the
path are decoded one by one, so ``a%2Fb`` is one part.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from foldlog._history.histories import Histories
from foldlog._web.following import StoreChanges
from foldlog._web.parameters import Count, convert, fields_of, read_body
from foldlog._web.problems import MEDIA_TYPE, Refusal, refusal_of
from foldlog._web.service import openapi
from foldlog._web.service.operations import HEADERS, Operation, all_operations
from foldlog._web.service.request import LEASE, AdmittedRequest, Deferred
from foldlog._web.service.tokens import Principal, Tokens
from foldlog.eventstore import ANY_VERSION, EventStoreError

PREFIX: Final = "/v1"
_GZIP_FROM_BYTES: Final = 1_000
_log: Final = logging.getLogger("foldlog.serve")
_encode: Final = msgspec.json.Encoder().encode


class Service:
    """The operations on the histories of a store, for the holders of tokens. The caller closes the
    histories.
    """

    def __init__(
        self,
        histories: Histories,
        tokens: Tokens,
        *,
        check: Callable[[], object],
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self.changes = StoreChanges(histories.store, is_ending)
        self._histories = histories
        self._tokens = tokens
        self._check = check

    @cached_property
    def _document(self) -> bytes:
        return openapi.document(all_operations())

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with ExitStack() as ending:
            response = await self._respond(Request(scope, receive), ending)
            await response(scope, receive, send)

    async def _respond(self, request: Request, ending: ExitStack) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1").removeprefix(PREFIX)
        try:
            if (request.method, path) == ("GET", "/openapi.json"):
                return Response(self._document, media_type="application/json")
            principal = self._tokens.principal(headers.get("authorization", ""))
            principal.enter()
            ending.callback(principal.leave)
            return await self._admit(request, path, headers, principal)
        except Exception as error:  # noqa: BLE001 - each error becomes an answer
            if not isinstance(error, EventStoreError | ValueError | TypeError):
                _log.error("the service failed: %s", request.url.path, exc_info=error)
            refusal = refusal_of(error, has_lease=LEASE in headers)
            content = _encode(refusal.document)
            return Response(content, refusal.status, refusal.headers, MEDIA_TYPE)

    async def _admit(
        self, request: Request, path: str, headers: dict[str, str], principal: Principal
    ) -> Response:
        operation, in_path = _find(request.method, path)
        principal.require(operation.scope)
        if operation.method == "GET":
            headers.pop(LEASE, None)  # a reader needs no lease
        admitted = AdmittedRequest(
            self._histories,
            principal,
            in_path.pop("conversation", ""),
            headers,
            self.changes,
            request.is_disconnected,
        )
        arguments = {
            **in_path,
            **_read_headers(operation, headers),
            **_read_query(operation, request.scope["query_string"]),
        }
        if operation.body is not None:
            body = await read_body(request, principal.body_bytes_max, operation.body)
            arguments |= fields_of(body) if isinstance(body, msgspec.Struct) else {"body": body}

        def handle() -> Any:
            self._check()
            return operation.handle(admitted, **arguments)

        answer = await asyncio.to_thread(handle)
        if isinstance(answer, Deferred):
            answer = await answer.wait()
        return answer if isinstance(answer, Response) else _respond_with(operation, answer, headers)


def _find(method: str, path: str) -> tuple[Operation, dict[str, Any]]:
    allowed: set[str] = set()
    for operation in all_operations():
        match = operation.pattern.fullmatch(path)
        if match is None:
            continue
        if operation.method == method:
            parts = {name: _unquoted(part) for name, part in match.groupdict().items()}
            return operation, fields_of(convert("the path", parts, operation.in_path))
        allowed.add(operation.method)
    if allowed:
        raise Refusal(405, f"use {' or '.join(sorted(allowed))}")
    raise Refusal(404, f"there is no such path; GET {PREFIX}/openapi.json lists the paths")


def _unquoted(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(400, "the path is not UTF-8") from None


def _read_headers(operation: Operation, headers: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {name: headers.get(HEADERS[name]) for name in operation.headers}
    tag = headers.get("if-match", "*").strip()
    if "expected_version" in values:
        version = tag.removeprefix('"').removesuffix('"')
        values["expected_version"] = (
            ANY_VERSION if tag == "*" else convert('If-Match, such as "12"', version, Count)
        )
    elif tag != "*":
        raise Refusal(400, "this path takes no If-Match")
    return values


def _read_query(operation: Operation, query: bytes) -> dict[str, Any]:
    texts = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    values = {name: given[-1] for name, given in texts.items()}
    if operation.query is not None:
        return fields_of(convert("the parameters", values, operation.query))
    if values:
        raise Refusal(400, f"this path takes no parameter, such as {min(values)!r}")
    return {}


def _respond_with(operation: Operation, answer: Any, headers: Mapping[str, str]) -> Response:
    content = b"" if operation.answer is None else _encode(answer)
    response = Response(content, operation.status, media_type="application/json")
    version = getattr(answer, "version", None)
    has_query = operation.query is not None and operation.query.__struct_fields__
    if version is not None and not has_query:  # with a query, it may be an older version
        response.headers["etag"] = f'"{version}"'
    if len(content) >= _GZIP_FROM_BYTES and "gzip" in headers.get("accept-encoding", ""):
        response.body = zlib.compress(content, 1, wbits=31)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    response.headers["cache-control"] = "no-store"
    return response
