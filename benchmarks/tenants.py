"""Measure whether one token stops the others: ``python -m benchmarks.tenants [WAY]…``.

Ann misbehaves in eleven ways, one after the other, beside Bob, who appends up to 20 times a second.
Each line has the times of Bob's appends, and the memory of the server. ``none`` is Bob alone.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import click

from benchmarks.service import Server

SECONDS = 8.0
_TOKENS = """
[ann]
token = "token-of-ann"
scope = "append"
where = { user = "ann" }
[bob]
token = "token-of-bob"
scope = "append"
where = { user = "bob" }
"""
_LONG = "word " * 400_000
_LONG_EVENTS = 24
_GIANT = "y" * 14_000_000
_GIANT_EVENTS = 10
_SMALL_CONVERSATIONS = 300


class Client:
    def __init__(self, port: int, name: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        self._headers = {"authorization": f"Bearer token-of-{name}"}

    def get(self, path: str) -> bytes:
        return self._send("GET", path, None)[1]

    def post(self, path: str, body: bytes | dict[str, object]) -> tuple[int, bytes]:
        return self._send("POST", path, body if isinstance(body, bytes) else json.dumps(body))

    def create(self, **attributes: object) -> str:
        body = self.post("/v1/conversations", {"attributes": attributes})[1]
        return str(json.loads(body)["id"])

    def say(self, conversation: str, text: str) -> int:
        body = {"messages": [{"role": "user", "content": text}]}
        return self.post(f"/v1/conversations/{conversation}/events", body)[0]

    def _send(self, method: str, path: str, body: bytes | str | None) -> tuple[int, bytes]:
        headers = {**self._headers, "content-type": "application/json"}
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise


class Ann:
    """Ann's conversations: ``long`` has ``_LONG_EVENTS`` events of 2 MB, ``giant`` has
    ``_GIANT_EVENTS`` events of 14 MB, and ``small`` are conversations without events.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        client = self.client()
        self.long = client.create(title="long")
        self.giant = client.create()
        self.small = []
        for number in range(_SMALL_CONVERSATIONS):
            self.small.append(client.create(number=number))
            time.sleep(0.005)  # a token sends 200 requests a second at most
        for _ in range(_LONG_EVENTS):
            client.say(self.long, _LONG)
        for _ in range(_GIANT_EVENTS):
            client.say(self.giant, _GIANT)

    def client(self) -> Client:
        return Client(self.port, "ann")

    def repeat(self, count: int, work: Callable[[Client], object]) -> None:
        """Work in threads, without an end."""

        def run() -> None:
            client = self.client()
            while True:
                with suppress(OSError, http.client.HTTPException):
                    work(client)

        for _ in range(count):
            threading.Thread(target=run, daemon=True).start()

    def open(self, count: int, request: str, body: bytes = b"") -> list[socket.socket]:
        """Send requests whose answers nobody reads."""
        headers = "Host: localhost\r\nAuthorization: Bearer token-of-ann\r\n"
        start, _, others = request.partition("\r\n")
        connections = []
        for _ in range(count):
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", self.port), 5)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(f"{start}\r\n{headers}{others}\r\n".encode() + body)
                connections.append(connection)
        return connections

    def path(self, conversation: str, rest: str) -> str:
        return f"/v1/conversations/{quote(conversation)}/{rest}"


def unread_streams(ann: Ann) -> object:
    accept = "Accept: text/event-stream\r\n"
    return ann.open(60, f"GET {ann.path(ann.giant, 'follow')} HTTP/1.1\r\n{accept}")


def half_bodies(ann: Ann) -> object:
    lengths = "Content-Type: application/json\r\nContent-Length: 30000000\r\n"
    start = f"POST {ann.path(ann.long, 'events')} HTTP/1.1\r\n{lengths}"
    return ann.open(100, start, b"[" + b" " * 1_000_000)


def many_attributes(ann: Ann) -> None:
    attributes = {f"a{number}": "x" for number in range(990)}
    ann.repeat(8, lambda client: client.create(**attributes))


def giant_events(ann: Ann) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": _GIANT}]}).encode()
    ann.repeat(4, lambda client: client.post(ann.path(ann.giant, "events"), body))


