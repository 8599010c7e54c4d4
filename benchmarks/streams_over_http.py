"""Streams over HTTP, beside the server of the protocol's authors: ``python -m benchmarks.streams
readers post --peer FOLDER``, after ``npm install @durable-streams/server`` in FOLDER.

Each server writes to the folder for temporary files. Writers and readers have processes of their
own, and the servers are measured by turns.
"""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

import click
import psutil

import foldlog

READERS: Final = 100
CHUNKS_PER_S: Final = 50
READ_S: Final = 8
POSTS: Final = 1_000
WARM_UP_POSTS: Final = 50
TURNS: Final = 3
TOKEN: Final = "a token of the benchmark"
TOKENS: Final = f"""[benchmark]
scope = "append"
token = "{TOKEN}"
requests_per_s = 100000
connections = 1000
"""
BEARER: Final = f"authorization: Bearer {TOKEN}"
PEER: Final = """
import { DurableStreamTestServer } from "@durable-streams/server";
const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir: process.argv[1] });
console.log(await server.start());
"""
_find_port: Final = re.compile(r"http://[\w.]+:(\d+)").search
_find_times: Final = re.compile(rb"\d{10}\.\d{9}").findall


class Server(NamedTuple):
    name: str
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system


def measure_readers(url: str, peer: Path | None) -> None:
    for server, path in servers_by_turns(url, peer):
        command = [sys.executable, "-m", __spec__.name, "read", str(server.port), path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as readers:
            assert readers.stdout is not None
            readers.stdout.readline()
            start = server.cpu_s()
            command[3] = "write"
            sent = int(subprocess.check_output(command))
            cpu = (server.cpu_s() - start) / READ_S
            received = readers.stdout.readline().strip()
        click.echo(f"{server.name}: {sent} chunks sent; {received}; server {cpu:.0%} of a core")


def measure_post(url: str, peer: Path | None) -> None:
    for server, path in servers_by_turns(url, peer):
        connection = connect(server.port)
        start = time.perf_counter()
        start_cpu = server.cpu_s()
        for _ in range(POSTS):
            post(connection, path, b"x" * 20)
        took_s = time.perf_counter() - start
        cpu_s = server.cpu_s() - start_cpu
        click.echo(f"{server.name}: {cpu_s / POSTS * 1e6:.0f} us a POST, {POSTS / took_s:.0f} a s")


def servers_by_turns(url: str, peer: Path | None) -> Iterator[tuple[Server, str]]:
    """Yield each server with the path of a new stream, several times. The stream already has
    ``WARM_UP_POSTS`` chunks, so that no measured chunk is the first that a server writes.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as ending:
        folder = Path(name)
        servers = [ending.enter_context(serving(url, folder))]
        if peer is not None:
            servers.append(ending.enter_context(serving_peer(peer, folder)))
        for turn in range(TURNS):
            for server in servers:
                path = f"/v1/stream/c/turn-{turn}"
                connection = connect(server.port)
                request(connection, "PUT", path, b"")
                for _ in range(WARM_UP_POSTS):
                    post(connection, path, b"x" * 20)
                connection.close()
                yield server, path


@contextmanager
def serving(url: str, folder: Path) -> Iterator[Server]:
    with foldlog.open(url) as histories:
        histories["c"].append({"role": "user", "content": "hi"})
    tokens = folder / "tokens.toml"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    command = [sys.executable, "-m", "foldlog", "serve", "--write", "--port", "0"]
    with started("foldlog", [*command, "--tokens", str(tokens), "--db", url]) as server:
        yield server


@contextmanager
def serving_peer(peer: Path, folder: Path) -> Iterator[Server]:
    data = folder / "peer"
    data.mkdir()
    command = ["node", "--input-type=module", "--eval", PEER, str(data)]
    with started("the peer", command, peer) as server:
        yield server


@contextmanager
def started(name: str, command: list[str], folder: Path | None = None) -> Iterator[Server]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            ports = (_find_port(line) for line in process.stdout)
            port = next(found for found in ports if found is not None)
            yield Server(name, int(port[1]), psutil.Process(process.pid))
        finally:
            process.terminate()


def connect(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(connection: http.client.HTTPConnection, method: str, path: str, body: bytes) -> None:
    name, _, value = BEARER.partition(": ")
    connection.request(method, path, body, {name: value, "content-type": "text/plain"})
    response = connection.getresponse()
    response.read()
    if response.status >= 300:
        raise click.ClickException(f"{method} {path}: status {response.status}")


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> None:
    request(connection, "POST", path, body)


def write(port: int, path: str) -> None:
    """Post the time, again and again, and print how often."""
    connection = connect(port)
    start = time.monotonic()
    number = 0
    while time.monotonic() < start + READ_S:
        post(connection, path, b"%020.9f" % time.monotonic())
        number += 1
        time.sleep(max(0.0, start + number / CHUNKS_PER_S - time.monotonic()))
    click.echo(number)


async def read_all(port: int, path: str) -> None:
    """Read a stream with many readers. Print the times that the chunks took."""
    waits: list[float] = []
    end = time.monotonic() + READ_S + 4
    opening = [asyncio.open_connection("127.0.0.1", port) for _ in range(READERS)]
    connections = await asyncio.gather(*opening)  # a writer that nobody refers to is closed
    host = f"127.0.0.1:{port}"
    head = f"GET {path}?offset=now&live=sse HTTP/1.1\r\nhost: {host}\r\n{BEARER}\r\n\r\n"
    async with asyncio.TaskGroup() as tasks:
        running = []
        for reader, writer in connections:
            writer.write(head.encode())
            running.append(tasks.create_task(read(reader, waits, end)))
        await asyncio.sleep(1.5)  # until each reader is at the end of the stream
        click.echo("reading")
    counts = [task.result() for task in running]
    percent = quantiles(waits, n=100)
    click.echo(
        f"each of {READERS} readers got {min(counts)} to {max(counts)}:"
        f" p50 {percent[49] * 1e3:.1f} ms, p99 {percent[98] * 1e3:.1f} ms"
    )


async def read(reader: asyncio.StreamReader, waits: list[float], end: float) -> int:
    count = 0
    while True:
        try:
            async with asyncio.timeout(end - time.monotonic()):
                data = await reader.readuntil(b"\n\n")
        except (TimeoutError, asyncio.IncompleteReadError):
            return count
        now = time.monotonic()
        for sent_at in _find_times(data):
            waits.append(now - float(sent_at))
            count += 1


if __name__ == "__main__":
    role, port, path = sys.argv[1:]
    if role == "read":
        asyncio.run(read_all(int(port), path))
    else:
        write(int(port), path)
