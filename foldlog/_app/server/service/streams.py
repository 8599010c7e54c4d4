"""Streams of conversations in the protocol Durable Streams, at ``/v1/stream/CONVERSATION/NAME``.
The events of a conversation are a stream too, which is only read: ``/v1/stream/CONVERSATION``.

https://github.com/durable-streams/durable-streams has the protocol. Streams cannot be forked here,
because a fork would keep a text after its erasure, and there are no subscriptions.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from foldlog._app.server.parameters import read_bytes, read_query
from foldlog._app.server.problems import Refusal
from foldlog._app.server.server_sent_events import StoreChanges, StreamEnd
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._app.server.service.stream_sources import (
    BEGINNING,
    NOW,
    EventsSource,
    Opened,
    Page,
    Place,
    Source,
    StreamSource,
    is_json,
    media,
)
from foldlog._app.server.service.stream_states import (
    SECOND,
    StreamState,
    may_write,
    not_its_writer,
    read_state,
)
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonObject
from foldlog.eventstore import EventStoreError
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.types import Stream
from foldlog.formats.deltas import decode_deltas

_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""A larger body is refused. A writer appends it in several requests."""
_CHUNK_BYTES: Final = 256 * 1024
"""A larger body of bytes is stored as several chunks, so that a page has a limit. A chunk of a text
is up to three bytes shorter, so that it ends with a whole character.
"""
_PRODUCERS_MAX: Final = 100
"""The places of all producers are in the state of a stream, which each append writes."""
_POLL_S: Final = 20.0
"""A long poll that nothing ends is answered after this time, before a proxy gives it up."""
_SSE_S: Final = 60.0
"""A stream of server-sent events ends after this time, as the protocol asks."""
_LOOK_S: Final = 1.0
"""A waiting request looks after this time whether its client is there and its stream exists."""
_CURSOR_S: Final = 20
"""The length of an interval of cursors, as in the protocol."""
_CURSOR_EPOCH: Final = 1_728_432_000
"""The time from which the protocol counts the intervals: 2024-10-09, in seconds since 1970."""
_PAGES_MAX: Final = 32
"""The number of pages that stay in memory for other readers at the same place."""
_is_number: Final = re.compile(r"0|[1-9][0-9]{0,15}").fullmatch
_NUMBER_MAX: Final = 2**53 - 1
"""The largest whole number that a client in JavaScript reads exactly."""
_TEXT: Final = "text/"
"""The beginning of the types whose bytes are sent as text."""
_split_lines: Final = re.compile(b"\r\n|\r|\n").split
_encode: Final = msgspec.json.Encoder().encode
_READ_PARAMETERS: Final = frozenset({"offset", "live", "cursor"})
METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_REQUEST_HEADERS: Final = (
    "authorization, content-encoding, content-type, foldlog-lease, idempotency-key, if-match,"
    " if-none-match, last-event-id, producer-epoch, producer-id, producer-seq, stream-closed,"
    " stream-expires-at, stream-seq, stream-ttl"
)
_ANSWER_HEADERS: Final = (
    "etag, location, producer-epoch, producer-expected-seq, producer-received-seq, producer-seq,"
    " retry-after, stream-closed, stream-cursor, stream-expires-at, stream-next-offset,"
    " stream-sse-data-encoding, stream-ttl, stream-up-to-date"
)
PREFLIGHT: Final = {
    "access-control-allow-methods": f"{METHODS}, PATCH",
    "access-control-allow-headers": _REQUEST_HEADERS,
    "access-control-max-age": "600",
}
SAFE: Final = {
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "cross-origin",
    "access-control-expose-headers": _ANSWER_HEADERS,
}
"""The headers of every answer. A page of another site needs a token and an allowed origin."""


class StreamRefusal(Refusal):
    """A refusal with headers of the protocol."""

    def __init__(self, status: int, detail: str, **headers: object) -> None:
        super().__init__(status, detail)
        self._headers = {name.replace("_", "-"): str(value) for name, value in headers.items()}

    @property
    def headers(self) -> dict[str, str]:
        return {**super().headers, **self._headers}


class Producer(NamedTuple):
    """A writer that counts its requests, so that a repeated one appends nothing."""

    id: str
    epoch: int
    seq: int

    @property
    def headers(self) -> dict[str, str]:
        return {"producer-epoch": str(self.epoch), "producer-seq": str(self.seq)}


