"""The ASGI application below ``/v1``.

The application finds the operation itself, because a conversation may have any id: the parts of the
path are decoded one by one, so ``a%2Fb`` is one part.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from http import HTTPStatus
from math import isfinite
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope as AsgiScope, Send

from foldlog._app.server.parameters import (
    LARGE_BODY_BYTES,
    convert,
    fields_of,
    read_body,
    read_query,
)
from foldlog._app.server.problems import MEDIA_TYPE, Refusal, refusal_of, stopping
from foldlog._app.server.server_sent_events import PIECE_BYTES, StoreChanges
from foldlog._app.server.service import openapi
from foldlog._app.server.service.encoding import encoded_parts
from foldlog._app.server.service.exports import HeldExports
from foldlog._app.server.service.operations import (
    JSON,
    Operation,
    PathNode,
    all_operations,
    operations_by_path,
)
from foldlog._app.server.service.request import (
    LEASE,
    VIEW_BYTES_MAX,
    AdmittedRequest,
    Deferred,
)
from foldlog._app.server.service.streams import PREFLIGHT, SAFE, StreamService
from foldlog._app.server.service.tokens import OpenRequest, Tokens, TooFast
from foldlog._base.json_types import JsonObject
from foldlog._history.histories import Histories
from foldlog._reports.figures.prices import Prices
from foldlog.eventstore import ANY_VERSION
from foldlog.eventstore.errors import StoreDamaged, TooManyBytes
from foldlog.eventstore.log.reading import views_up_to

PREFIX: Final = "/v1"
_STREAMS: Final = "/stream/"
_TOO_FAST_S: Final = 0.25
"""A request beyond the rate of its token is refused after this time. A client that repeats it at
once, on many connections, would else take all time of the event loop.
"""
_GZIP_FROM_BYTES: Final = 1_000
"""A smaller answer fits in a packet, so that packing it wins nothing."""
_WEIGHT_OF_NOTHING: Final = re.compile(r"q\s*=\s*0(\.0*)?")
"""The parameter of a coding that a client does not accept: see RFC 9110, section 12.5.3."""
_LARGE_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""After an answer with more bytes, a token reads the conversation one request at a time."""
_LARGE_VIEW_BYTES: Final = 4 * 1024 * 1024
"""A View whose events have more bytes is made while no other one of these is made."""
_REPEATABLE: Final = frozenset({"prepare", "condense"})
"""Operations that may run again after they have failed, besides reads."""
_MANY_ATTRIBUTES: Final = 50
"""An append of more holds the write lock so long that a token writes one at a time."""
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
        origins: Collection[str] = (),
        prices: Prices | None = None,
    ) -> None:
        """``origins`` are the sites whose pages may use this service, with a token; ``*`` is any
        site. ``prices`` are for calls of models that recorded no cost.
        """
        self.changes = StoreChanges(histories.store, is_ending)
        operations_by_path()  # else the first request waits until the modules are loaded
        self._histories = histories
        self._tokens = tokens
        self._check = check
        self._streams = StreamService(self.changes)
        self._large_views = asyncio.Semaphore(1)
        self._prices = prices or Prices()
        self._exports = HeldExports()
        self._origins = frozenset(origins)

    @cached_property
    def _document(self) -> bytes:
        return openapi.document(all_operations())

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with ExitStack() as ending:
            answer = await self._answer(Request(scope, receive), ending)
            await answer(scope, receive, send)

    async def _answer(self, request: Request, ending: ExitStack) -> ASGIApp:
        """Return the answer to a request, also if the request failed. ``ending`` leaves the
        request when its answer was sent.
        """
        scope = request.scope
        headers = _headers_of(scope)
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1").removeprefix(PREFIX)
        try:
            if (scope["method"], path) == ("GET", "/openapi.json"):
                return _response(200, [self._document], {})
            is_for_pages = path.startswith(_STREAMS) or self._is_of_page(headers)
            if is_for_pages and scope["method"] == "OPTIONS":
                return self._for_pages(headers, Response(status_code=204, headers=PREFLIGHT))
            principal = self._tokens.principal(headers.get("authorization", ""))
            opened = principal.enter()
            ending.callback(opened.leave)
            if path.startswith(_STREAMS):
                answer = await self._answer_stream(request, path, headers, opened)
                return self._for_pages(headers, answer)
            answer = await self._admit(request, path, headers, opened)
            return self._for_pages(headers, answer) if is_for_pages else answer
        except asyncio.CancelledError:
            if not self.changes.is_ending():
                raise
            # The server waits for a request only a second when it stops.
            return _answer_of_refusal(stopping())
        except Exception as error:  # noqa: BLE001 - each error becomes an answer
            refusal = refusal_of(error, has_lease=LEASE in headers)
            if _may_be_a_fault(error, refusal):
                _log.error("the service failed: %s", path, exc_info=error)
            if isinstance(error, TooFast):
                await asyncio.sleep(_TOO_FAST_S)
            answer = _answer_of_refusal(refusal)
            is_for_pages = path.startswith(_STREAMS) or self._is_of_page(headers)
            return self._for_pages(headers, answer) if is_for_pages else answer

    async def _answer_stream(
        self, request: Request, path: str, headers: dict[str, str], opened: OpenRequest
    ) -> Response:
        """Answer a request below ``/v1/stream/``."""
        principal = opened.principal
        conversation, *names = map(_unquoted, path.removeprefix(_STREAMS).split("/"))
        if len(names) > 1 or not all((conversation, *names)):
            raise Refusal(404, "a stream is at /v1/stream/CONVERSATION/NAME")
        principal.check_conversation(conversation)
        if request.method in ("GET", "HEAD"):
            headers.pop(LEASE, None)  # a reader needs no lease
        admitted = AdmittedRequest(
            self._histories,
            principal,
            conversation,
            headers,
            self.changes,
            request.is_disconnected,
            self._prices,
            self._exports,
        )
        self._check()
        name = names[0] if names else None
        answer = await self._streams.answer(request, admitted, name, opened.take_body)
        size = len(getattr(answer, "body", b""))
        if size:
            opened.check_answer(size)
            opened.take_answer(size)
        return answer

    def _is_of_page(self, headers: Mapping[str, str]) -> bool:
        """Return whether a page of an allowed site sent the request."""
        origin = headers.get("origin", "")
        return bool(origin) and not self._origins.isdisjoint({"*", origin})

    def _for_pages(self, headers: Mapping[str, str], answer: Response) -> Response:
        """Let a page of an allowed site read the answer."""
        for name, value in SAFE.items():
            answer.headers.setdefault(name, value)
        if self._is_of_page(headers):
            answer.headers["access-control-allow-origin"] = headers["origin"]
        answer.headers.add_vary_header("origin")
        return answer

    async def _admit(
        self, request: Request, path: str, headers: dict[str, str], opened: OpenRequest
    ) -> Response:
        """Answer a request to an operation, if the token allows it."""
        self._exports.drop_old()
        principal = opened.principal
        operation, parts = _find(request.scope["method"], path)
        principal.require(operation.scope)
        if operation.method == "GET":
            headers.pop(LEASE, None)  # a reader needs no lease
        arguments = _read_parameters(operation, parts, headers, request.scope["query_string"])
        principal.check_conversation(arguments.get("conversation", ""))
        admitted = AdmittedRequest(
            self._histories,
            principal,
            arguments.pop("conversation", ""),
            headers,
            self.changes,
            request.is_disconnected,
            self._prices,
            self._exports,
        )
        body_bytes = 0
        if operation.body is not None:

            def take(size: int) -> None:
                nonlocal body_bytes
                opened.take_body(size)
                body_bytes += size

            body = await read_body(
                headers,
                request.stream(),
                principal.body_bytes_max,
                operation.decode,
                take,
                principal.large_writes,
            )
            arguments |= fields_of(body) if isinstance(body, msgspec.Struct) else {"body": body}

        def handle(view_bytes_max: int | None) -> Deferred | Response:
            self._check()
            with views_up_to(view_bytes_max), admitted.hiding_others():
                answer = operation.handle(admitted, **arguments)
            if isinstance(answer, Deferred | Response):
                return answer
            return _answer_of(operation, answer, arguments, headers)

        is_read = operation.method == "GET"
        if not is_read:
            opened.check_answer(body_bytes)
        turns = _turns(operation, admitted, arguments, body_bytes)
        answer = await self._run(operation, admitted, handle, turns)
        if isinstance(answer, Deferred):
            answer = _answer_of(operation, await answer.wait(), arguments, headers)
        if isinstance(answer, LargeResponse):
            if is_read or operation.name in _REPEATABLE:
                _check_answer(opened, answer.size, operation, arguments)
            opened.take_answer(answer.size)
            if answer.size > _LARGE_ANSWER_BYTES:
                principal.large[admitted.conversation] = None
        return answer

    async def _run(
        self,
        operation: Operation,
        admitted: AdmittedRequest,
        handle: Callable[[int | None], Deferred | Response],
        turns: asyncio.Semaphore | None,
    ) -> Deferred | Response:
        """Answer a request. ``handle`` takes the maximum number of bytes of a View."""
        is_read = operation.method == "GET"
        is_long = operation.is_long
        if not is_read and operation.name not in _REPEATABLE:
            return await self._run_in_turn(admitted, partial(handle, None), turns, is_long=is_long)
        principal = admitted.principal
        if is_long or admitted.conversation not in principal.large:
            with suppress(TooManyBytes):  # then nothing was written
                first = partial(handle, _LARGE_VIEW_BYTES)
                return await self._run_in_turn(admitted, first, turns, is_long=is_long)
            principal.large[admitted.conversation] = None
        # Only one large View is made at a time, for all tokens together.
        again = partial(handle, VIEW_BYTES_MAX if is_read else None)
        async with principal.long_reads:
            return await self._run_in_turn(admitted, again, self._large_views, is_long=is_long)

    async def _run_in_turn(
        self,
        admitted: AdmittedRequest,
        handle: Callable[[], Deferred | Response],
        turns: asyncio.Semaphore | None,
        *,
        is_long: bool,
    ) -> Deferred | Response:
        """Run ``handle`` in a thread when it is its turn. A client that left meanwhile gets no
        answer.
        """
        threads = self.changes.long_reads if is_long else self.changes.threads
        if turns is None:
            return await threads.run(handle)
        has_waited = turns.locked()
        async with turns:
            if has_waited and await admitted.is_disconnected():
                raise ClientDisconnect
            return await threads.run(handle)