def hundred_connections(ann: Ann) -> None:
    ann.repeat(100, lambda client: client.get(f"/v1/conversations/{ann.small[0]}"))


def searches_of_everything(ann: Ann) -> None:
    ann.repeat(20, lambda client: client.get("/v1/search?words=w&limit=100"))


def pages_of_long_events(ann: Ann) -> None:
    def work(client: Client) -> None:
        client.get(ann.path(ann.long, f"events?start={random.randrange(_LONG_EVENTS)}"))
        client.get("/v1/conversations?limit=1000")

    ann.repeat(20, work)


def long_polls(ann: Ann) -> None:
    ann.repeat(
        60, lambda client: client.get(ann.path(random.choice(ann.small), "follow?after=1&wait_s=2"))
    )


def exports(ann: Ann) -> None:
    def work(client: Client) -> None:
        client.get(ann.path(ann.long, "export?format=openai-chat"))
        client.get(ann.path(ann.long, "report"))
        client.get("/v1/stats")

    ann.repeat(12, work)


def views_of_giants(ann: Ann) -> None:
    ann.repeat(12, lambda client: client.get(ann.path(ann.giant, "view?dialect=openai")))


def malformed_requests(ann: Ann) -> None:
    nested = b'{"documents":{"d":' + b"[" * 900 + b"]" * 900 + b"}}"

    def work(client: Client) -> None:
        for body in (nested, b"{" * 100_000):
            client.post(ann.path(ann.long, "events"), body)
        client.get("/v1/nothing")

    ann.repeat(20, work)


WAYS: dict[str, Callable[[Ann], object]] = {
    "none": lambda ann: None,
    "unread-streams": unread_streams,
    "half-bodies": half_bodies,
    "many-attributes": many_attributes,
    "giant-events": giant_events,
    "hundred-connections": hundred_connections,
    "searches-of-everything": searches_of_everything,
    "pages-of-long-events": pages_of_long_events,
    "long-polls": long_polls,
    "exports": exports,
    "views-of-giants": views_of_giants,
    "malformed-requests": malformed_requests,
}


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    tokens = folder / "tokens.toml"
    tokens.touch(0o600)
    tokens.write_text(_TOKENS)
    command = [sys.executable, "-m", "foldlog", "serve", "--write", "--port", "0"]
    options = ["--tokens", str(tokens), "--db", str(folder / "store.db")]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Server(urlsplit(process.stdout.readline().strip()).port or 0, process.pid)
        finally:
            process.terminate()


@contextmanager
def beside(ann: Ann, way: Callable[[Ann], object]) -> Iterator[None]:
    """Misbehave in a process of its own, which is killed at the end."""
    child = os.fork()
    if child == 0:
        try:
            _open_connections = way(ann)
            time.sleep(600)
        finally:
            os._exit(1)  # the child never runs the blocks of its parent, which end the server
    try:
        time.sleep(1)
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(2)  # the server ends what it had begun


def append_for(port: int, conversation: str, seconds: float) -> list[float]:
    """Append as Bob, and return the seconds of each append, the shortest first. The connection is
    new, because the server closes one that was idle.
    """
    client = Client(port, "bob")
    took_s = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began_s = time.monotonic()
        status = client.say(conversation, "hello")
        took_s.append(time.monotonic() - began_s)
        if status != 201:
            raise RuntimeError(f"an append of Bob was answered by {status}")
        time.sleep(0.05)
    return sorted(took_s)


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*WAYS]))
def main(names: Sequence[str]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="foldlog-tenants-") as folder,
        served(Path(folder)) as server,
    ):
        conversation = Client(server.port, "bob").create()
        ann = Ann(server.port)
        append_for(server.port, conversation, 2)
        for name in names or WAYS:
            with beside(ann, WAYS[name]):
                took_s = append_for(server.port, conversation, SECONDS)
                memory_mb = server.memory_mb()
            print(
                f"{name}: {len(took_s)} appends, median {1e3 * took_s[len(took_s) // 2]:.0f} ms,"
                f" slowest {1e3 * took_s[-1]:.0f} ms; the server has {memory_mb:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