class StreamRequest(NamedTuple):
    """The headers of a request that writes, checked."""

    type: str
    is_closing: bool
    producer: Producer | None
    seq: str | None
    body: bytes

    @classmethod
    def read(cls, headers: Mapping[str, str], body: bytes) -> StreamRequest:
        """Check the headers of a request. Raises a ``StreamRefusal``."""
        return cls(
            headers.get("content-type", ""),
            _is_closing(headers),
            _producer_of(headers),
            headers.get("stream-seq"),
            body,
        )


class AcceptedAppend(NamedTuple):
    """The stream after a request that appends, the newest accepted place of its producer, and
    whether the request is a repeated one, which changed nothing.
    """

    stream: Stream
    producer: Producer | None
    is_repeated: bool


class PagePlace(NamedTuple):
    """Names a page. Streams of two conversations may have the same number, so the key of the
    conversation is needed too.
    """

    key: int
    place: Place
    end: StreamEnd


class StreamService:
    """Answers the requests below ``/v1/stream/``."""

    def __init__(self, changes: StoreChanges) -> None:
        self._changes = changes
        self._pages: OrderedDict[PagePlace, asyncio.Task[Page]] = OrderedDict()
        """The newest pages of live readers, for the other readers at the same place. A redaction
        changes the ``StreamEnd``, so no page from before it is used again.
        """
        self._formatted: OrderedDict[tuple[PagePlace, str], bytes] = OrderedDict()
        """The same pages as server-sent events, with their cursors."""

    async def answer(
        self,
        request: Request,
        admitted: AdmittedRequest,
        name: str | None,
        take_body: Callable[[int], object],
    ) -> Response:
        """Answer a request to the stream with this name, or to the events of the conversation.
        ``take_body`` counts the bytes of the body, and may refuse them.
        """
        method = request.method
        is_read = method in ("GET", "HEAD")
        admitted.principal.require(Scope.READ if is_read else Scope.APPEND)
        run = self._changes.threads.run
        if name is None and not is_read:
            raise StreamRefusal(
                405, "the events of a conversation are only read as a stream", allow="GET, HEAD"
            )
        if name is None:
            events = await run(partial(EventsSource, admitted))
            return await self._answer_reader(request, admitted, events)
        source = await run(partial(StreamSource, admitted, name))
        if is_read:
            return await self._answer_reader(request, admitted, source)
        headers = admitted.headers
        if any(header.startswith("stream-fork") for header in headers):
            raise StreamRefusal(
                405,
                "a stream is not forked, because the fork would keep its text after an erasure;"
                " fork the conversation",
                allow=METHODS,
            )
        bytes_max = min(admitted.principal.body_bytes_max, _BODY_BYTES_MAX)
        body = await read_bytes(headers, request.stream(), bytes_max, take_body)
        match method:
            case "PUT":
                host = f"{request.url.scheme}://{request.url.netloc}"
                return await run(partial(_put, source, headers, bytes(body), host))
            case "POST":
                asked = StreamRequest.read(headers, bytes(body))
                return await run(partial(_post, source, asked))
            case "DELETE":
                return await run(partial(_delete, source, headers.get("producer-id")))
        raise StreamRefusal(405, f"use {METHODS}", allow=METHODS)

    async def _answer_reader(
        self, request: Request, admitted: AdmittedRequest, source: Source
    ) -> Response:
        """Answer a request that reads: with a page, a long poll or server-sent events."""
        run = self._changes.threads.run
        if request.method == "HEAD":
            return _describe(await run(partial(source.open, BEGINNING, refreshes=False)))
        query = read_query(parse_qsl(request.url.query, keep_blank_values=True), _READ_PARAMETERS)
        live = query.get("live")
        offset = query.get("offset")
        if live not in (None, "long-poll", "sse"):
            raise StreamRefusal(400, f"live is {live!r}; use long-poll or sse")
        if live is not None and offset is None:
            raise StreamRefusal(400, "send an offset; -1 is the beginning, and now is the end")
        opened = await run(partial(source.open, BEGINNING if offset is None else offset))
        cursor = query.get("cursor", "")
        if live == "sse":
            return _event_stream(self._events(admitted, source, opened, cursor), opened)
        if live == "long-poll":
            return await self._poll(admitted, source, opened, cursor)
        page = Page([], opened.place.unit)
        if offset != NOW:
            page = await run(partial(source.page, opened.place))
        return _answer_page(opened, page, cursor, admitted.headers.get("if-none-match"))

    async def _poll(
        self, admitted: AdmittedRequest, source: Source, opened: Opened, cursor: str
    ) -> Response:
        """Answer when the stream goes on or ends, and at the latest after ``_POLL_S``."""
        run = self._changes.threads.run
        give_up_at = time.monotonic() + _POLL_S
        end = opened.end
        with source.follow(self._changes, opened) as follower:
            while opened.place.unit >= end.end and not end.is_closed:
                left_s = give_up_at - time.monotonic()
                if left_s <= 0 or self._changes.is_ending():
                    break
                await follower.wait(min(left_s, _LOOK_S))
                if await admitted.is_disconnected():
                    raise ClientDisconnect
                now = await run(partial(source.end, follower))
                if now is None:
                    raise StreamRefusal(404, "the stream was deleted")
                end = now
        page = Page([], opened.place.unit)
        if opened.place.unit < end.end:
            page = await run(partial(source.page, opened.place))
        return _answer_poll(opened._replace(end=end), page, cursor)

    async def _events(
        self, admitted: AdmittedRequest, source: Source, opened: Opened, cursor: str
    ) -> AsyncIterator[bytes]:
        """Yield the pages of a stream as server-sent events, up to the end of the stream. After
        ``_SSE_S``, the answer ends as soon as the reader has all that was written.
        """
        run = self._changes.threads.run
        give_up_at = time.monotonic() + _SSE_S
        place = opened.place
        end: StreamEnd | None = opened.end
        has_spoken = False
        with source.follow(self._changes, opened) as follower:
            while end is not None and not (
                self._changes.is_ending() or admitted.principal.has_ended()
            ):
                page: Page | None = Page([], place.unit)
                page_place = PagePlace(opened.key, place, end)
                if place.unit < end.end:
                    page = await self._shared_page(source, page_place)
                if page is None:
                    return  # it was deleted, and the next request of the client says so
                if page.bodies or end.is_closed or not has_spoken:
                    yield self._shared_text(page_place, _next_cursor(cursor), opened, page)
                    has_spoken = True
                place = Place(place.number, page.ends)
                if end.is_closed and page.ends >= end.end:
                    return
                while place.unit >= end.end and not end.is_closed:
                    if time.monotonic() > give_up_at or self._changes.is_ending():
                        return
                    await follower.wait(_LOOK_S)
                    try:
                        now = await run(partial(source.end, follower))
                    except (EventStoreError, Refusal):  # erased, or the token has ended
                        return
                    if now is None:
                        return
                    end = now

    async def _shared_page(self, source: Source, page_place: PagePlace) -> Page | None:
        """Return the page at a place. Readers at one place share one read."""
        task = self._pages.get(page_place)
        if task is None or (task.done() and task.exception() is not None):
            read = self._changes.threads.run(partial(source.page, page_place.place))
            task = self._pages[page_place] = asyncio.ensure_future(read)
            if len(self._pages) > _PAGES_MAX:
                self._pages.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except (EventStoreError, Refusal):
            return None

    def _shared_text(self, page_place: PagePlace, cursor: str, opened: Opened, page: Page) -> bytes:
        """Return the page at a place as server-sent events. A slow reader holds what the other
        readers at its place hold too.
        """
        key = page_place, cursor
        text = self._formatted.get(key)
        if text is None:
            text = self._formatted[key] = _format(opened, page, page_place.end, cursor)
            if len(self._formatted) > _PAGES_MAX:
                self._formatted.popitem(last=False)
        return text


