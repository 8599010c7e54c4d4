"""HTTP/1.1 by httptools: a request of the service costs a third of what h11 takes."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES_MAX: Final = 64 * 1024
_HEAD_MAX_S: Final = 30.0
"""A connection is closed if it has sent no complete headers after this time."""


class GuardedProtocol(HttpToolsProtocol):
    """Refuses two kinds of requests that httptools accepts, leaves out trailers, and closes
    connections whose headers do not come.

    Lines and headers that never end would fill the memory, even of a client without a token. After
    a header ``Upgrade``, httptools reads the body as the next request, so a client behind a proxy
    could put a request of its own before the request of another client. Fields behind a body in
    chunks would be headers too, which a proxy did not look at.
    """

    _head_bytes = 0
    _has_head = False
    _head_limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline:
            self._await_head()

    def _await_head(self) -> None:
        self._end_wait()
        self._head_limit = self.loop.call_later(_HEAD_MAX_S, self.transport.close)

    def _end_wait(self) -> None:
        if self._head_limit is not None:
            self._head_limit.cancel()
            self._head_limit = None

    def data_received(self, data: bytes) -> None:
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

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"upgrade":
            raise ValueError("this server speaks only HTTP/1.1")  # becomes an answer 400
        if not self._has_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)
