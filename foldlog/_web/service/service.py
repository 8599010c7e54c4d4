"""The ASGI application below ``/v1``.

The application finds the operation itself, because a conversation may have any id: the segments of
the path are decoded one by one, so ``a%2Fb`` is one segment.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qs, unquote_to_bytes

import msgspec
from anyio import create_task_group, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from foldlog._history.histories import Histories
from foldlog._web.service import openapi, problems
from foldlog._web.service.admitted import LEASE, AdmittedRequest, Later, StoreChanges, Stream
from foldlog._web.service.operations import Operation, all_operations
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Principal, Tokens
from foldlog.eventstore import EventStoreError

PREFIX: Final = "/v1"
_GZIP_FROM_BYTES: Final = 1_000
_log: Final = logging.getLogger("foldlog.serve")
_encode: Final = msgspec.json.Encoder().encode


class Service:
    """The operations on the histories of a store, for the holders of tokens. The caller closes the
    histories.

    ``is_ending`` returns true when streams must end, because the server stops.
    """

    def __init__(
        self,
        histories: Histories,
        tokens: Tokens,
        *,
        check: Callable[[], object],
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        self._histories = histories
        self._tokens = tokens
        self._check = check
        self._is_ending = is_ending
        self._changes = StoreChanges(histories.store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Wake followers while the block runs."""
        async with create_task_group() as tasks:
            tasks.start_soon(self._changes.run)
            yield
            tasks.cancel_scope.cancel()

    @cached_property
    def _operations(self) -> tuple[Operation, ...]:
        return all_operations()

    @cached_property
    def _document(self) -> bytes:
        return openapi.document(self._operations)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._respond(request)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            segments = _segments(request)
            if segments == ["openapi.json"] and request.method == "GET":
                return Response(self._document, media_type="application/json")
            principal = self._tokens.principal(_bearer(request))
            if principal is None:
                raise Refusal(401, "send a token: Authorization: Bearer TOKEN")
            return await self._admit(request, segments, principal)
        except Exception as error:  # noqa: BLE001 - each error becomes an answer
            if not isinstance(error, EventStoreError | ValueError | TypeError):
                _log.error("the service failed: %s", request.url.path, exc_info=error)
            return _refuse(error, has_lease=LEASE in request.headers)

    async def _admit(self, request: Request, segments: list[str], principal: Principal) -> Response:
        wait_s = principal.wait_s()
        if wait_s > 0:
            raise Refusal(
                429, f"the token sends too many requests; wait {wait_s:.1f} s", retry_after_s=wait_s
            )
        if not principal.enter():
            raise Refusal(429, "the token has too many open requests; end some of them")
        stays_open = False
        try:
            operation, parameters = self._find(request.method, segments)
            headers = {name.lower(): value for name, value in request.headers.items()}
            if operation.method == "GET":
                headers.pop(LEASE, None)  # a reader needs no lease
            admitted = AdmittedRequest(
                self._histories,
                principal,
                parameters,
                headers,
                self._changes,
                request.is_disconnected,
                self._is_ending,
            )
            admitted.require(operation.scope)
            if "if-match" in headers and "if-match" not in operation.headers:
                raise Refusal(400, "this path takes no If-Match")
            arguments = {
                **await _read_body(operation, request, principal.body_bytes_max),
                **_read_query(operation, request),
            }

            def handle() -> Any:
                self._check()
                return operation.handle(admitted, **arguments)

            answer = await to_thread.run_sync(handle)
            if isinstance(answer, Later):
                answer = await answer.wait()
            if isinstance(answer, Stream):
                stays_open = True
                return answer.response(principal.leave)
            return _answer(operation, answer, headers)
        finally:
            if not stays_open:
                principal.leave()

    def _find(self, method: str, segments: list[str]) -> tuple[Operation, dict[str, str]]:
        allowed: set[str] = set()
        for operation in self._operations:
            parameters = _match(operation.segments, segments)
            if parameters is None:
                continue
            if operation.method == method:
                return operation, parameters
            allowed.add(operation.method)
        if allowed:
            raise Refusal(405, f"use {' or '.join(sorted(allowed))}")
        raise Refusal(404, f"there is no such path; GET {PREFIX}/openapi.json lists the paths")


def _segments(request: Request) -> list[str]:
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.partition(b"?")[0].removeprefix(PREFIX.encode())
    try:
        return [unquote_to_bytes(part).decode() for part in path.strip(b"/").split(b"/")]
    except UnicodeDecodeError:
        raise Refusal(400, "the path is not UTF-8") from None


def _match(template: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    if len(template) != len(segments):
        return None
    parameters = {}
    for part, segment in zip(template, segments, strict=True):
        if part.startswith("{"):
            parameters[part[1:-1]] = segment
        elif part != segment:
            return None
    return parameters


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


async def _read_body(operation: Operation, request: Request, bytes_max: int) -> dict[str, Any]:
    """Return the decoded body as the argument ``body``. A body may be compressed with gzip, and
    counts by its bytes before and after.
    """
    if operation.body is None:
        return {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refusal(415, "send the body as application/json")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Refusal(415, f"the content encoding {encoding!r} is not known; use gzip or none")
    unzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    received = 0
    async for part in request.stream():
        received += len(part)
        room = bytes_max + 1 - len(body)
        try:
            body += part if unzip is None else unzip.decompress(part, room)
        except zlib.error as error:
            raise Refusal(400, f"the body is not compressed by gzip: {error}") from None
        if max(received, len(body)) > bytes_max:
            raise Refusal(413, f"the body has more than {bytes_max:,} bytes", bytes_max=bytes_max)
    if unzip is not None and (not unzip.eof or unzip.unused_data):
        raise Refusal(400, "the compressed body is cut off, or more follows it")
    try:
        return {"body": msgspec.json.decode(bytes(body), type=operation.body)}
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refusal(400, f"the body: {error}") from None


def _read_query(operation: Operation, request: Request) -> dict[str, Any]:
    given = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if operation.query is None:
        if given:
            raise Refusal(400, f"this path takes no parameter, such as {min(given)!r}")
        return {}
    values = {name: texts[-1] for name, texts in given.items()}
    try:
        return {"query": msgspec.convert(values, operation.query, strict=False)}
    except msgspec.ValidationError as error:
        raise Refusal(400, f"the parameters: {error}") from None


def _answer(operation: Operation, answer: Any, headers: Mapping[str, str]) -> Response:
    content = b"" if operation.answer is None else _encode(answer)
    response = Response(content, operation.status, media_type="application/json")
    version = getattr(answer, "version", None)
    if version is not None and operation.query is None:  # with a query, it may be an older version
        response.headers["etag"] = f'"{version}"'
    if len(content) >= _GZIP_FROM_BYTES and "gzip" in headers.get("accept-encoding", ""):
        response.body = zlib.compress(content, 1, wbits=31)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
    response.headers["cache-control"] = "no-store"
    return response


def _refuse(error: Exception, *, has_lease: bool) -> Response:
    problem = problems.refusal_of(error, has_lease=has_lease)
    return Response(
        _encode(problems.document(problem)),
        problem.status,
        problems.headers(problem),
        problems.MEDIA_TYPE,
    )