# -- writing ---------------------------------------------------------------------------------------


def _put(source: StreamSource, headers: Mapping[str, str], body: bytes, host: str) -> Response:
    """Begin a stream with the chunks of a body, and end it if the headers say so. A stream that
    exists as it is asked for stays as it is. Raises a ``StreamRefusal`` (409) if it exists
    otherwise, and (400) for a wrong header or body.
    """
    kind = headers.get("content-type") or "application/octet-stream"
    if source.is_reply and not is_json(kind):
        raise StreamRefusal(
            400,
            f"the stream {source.name!r} has deltas of a reply as JSON, and the request has the"
            f" type {kind!r}; send Content-Type: {streams.JSON}, or use another name",
        )
    is_closed = _is_closing(headers)
    state = _new_state(headers, source.database.now())
    chunks = _chunks(kind, body, is_first=True)
    if source.is_reply:
        _check_deltas(chunks)

    def create(writing: WriteTransaction) -> tuple[Stream, bool]:
        existing = source.find_or_none(writing)
        if existing is not None and not _is_ended_reply(existing):
            has_body = bool(chunks) and source.is_reply
            loses_body = has_body and not _is_of_same_writer(existing, state)
            if loses_body or not _is_as_asked(existing, kind, state, is_closed=is_closed):
                raise StreamRefusal(
                    409,
                    f"stream {source.name!r} exists, with another type, time to live, end or"
                    " producer; end it, delete it, or use another name",
                )
            return existing, False
        stream = streams.begin(writing, source.name, kind, _encode(state))
        stream = _put_chunks(writing, stream, chunks)
        if is_closed:
            stream = streams.close(writing, stream.number)
        return stream, True

    stream, is_new = source.write(create)
    answer = {"content-type": stream.type, **_ends_at(stream)}
    if is_new:
        answer["location"] = host + source.path
    return _answer(201 if is_new else 200, answer)