def _check_answer(
    opened: OpenRequest, size: int, operation: Operation, arguments: JsonObject
) -> None:
    """Refuse the answer of a request that may be repeated, if the client leaves too many answers
    unread. A condensation without a key would be made again, so it is not refused with 429.
    """
    try:
        opened.check_answer(size)
    except Refusal as refusal:
        if operation.name != "condense" or arguments["idempotency_key"] is not None:
            raise
        detail = f"the conversation was condensed, but {refusal}, and then the View"
        raise Refusal(422, detail) from None


def _turns(
    operation: Operation, admitted: AdmittedRequest, arguments: JsonObject, body_bytes: int
) -> asyncio.Semaphore | None:
    """Return what a request of a token waits for, or None if it runs at once."""
    principal = admitted.principal
    if operation.is_long or (
        operation.method == "GET" and admitted.conversation in principal.large
    ):
        return principal.long_reads
    if operation.method == "GET":
        return principal.reads
    has_many = len(arguments.get("attributes") or ()) > _MANY_ATTRIBUTES
    return principal.large_writes if has_many or body_bytes > LARGE_BODY_BYTES else None


def _headers_of(scope: AsgiScope) -> dict[str, str]:
    """Return the headers by their names. A header that comes twice is one list, which no header of
    the service may be.
    """
    headers: dict[str, str] = {}
    for key, value in scope["headers"]:
        name = key.decode("latin-1")
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _may_be_a_fault(error: Exception, refusal: Refusal) -> bool:
    """Return whether an error may come from a fault of the server or from a damaged store. Python's
    own errors may have both causes: a wrong argument, or a fault.
    """
    if isinstance(error, ClientDisconnect):
        return False
    is_internal = refusal.status == HTTPStatus.INTERNAL_SERVER_ERROR
    return is_internal or isinstance(error, StoreDamaged) or type(error) in (TypeError, ValueError)


