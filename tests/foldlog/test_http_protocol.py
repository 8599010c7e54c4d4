"""What the server refuses before it knows who asks."""

import asyncio

import pytest
import uvicorn
from uvicorn.server import ServerState

from foldlog._web.http_protocol import GuardedProtocol

INNER = b"POST /v1/conversations/other/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/conversations/c1/events HTTP/1.1\r\nHost: localhost\r\n"


class FakeTransport(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def send(*parts):
    """The paths of the requests that reach the application, and the transport."""
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run():
        config = uvicorn.Config(app, http=GuardedProtocol, ws="none", lifespan="off")
        config.load()
        transport = FakeTransport()
        protocol = GuardedProtocol(config, ServerState(), {})
        protocol.connection_made(transport)
        for part in parts:
            if not transport.closed:
                protocol.data_received(part)
                await asyncio.sleep(0)
        while protocol.tasks:
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        return transport

    transport = asyncio.run(run())
    return paths, transport


def test_body_after_an_upgrade_is_no_request():
    length = b"Content-Length: %d\r\n\r\n" % len(INNER)
    upgrade = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
    paths, transport = send(POST + upgrade + length, INNER)
    assert (paths, transport.sent[:12]) == ([], b"HTTP/1.1 400")
    assert transport.closed
    paths, _ = send(POST + length, INNER)
    assert paths == ["/v1/conversations/c1/events"]


@pytest.mark.parametrize("start", [b"GET /", POST + b"X: ", POST])
def test_headers_that_never_end_are_refused(start):
    piece = b"a" * 30_000 if start != POST else b"X: a\r\n" * 5_000
    _, transport = send(start, piece, piece, piece)
    assert transport.sent.startswith(b"HTTP/1.1 400")
    assert transport.closed


def test_a_long_body_is_no_long_head():
    parts = [b"a" * 50_000] * 10
    paths, transport = send(POST + b"Content-Length: 500000\r\n\r\n", *parts)
    assert paths == ["/v1/conversations/c1/events"]
    assert transport.sent.startswith(b"HTTP/1.1 200")