def _is_as_asked(existing: Stream, kind: str, asked: StreamState, *, is_closed: bool) -> bool:
    """Return whether a request would make the stream that exists."""
    state = read_state(existing.state)
    return (
        media(existing.type) == media(kind)
        and (existing.closed_at is not None) == is_closed
        and (state.ttl, state.expires) == (asked.ttl, asked.expires)
        and asked.began_by in (None, state.began_by)
    )


def _is_of_same_writer(existing: Stream, asked: StreamState) -> bool:
    """Return whether the writer of a request began the stream that exists, so that the stream has
    the body of the request already.
    """
    return read_state(existing.state).is_of_writer(asked.began_by)


def _is_ended_reply(stream: Stream) -> bool:
    """Return whether the next reply may have the name of this stream."""
    is_reply = stream.event is not None or stream.name == streams.REPLY
    return is_reply and stream.closed_at is not None


def _post(source: StreamSource, asked: StreamRequest) -> Response:
    """Append a body, end the stream, or both, and answer with the new end. Raises a
    ``StreamRefusal`` (400) for a wrong body, ``StreamNotFound``, and the errors of ``_append``.
    """
    if asked.body and not asked.type:
        raise StreamRefusal(400, "send the Content-Type of the stream")
    if not asked.body and not asked.is_closing:
        source.open(BEGINNING, refreshes=False)  # raises ``StreamNotFound`` first
        raise StreamRefusal(400, "the body is empty; send bytes, or Stream-Closed: true")
    if source.is_reply and is_json(asked.type):
        _check_deltas(_chunks(asked.type, asked.body) if asked.body else [])
    work = partial(_append, source=source, asked=asked)
    accepted = source.write(work, durable=asked.is_closing)
    answer = _ends_at(accepted.stream)
    if accepted.producer is not None:
        answer |= accepted.producer.headers
    # As the protocol has it, only a new body of a producer is answered with 200.
    has_appended = accepted.producer is not None and asked.body and not accepted.is_repeated
    return _answer(200 if has_appended else 204, answer)


