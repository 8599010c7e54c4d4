"""HTTP/1.1 by httptools: a request of the service costs a third of what h11 takes."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES_MAX: Final = 64 * 1024


class GuardedProtocol(HttpToolsProtocol):
    """Refuses two kinds of requests that httptools accepts, and leaves out trailers.

    Lines and headers that never end would fill the memory, even of a client without a token. After
    a header ``Upgrade``, httptools reads the body as the next request, so a client behind a proxy
    could put a request of its own before the request of another client. Fields behind a body in
    chunks would be headers too, which a proxy did not look at.
    """

    _head_bytes = 0
    _has_head = False

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
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"upgrade":
            raise ValueError("this server speaks only HTTP/1.1")  # becomes an answer 400
        if not self._has_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)