def _answer_of_refusal(refusal: Refusal) -> Response:
    return _response(refusal.status, [_encode(refusal.document)], refusal.headers, MEDIA_TYPE)


def _response(
    status: int,
    parts: Sequence[bytes],
    headers: Mapping[str, str],
    media_type: str = JSON,
) -> Response:
    """Return a response that no cache stores. A large body is sent in pieces."""
    sent = {"cache-control": "no-store", "x-content-type-options": "nosniff", **headers}
    if sum(map(len, parts)) > PIECE_BYTES:
        return LargeResponse(parts, status, sent, media_type)
    return Response(b"".join(parts), status, sent, media_type)


class LargeResponse(Response):
    """Sends the parts of its body in pieces, as fast as the client reads it, so that the request
    stays open and is counted until then.
    """

    def __init__(
        self,
        parts: Sequence[bytes],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = JSON,
    ) -> None:
        self.size = sum(map(len, parts))
        self._parts = parts
        length = {"content-length": str(self.size)}
        super().__init__(None, status, {**(headers or {}), **length}, media_type)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        sent = 0
        for part in self._parts:
            for begin in range(0, len(part), PIECE_BYTES):
                piece = part[begin : begin + PIECE_BYTES]
                sent += len(piece)
                more = sent < self.size
                await send({"type": "http.response.body", "body": piece, "more_body": more})


