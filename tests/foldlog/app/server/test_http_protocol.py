"""Requests that the server refuses before it knows who asks."""

import asyncio
import contextlib
import socket
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from foldlog._app.server import http_protocol
from foldlog._app.server.http_protocol import GuardedProtocol
from tests.waiting import until, until_in_loop

INNER = b"POST /v1/conversations/other/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/conversations/c1/events HTTP/1.1\r\nHost: localhost\r\n"


async def refuse(scope, receive, send):
    """Answer before the body has come."""
    content = b"The body is too large."
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@contextlib.asynccontextmanager
async def listening(app):
    """Yield the address of a server, and the list of the protocols of its connections."""
    config = uvicorn.Config(app, http=GuardedProtocol, ws="none", lifespan="off")
    config.load()
    protocols = []

    def make():
        protocols.append(GuardedProtocol(config, ServerState(), {}))
        return protocols[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    async with server:
        try:
            yield server.sockets[0].getsockname(), protocols
        finally:
            # A client may have closed its end a moment ago while the server's end is still open.
            for protocol in protocols:
                protocol.transport.abort()
            await asyncio.sleep(0)


def has_answered(protocols):
    return bool(protocols) and protocols[0].cycle and protocols[0].cycle.response_complete


def send(*parts):
    """Return the paths of the requests that reach the application, what is sent, and whether the
    connection is closed. An answer has the names of the headers of its request.
    """
    paths = []

    async def app(scope, receive, send):
        paths.append(scope["path"])
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        names = b" ".join(name for name, _ in scope["headers"])
        await send({"type": "http.response.body", "body": names})

    async def run():
        config = uvicorn.Config(app, http=GuardedProtocol, ws="none", lifespan="off")
        config.load()
        transport = Mock(asyncio.Transport)
        transport.get_extra_info.return_value = None
        transport.is_closing.side_effect = lambda: transport.close.called
        protocol = GuardedProtocol(config, ServerState(), {})
        protocol.connection_made(transport)
        for part in parts:
            if not transport.close.called:
                protocol.data_received(part)
                await asyncio.sleep(0)
        while protocol.tasks:
            await asyncio.sleep(0)
        is_closed = transport.close.called
        protocol.connection_lost(None)
        return b"".join(call.args[0] for call in transport.write.mock_calls), is_closed

    return paths, *asyncio.run(run())


def test_body_after_an_upgrade_is_no_request():
    length = b"Content-Length: %d\r\n\r\n" % len(INNER)
    upgrade = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
    paths, sent, is_closed = send(POST + upgrade + length, INNER)
    assert (paths, sent[:12], is_closed) == ([], b"HTTP/1.1 400", True)
    assert send(POST + length, INNER)[0] == ["/v1/conversations/c1/events"]


@pytest.mark.parametrize("start", [b"GET /", POST + b"X: ", POST])
def test_headers_that_never_end_are_refused(start):
    piece = b"a" * 30_000 if start != POST else b"X: a\r\n" * 5_000
    _, sent, is_closed = send(start, piece, piece, piece)
    assert (sent[:12], is_closed) == (b"HTTP/1.1 400", True)


def test_a_long_body_is_no_long_head():
    parts = [b"a" * 50_000] * 10
    paths, sent, _ = send(POST + b"Content-Length: 500000\r\n\r\n", *parts)
    assert (paths, sent[:12]) == (["/v1/conversations/c1/events"], b"HTTP/1.1 200")


def test_a_field_behind_the_body_is_no_header():
    body = b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    paths, sent, _ = send(POST + body + b"Authorization: Bearer x\r\n\r\n")
    assert (paths, b"authorization" in sent) == (["/v1/conversations/c1/events"], False)


@pytest.mark.parametrize("part", [b"", b"GET / HT", POST])
def test_a_connection_without_whole_headers_is_closed(part, monkeypatch):
    monkeypatch.setattr(http_protocol, "_HEAD_MAX_S", 0.0)
    paths, sent, is_closed = send(part, b"")
    assert (paths, sent, is_closed) == ([], b"", True)


def test_a_connection_with_whole_headers_stays(monkeypatch):
    monkeypatch.setattr(http_protocol, "_HEAD_MAX_S", 60.0)
    paths, sent, is_closed = send(POST + b"Content-Length: 1\r\n\r\n", b"{")
    assert (len(paths), sent[:12], is_closed) == (1, b"HTTP/1.1 200", False)


def test_an_answer_before_the_end_of_the_body_is_read():
    head = POST + b"Connection: close\r\nContent-Length: 5000000\r\n\r\n"

    def ask(address, protocols):
        with socket.create_connection(address) as client:
            client.sendall(head + b"a" * 100_000)
            until(lambda: has_answered(protocols))
            client.sendall(b"a" * 4_900_000)
            answer = b""
            while part := client.recv(1_000):
                answer += part
        return answer

    async def run():
        async with listening(refuse) as (address, protocols):
            return await asyncio.to_thread(ask, address, protocols)

    assert asyncio.run(run()).endswith(b"The body is too large.")


def test_a_client_that_never_ends_its_body_is_left(monkeypatch):
    monkeypatch.setattr(http_protocol, "_LINGER_MAX_S", 0.0)

    async def run():
        async with listening(refuse) as (address, protocols):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(POST + b"Connection: close\r\nContent-Length: 5000000\r\n\r\nabc")
            answer = await reader.read()
            await until_in_loop(protocols[0].transport.is_closing)
            writer.close()
            return answer

    assert asyncio.run(run()).endswith(b"The body is too large.")