def _append(
    writing: WriteTransaction, source: StreamSource, asked: StreamRequest
) -> AcceptedAppend:
    """Append the body of a request, end the stream, or both. A request that was accepted before
    changes nothing. Raises a ``StreamRefusal`` (409) if the stream is closed, or has another type,
    writer or sequence than the request, and the errors of ``_check_producer``.
    """
    stream = source.find(writing)
    state = read_state(stream.state)
    if stream.closed_at is not None:
        is_bare_end = asked.is_closing and not asked.body and asked.producer is None
        if is_bare_end or (asked.producer is not None and asked.producer == state.closed_by):
            return AcceptedAppend(stream, asked.producer, is_repeated=True)
        raise StreamRefusal(
            409, f"stream {source.name!r} is closed", stream_closed="true", **_next_offset(stream)
        )
    if asked.body and media(asked.type) != media(stream.type):
        raise StreamRefusal(
            409, f"stream {source.name!r} has the type {stream.type!r}, not {asked.type!r}"
        )
    if source.is_reply:
        if state.is_of_writer(None) and stream.end == 0 and asked.producer is not None:
            # The request that began the reply named no producer, so its first one writes it.
            state = msgspec.structs.replace(state, began_by=asked.producer.id)
        _check_writer(source, state, None if asked.producer is None else asked.producer.id)
    if asked.producer is not None:
        accepted = _check_producer(state, asked.producer)
        if accepted is not None:
            return AcceptedAppend(stream, accepted, is_repeated=True)
    if asked.seq is not None and state.seq is not None and asked.seq <= state.seq:
        raise StreamRefusal(
            409,
            f"Stream-Seq {asked.seq!r} breaks the sequence: it does not sort after the last one,"
            f" {state.seq!r}",
        )
    stream = _put_chunks(writing, stream, _chunks(stream.type, asked.body) if asked.body else [])
    stored = read_state(stream.state)
    state = msgspec.structs.replace(state, wrote_at=stored.wrote_at)
    changed = _state_after(state, asked, writing.database.now())
    if changed != stored:
        stream = stream._replace(state=_encode(changed))
        writing.put_stream(stream)
    if asked.is_closing:
        stream = streams.close(writing, stream.number)
    return AcceptedAppend(stream, asked.producer, is_repeated=False)