def _find(method: str, path: str) -> tuple[Operation, Sequence[str]]:
    """Return the operation of a path, and the parts of the path that are its parameters. Raises a
    ``Refusal``.
    """
    node = operations_by_path()
    in_path = []
    for part in path.split("/")[1:]:
        below = node.below.get(part)
        if below is None and part:
            below = node.below.get("{}")
            in_path.append(_unquoted(part))
        node = below or PathNode()
    if not node.by_method:
        raise Refusal(404, f"there is no such path; GET {PREFIX}/openapi.json lists the paths")
    if method not in node.by_method:
        allowed = sorted(node.by_method)
        raise Refusal(405, f"use {' or '.join(allowed)}", allowed=allowed)
    return node.by_method[method], in_path


def _unquoted(part: str) -> str:
    """Return a part of the path decoded. Raises a ``Refusal``."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(400, "the path is not UTF-8") from None


def _read_parameters(
    operation: Operation, parts: Sequence[str], headers: Mapping[str, str], query: bytes
) -> JsonObject:
    """Return the arguments of an operation that the path, the headers and the query have. Raises a
    ``Refusal``.
    """
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    for name, _ in pairs:
        if name not in operation.in_query:
            raise Refusal(400, f"this path takes no parameter {name!r}")
    values = read_query(pairs, operation.in_query)
    values |= zip(operation.in_path, parts, strict=True)
    for name in operation.in_headers:
        if name in headers:
            values[name] = headers[name]
    arguments = fields_of(convert("the request", values, operation.parameters))
    for name, value in arguments.items():
        if isinstance(value, float) and not isfinite(value):
            raise Refusal(400, f"{name} is {value}; send a finite number")
    if "expected_version" in arguments:
        tag = arguments["expected_version"] or "*"
        arguments["expected_version"] = ANY_VERSION if tag == "*" else int(tag.strip('"'))
    elif headers.get("if-match", "*") != "*":
        raise Refusal(400, "this path takes no If-Match")
    return arguments


def _accepts_gzip(header: str) -> bool:
    """Return whether the header ``Accept-Encoding`` allows ``gzip``. A weight of 0 forbids it."""
    for coding in header.lower().split(","):
        name, _, weight = (part.strip() for part in coding.partition(";"))
        if name == "gzip":
            return not _WEIGHT_OF_NOTHING.fullmatch(weight)
    return False


def _answer_of(
    operation: Operation, document: Any, arguments: JsonObject, headers: Mapping[str, str]
) -> Response:
    """Return the response of an operation. If ``document`` has the present version of a
    conversation, the header ``ETag`` names it. A large answer is compressed if the client accepts
    ``gzip``.
    """
    if operation.media_type != JSON:
        parts = [document]
    else:
        parts = [] if operation.answer is None else encoded_parts(document)
    others = {}
    version = getattr(document, "version", None)
    is_of_now = operation.method != "GET" or arguments.get("at") is None
    if version is not None and is_of_now:
        others["etag"] = f'"{version}"'
    size = sum(map(len, parts))
    if size >= _GZIP_FROM_BYTES and _accepts_gzip(headers.get("accept-encoding", "")):
        compressor = zlib.compressobj(1, wbits=31)
        parts = [*map(compressor.compress, parts), compressor.flush()]
        others["content-encoding"] = "gzip"
    return _response(operation.status, parts, others, operation.media_type)
