"""HTTP/1.1 by httptools: a request of the service costs a third of what h11 takes."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES_MAX: Final = 64 * 1024
"""The maximum number of bytes of the request line and the headers, without the read in which they
begin.
"""
_HEAD_MAX_S: Final = 30.0
"""A connection is closed if it has sent no complete headers after this time."""
_LINGER_MAX_S: Final = 30.0
"""How long the rest of a body is read and dropped after the answer."""


class GuardedProtocol(HttpToolsProtocol):
    """Refuses two kinds of requests that httptools accepts, leaves out trailers, closes connections
    whose headers do not come, and lets clients read an answer that comes before their body is sent.

    Lines and headers that never end would fill the memory, even of a client without a token. After
    a header ``Upgrade``, httptools reads the body as the next request, so a client behind a proxy
    could put a request of its own before the request of another client. Fields behind a body in
    chunks would be headers too, which a proxy did not look at.

    If a connection is closed while the client still sends, the client's system drops the answer. So
    after a refusal of a large body (413, for example), the server ends only its own direction, and
    reads until the client closes the connection.
    """

    _head_bytes = 0
    _has_head = False
    _is_lingering = False
    _head_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_lingering or self.transport.is_closing() or self.pipeline:
            return
        self._await_head()

    def close_after_answer(self) -> None:
        """Close the connection if the client has sent its whole request. Otherwise end only the
        server's direction, and wait until the client closes the connection, for at most
        ``_LINGER_MAX_S``.
        """
        if self.pipeline or not self.cycle.more_body or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._is_lingering = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._head_limit = self.loop.call_later(_LINGER_MAX_S, self.transport.close)

    def _await_head(self) -> None:
        """Close the connection if the headers of the next request do not come in time."""
        self._end_wait()
        self._head_limit = self.loop.call_later(_HEAD_MAX_S, self.transport.close)

    def _end_wait(self) -> None:
        if self._head_limit is not None:
            self._head_limit.cancel()
            self._head_limit = None

    def shutdown(self) -> None:
        if self._is_lingering:
            self.transport.close()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            self._unset_keepalive_if_required()
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        self._has_head = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._has_head = True
        self._end_wait()
        super().on_headers_complete()
        self.cycle.transport = _CycleTransport(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"upgrade":
            raise ValueError("this server speaks only HTTP/1.1")  # becomes an answer 400
        if not self._has_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)


class _CycleTransport(asyncio.Transport):
    """What a request and its answer use of the transport of their connection."""

    def __init__(self, protocol: GuardedProtocol) -> None:
        self._protocol = protocol
        transport = protocol.transport
        self.write = transport.write  # type: ignore[method-assign]
        self.is_closing = transport.is_closing  # type: ignore[method-assign]

    def close(self) -> None:
        self._protocol.close_after_answer()