def _check_deltas(chunks: Sequence[tuple[int, bytes]]) -> None:
    """Raise a ``StreamRefusal`` (400) if no reader of a reply could read one of the chunks."""
    for _, body in chunks:
        try:
            decode_deltas(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StreamRefusal(
                400, f"a value is no delta of a reply: {error}; nothing was written"
            ) from None


def _check_writer(source: StreamSource, state: StreamState, writer: str | None) -> None:
    """Raise a ``Refusal`` (409) if another producer than ``writer``, or a Python program, writes
    the reply. A worker with the lease may go on with it.
    """
    if not may_write(source.history, state, writer):
        raise not_its_writer(state)


def _state_after(state: StreamState, asked: StreamRequest, now: int) -> StreamState:
    """Return the state of a stream after an accepted request."""
    changes: JsonObject = {}
    if asked.seq is not None:
        changes["seq"] = asked.seq
    if asked.producer is not None:
        name, epoch, seq = asked.producer
        changes["producers"] = {**state.producers, name: (epoch, seq)}
        if asked.is_closing:
            changes["closed_by"] = (name, epoch, seq)
    return msgspec.structs.replace(state, **changes).touched(now)


def _check_producer(state: StreamState, producer: Producer) -> Producer | None:
    """Return the newest accepted place of a producer whose request was accepted before, or None for
    a new request. Raises a ``StreamRefusal`` if an earlier request is missing (409), if the
    producer has a newer epoch (403), if a new epoch does not begin with 0 (400), or if the stream
    has too many producers (400).
    """
    newest = state.producers.get(producer.id)  # its epoch and its newest number
    if newest is None:
        if len(state.producers) >= _PRODUCERS_MAX:
            raise StreamRefusal(400, f"the stream has {_PRODUCERS_MAX} producers already")
        expected = 0
    elif producer.epoch < newest[0]:
        raise StreamRefusal(
            403,
            f"producer {producer.id!r} has the epoch {newest[0]} now, and this request"
            f" {producer.epoch}; begin a newer epoch",
            producer_epoch=newest[0],
        )
    elif producer.epoch > newest[0]:
        if producer.seq:
            raise StreamRefusal(400, "a new epoch begins with Producer-Seq 0")
        expected = 0
    else:
        expected = newest[1] + 1
    if producer.seq < expected:
        return producer._replace(seq=expected - 1)
    if producer.seq > expected:
        raise StreamRefusal(
            409,
            f"Producer-Seq is {producer.seq}, and {expected} was expected; send the requests in"
            " between first",
            producer_expected_seq=expected,
            producer_received_seq=producer.seq,
        )
    return None


def _put_chunks(
    writing: WriteTransaction, stream: Stream, chunks: Sequence[tuple[int, bytes]]
) -> Stream:
    """Append chunks with their numbers of units, and return the stream with its new end."""
    for units, body in chunks:
        stream = streams.append(writing, stream.number, stream.end, units, body)
    return stream


def _delete(source: StreamSource, writer: str | None) -> Response:
    """Delete a stream with its text. Raises ``StreamNotFound``, and the error of ``_check_writer``
    if it is an open reply.
    """

    def delete(writing: WriteTransaction) -> None:
        stream = source.find(writing)
        if source.is_reply and stream.closed_at is None:
            _check_writer(source, read_state(stream.state), writer)
        writing.drop_stream(stream.number)

    source.write(delete)
    return _answer(204, {})


# -- the request -----------------------------------------------------------------------------------


def _chunks(kind: str, body: bytes, *, is_first: bool = False) -> list[tuple[int, bytes]]:
    """Return a body as chunks with their numbers of units: bytes, or the values of JSON. Raises a
    ``StreamRefusal`` (400) if a body of JSON cannot be read. Only the first body may be empty.
    """
    if not is_json(kind) or (is_first and not body):
        return [(len(part), part) for part in _parts_of(kind, body)]
    try:
        raws = [body.strip()]
        if isinstance(msgspec.json.decode(body), list):
            raws = [bytes(raw) for raw in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StreamRefusal(400, f"the body is not JSON: {error}") from None
    if not raws and not is_first:
        raise StreamRefusal(400, "an empty array appends nothing; send values")
    return [(len(raws), b"[%b]" % b",".join(raws))] if raws else []


def _parts_of(kind: str, body: bytes) -> Iterator[bytes]:
    """Yield a body in parts of at most ``_CHUNK_BYTES``. A page of server-sent events ends with a
    chunk, and a reader decodes each by itself.
    """
    is_text = media(kind).startswith(_TEXT)
    begin = 0
    while begin < len(body):
        end = begin + _CHUNK_BYTES
        if is_text and end < len(body):
            # Where a character begins, or anywhere in bytes that are no UTF-8.
            end = next((at for at in range(end, end - 4, -1) if body[at] & 0xC0 != 0x80), end)
        yield body[begin:end]
        begin = end


def _new_state(headers: Mapping[str, str], now: int) -> StreamState:
    """Return the state of a new stream. Raises a ``StreamRefusal`` (400) for a wrong time of its
    end.
    """
    ttl = headers.get("stream-ttl")
    expires = headers.get("stream-expires-at")
    if ttl is not None and expires is not None:
        raise StreamRefusal(400, "send Stream-TTL or Stream-Expires-At, not both")
    began_by = headers.get("producer-id")
    if ttl is not None:
        return StreamState(began_by=began_by, ttl=_number("Stream-TTL", ttl)).touched(now)
    if expires is None:
        return StreamState(began_by=began_by)
    try:
        time_of_end = datetime.fromisoformat(expires)
    except ValueError:
        raise StreamRefusal(400, f"Stream-Expires-At is {expires!r}, which is no time") from None
    if time_of_end.tzinfo is None:
        raise StreamRefusal(
            400,
            f"Stream-Expires-At is {expires!r}, without a zone; send for example"
            " 2026-03-01T12:00:00Z",
        )
    dies = int(time_of_end.timestamp() * SECOND)
    return StreamState(began_by=began_by, expires=expires, dies=dies)


def _is_closing(headers: Mapping[str, str]) -> bool:
    return headers.get("stream-closed", "").lower() == "true"


def _producer_of(headers: Mapping[str, str]) -> Producer | None:
    """Return the producer that the headers name, or None. Raises a ``StreamRefusal`` for a part
    of one.
    """
    name = headers.get("producer-id")
    epoch = headers.get("producer-epoch")
    seq = headers.get("producer-seq")
    if name is None and epoch is None and seq is None:
        return None
    if not name or epoch is None or seq is None:
        raise StreamRefusal(400, "send Producer-Id, Producer-Epoch and Producer-Seq together")
    return Producer(name, _number("Producer-Epoch", epoch), _number("Producer-Seq", seq))


def _number(name: str, text: str) -> int:
    """Return the number in a header. Raises a ``StreamRefusal``."""
    if not _is_number(text) or int(text) > _NUMBER_MAX:
        raise StreamRefusal(400, f"{name} is {text!r}; send a whole number up to {_NUMBER_MAX}")
    return int(text)


# -- the answer ------------------------------------------------------------------------------------


def _answer(status: int, headers: Mapping[str, str], content: bytes = b"") -> Response:
    return Response(content, status, {"cache-control": "no-store", **SAFE, **headers})


def _next_offset(stream: Stream) -> dict[str, str]:
    return {"stream-next-offset": str(Place(stream.number, stream.end))}


def _ends_at(stream: Stream) -> dict[str, str]:
    """Return the headers about the end of a stream."""
    headers = _next_offset(stream)
    if stream.closed_at is not None:
        headers["stream-closed"] = "true"
    return headers


def _describe(opened: Opened) -> Response:
    """Answer a request HEAD."""
    end = Place(opened.place.number, opened.end.end)
    headers = {"content-type": opened.type, "stream-next-offset": str(end)}
    if opened.end.is_closed:
        headers["stream-closed"] = "true"
    if opened.state.ttl is not None:
        headers["stream-ttl"] = str(opened.state.ttl)
    if opened.state.expires is not None:
        headers["stream-expires-at"] = opened.state.expires
    return _answer(200, headers)


def _page_headers(opened: Opened, page: Page) -> dict[str, str]:
    """Return the headers that every answer with a page has."""
    ends = Place(opened.place.number, page.ends)
    headers = {"content-type": opened.type, "stream-next-offset": str(ends)}
    if page.ends >= opened.end.end:
        headers["stream-up-to-date"] = "true"
        if opened.end.is_closed:
            headers["stream-closed"] = "true"
    return headers


def _tag(opened: Opened, page: Page, suffix: str = "") -> str:
    """Return the tag of a page. A redaction changes it, so no cache shows the old text."""
    redactions = f":r{opened.end.redactions}" if opened.end.redactions else ""
    return f'"{opened.place}:{page.ends}{redactions}{suffix}"'


def _answer_page(opened: Opened, page: Page, cursor: str, known_tag: str | None) -> Response:
    """Answer with a page that is there already, or say that the client has it."""
    headers = _page_headers(opened, page)
    is_at_end = "stream-closed" in headers
    if not is_at_end:
        headers["stream-cursor"] = _next_cursor(cursor)
    tag = _tag(opened, page, ":c" if is_at_end else "")
    headers["etag"] = tag
    if page.bodies:
        # A browser asks again before it shows what it has, so an erased text is not shown.
        headers["cache-control"] = "private, no-cache"
    if known_tag == tag:
        return _answer(304, headers)
    return _answer(200, headers, page.content(is_json=is_json(opened.type)))


def _answer_poll(opened: Opened, page: Page, cursor: str) -> Response:
    """Answer a long poll. Without a page it ended in vain."""
    headers = {**_page_headers(opened, page), "stream-cursor": _next_cursor(cursor)}
    if not page.bodies:
        del headers["content-type"]
        return _answer(204, headers)
    tag = _tag(opened, page)
    return _answer(200, {**headers, "etag": tag}, page.content(is_json=is_json(opened.type)))


def _event_stream(events: AsyncIterator[bytes], opened: Opened) -> Response:
    """Return a response that sends ``events`` as server-sent events. Bytes that are no text are
    encoded as base64.
    """
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        **SAFE,
    }
    if not _is_text(opened):
        headers["stream-sse-data-encoding"] = "base64"
    return StreamingResponse(events, headers=headers)


def _is_text(opened: Opened) -> bool:
    return is_json(opened.type) or media(opened.type).startswith(_TEXT)


def _format(opened: Opened, page: Page, end: StreamEnd, cursor: str) -> bytes:
    """Return a page as server-sent events."""
    place = Place(opened.place.number, page.ends)
    parts = []
    if page.bodies:
        content = page.content(is_json=is_json(opened.type))
        if not _is_text(opened):
            content = b64encode(content)
        lines = b"".join(
            b"data:%b%b\n" % (b" " if line.startswith(b" ") else b"", line)
            for line in _split_lines(content)
        )
        parts.append(b"event: data\n%b\n" % lines)
    control: JsonObject = {"streamNextOffset": str(place)}
    if place.unit >= end.end:
        control["upToDate"] = True
    if end.is_closed and place.unit >= end.end:
        control["streamClosed"] = True
    else:
        control["streamCursor"] = cursor
    parts.append(b"event: control\ndata:%b\n\n" % _encode(control))
    return b"".join(parts)


def _next_cursor(cursor: str) -> str:
    """Return the number of the present interval, or a later one than the reader has: so no cache
    answers a reader with what it has already.
    """
    now = int((time.time() - _CURSOR_EPOCH) // _CURSOR_S)
    if _is_number(cursor) and int(cursor) >= now:
        return str(int(cursor) + random.randint(1, 180))
    return str(now)
