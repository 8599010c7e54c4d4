"""Measure what the HTTP service costs, and how soon a follower reads: ``python -m
benchmarks.service [QUESTION]…``.

Each question has a server of its own at a free port of this machine:

\b
cpu      the CPU time of an append by turns: of the server, of the library in this process, and of
         uvicorn alone, which answers the same requests without doing anything
together the CPU time of the server for an append of several writers at the same time
search   the time of a page of a search in 10,000 conversations, without an index and with one
follow   the time from the request of an append to the event at a follower, at 500 appends a second
idle     the CPU time of the server, and of PostgreSQL, with 200 followers of conversations in which
         nothing happens, while another program makes 50 commits a second; and without followers
slow     the memory of the server with many connections that send nothing more
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode, urlsplit

import click

import foldlog
from benchmarks.postgres_citus import cpu_s
from foldlog.eventstore import Message
from tests.postgres.servers import Server as PostgresServer, new_primary
from tests.waiting import until

TOKEN = "a token of the benchmark"
APPENDS = 2_000
WARM_UP = 200
APPENDS_PER_S = 500
FOLLOW_S = 20
IDLE_FOLLOWERS = 200
COMMITS_PER_S = 50
IDLE_S = 15
CONNECTIONS = 10_000
CONVERSATIONS = 10_000
EVENTS = 4
PAGES = 60
PAGES_WITHOUT_INDEX = 2
WRITERS = 20
_TEXT = "The build of the module failed, because the file has a wrong name. " * 4


class Server:
    """A process of ``foldlog serve --write``."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def cpu_s(self) -> float:
        # The clock of another process, as clock_getcpuclockid(3) makes it, counts nanoseconds.
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory_mb(self) -> float:
        (line,) = (
            line
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
        return int(line.split()[1]) / 1_000

    def client(self) -> Client:
        return Client(self.port)


class Client:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def append(self, conversation: str, text: str) -> None:
        body = {"events": [{"kind": "message", "source": "user", "content": text}]}
        self.send("POST", f"/v1/conversations/{conversation}/events", json.dumps(body))

    def send(self, method: str, path: str, body: str | None = None) -> bytes:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {content.decode()}")
        return content


@contextmanager
def served(folder: Path, *more: str, db: str = "") -> Iterator[Server]:
    tokens = folder / "tokens.toml"
    tokens.touch(0o600)
    limits = "requests_per_s = 1e9\nconnections = 100000"
    tokens.write_text(f'[benchmark]\ntoken = "{TOKEN}"\nscope = "append"\n{limits}\n')
    command = [sys.executable, "-m", "foldlog", "serve", "--write", "--port", "0"]
    options = ["--tokens", str(tokens), "--db", db or f"sqlite:///{folder / 'served.db'}"]
    with subprocess.Popen(
        [*command, *options, *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = urlsplit(process.stdout.readline().strip())
            assert address.port is not None
            yield Server(address.port, process.pid)
        finally:
            process.terminate()


def measure_cpu(folder: Path) -> None:
    with (
        served(folder) as server,
        bare() as server_alone,
        foldlog.open(f"sqlite:///{folder / 'own.db'}") as histories,
    ):
        history = histories["c1"]
        message = Message(source="user", content=_TEXT)
        clients = [server.client(), server_alone.client()]
        library_s = 0.0
        before_s = [0.0, 0.0]
        for number in range(APPENDS + WARM_UP):
            if number == WARM_UP:
                library_s = 0.0
                before_s = [server.cpu_s(), server_alone.cpu_s()]
            for client in clients:
                client.append("c1", _TEXT)
            began_s = time.process_time()
            history.append(message)
            library_s += time.process_time() - began_s
        served_s = server.cpu_s() - before_s[0]
        alone_s = server_alone.cpu_s() - before_s[1]
    library, served_, alone = (1e6 * spent / APPENDS for spent in (library_s, served_s, alone_s))
    print(
        f"cpu: {APPENDS} appends by turns: the service {served_:.0f} µs, the library {library:.0f}"
        f" µs ({served_ / library:.1f} times); uvicorn alone, with an empty answer, {alone:.0f} µs:"
        f" without it, the service takes {(served_ - alone) / library:.1f} times the library's"
    )


def measure_together(folder: Path) -> None:
    def append_all(client: Client, conversation: str) -> None:
        for _ in range(APPENDS // WRITERS):
            client.append(conversation, _TEXT)

    with served(folder) as server, ThreadPoolExecutor(WRITERS) as threads:
        clients = [server.client() for _ in range(WRITERS)]
        conversations = [f"c{number}" for number in range(WRITERS)]
        list(threads.map(append_all, clients, conversations))  # warms up
        began_s = server.cpu_s()
        list(threads.map(append_all, clients, conversations))
        used_s = server.cpu_s() - began_s
    print(
        f"together: {1e6 * used_s / APPENDS:.0f} µs of the server an append, of {WRITERS} writers"
    )


async def empty_answer(scope: Any, receive: Any, send: Any) -> None:
    """The application that measures uvicorn alone."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


@contextmanager
def bare() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        options = ["--fd", str(listener.fileno()), "--log-level", "critical", "--lifespan", "off"]
        command = [sys.executable, "-m", "uvicorn", "benchmarks.service:empty_answer", *options]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
            try:
                yield Server(port, process.pid)
            finally:
                process.terminate()


def measure_follow(folder: Path) -> None:
    with served(folder) as server:
        writers = [Writer(server, f"c{number}") for number in range(WRITERS)]
        follower = Follower(server)
        follower.start()
        cpu_s = server.cpu_s()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        cpu_s = server.cpu_s() - cpu_s
        answered_at = {text: at for writer in writers for text, at in writer.answered_at.items()}
        until(lambda: answered_at.keys() <= follower.seen_at.keys())
    lags_s = [max(0.0, follower.seen_at[text] - at) for text, at in answered_at.items()]
    cuts = quantiles(lags_s, n=1_000)
    print(
        f"follow: {len(lags_s) / FOLLOW_S:.0f} appends a second by {WRITERS} writers for"
        f" {FOLLOW_S} s; a follower has an event after the writer has its answer by: median"
        f" {1e3 * cuts[499]:.1f} ms, p99 {1e3 * cuts[989]:.1f} ms, longest"
        f" {1e3 * max(lags_s):.1f} ms; the server used {100 * cpu_s / FOLLOW_S:.0f} % of a core"
    )


class Writer(threading.Thread):
    """Appends to a conversation at its part of the rate."""

    def __init__(self, server: Server, conversation: str) -> None:
        super().__init__(daemon=True)
        self._client = server.client()
        self._conversation = conversation
        self.answered_at: dict[str, float] = {}

    def run(self) -> None:
        began_at = time.monotonic()
        for number in range(FOLLOW_S * APPENDS_PER_S // WRITERS):
            time.sleep(max(0.0, began_at + number * WRITERS / APPENDS_PER_S - time.monotonic()))
            if time.monotonic() > began_at + FOLLOW_S:
                return  # the machine is too slow for the rate
            text = f"{self._conversation} {number}"
            self._client.append(self._conversation, text)
            self.answered_at[text] = time.monotonic()


class Follower(threading.Thread):
    """Follows all conversations."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        headers = {"authorization": f"Bearer {TOKEN}", "accept": "text/event-stream"}
        connection.request("GET", "/v1/follow", headers=headers)
        self._stream = connection.getresponse()
        self.seen_at: dict[str, float] = {}

    def run(self) -> None:
        for line in self._stream:
            if line.startswith(b"data: "):
                self.seen_at[json.loads(line[6:])["event"]["content"]] = time.monotonic()


def measure_idle(folder: Path) -> None:
    _measure_idle(folder, "SQLite", f"sqlite:///{folder / 'served.db'}", lambda: 0.0)
    servers = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    servers.chmod(0o755)
    try:
        database = new_primary(servers / "server")
        try:
            _measure_idle(folder, "PostgreSQL", database.url(), lambda: postgres_s(database))
        finally:
            database.stop("immediate")
    finally:
        shutil.rmtree(servers, ignore_errors=True)


def postgres_s(database: PostgresServer) -> float:
    """Return the CPU time of PostgreSQL."""
    return cpu_s([database]) - time.process_time()


def _measure_idle(folder: Path, name: str, db: str, database_s: Callable[[], float]) -> None:
    for followers in (0, IDLE_FOLLOWERS):
        with (
            served(folder, db=db) as server,
            foldlog.open(db) as histories,
            ExitStack() as connections,
        ):
            for number in range(followers):
                histories[f"idle {number}"].append(Message(source="user", content=_TEXT))
                connections.enter_context(_following(server, f"idle%20{number}"))
            time.sleep(2)
            began_s = server.cpu_s(), database_s()
            began_at = time.monotonic()
            commits = IDLE_S * COMMITS_PER_S
            for number in range(commits):
                time.sleep(max(0.0, began_at + number / COMMITS_PER_S - time.monotonic()))
                histories["busy"].append(Message(source="user", content=_TEXT))
            took_s = time.monotonic() - began_at
            used_s = server.cpu_s() - began_s[0], database_s() - began_s[1]
        print(
            f"idle, {name}: {followers} followers, {commits / took_s:.0f} commits a second: the"
            f" service used {100 * used_s[0] / took_s:.1f} % of a core, PostgreSQL"
            f" {100 * used_s[1] / took_s:.1f} %"
        )


def _following(server: Server, conversation: str) -> socket.socket:
    """Return a connection that follows a conversation from its only event on."""
    connection = socket.create_connection(("127.0.0.1", server.port), 10)
    connection.sendall(
        f"GET /v1/conversations/{conversation}/follow?after=0 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {TOKEN}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    answer = b""
    while b"data: " not in answer:
        part = connection.recv(65_536)
        if not part:
            raise RuntimeError(f"the server ended a follower of {conversation}: {answer.decode()}")
        answer += part
    return connection


def measure_slow(folder: Path) -> None:
    with served(folder) as server, ExitStack() as connections:
        server.client().append("c1", _TEXT)
        before_mb = server.memory_mb()
        request = b"POST /v1/conversations/c1/events HTTP/1.1\r\nHost: localhost\r\nX-"
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", server.port), 10)
            connections.enter_context(connection)
            connection.send(request)
        server.client().append("c1", _TEXT)
        first_mb = server.memory_mb()
        time.sleep(5)
        began_s = time.monotonic()
        server.client().append("c1", _TEXT)
        lasted_s = time.monotonic() - began_s
        later_mb = server.memory_mb()
    print(
        f"slow: {CONNECTIONS} connections with half a request: memory {before_mb:.0f} MB before,"
        f" {first_mb:.0f} MB with them, {later_mb:.0f} MB after 5 s; an append beside them took"
        f" {1e3 * lasted_s:.0f} ms"
    )


def measure_search(folder: Path) -> None:
    """All of 40,000 events have ``tea``, 4,000 have ``lemon``, and 40 have ``zebra``."""
    chance = random.Random(1)
    words = [f"{chance.choice('bcdfg')}{number:x}" for number in range(5_000)]
    with foldlog.open(f"sqlite:///{folder / 'served.db'}", durability="relaxed") as histories:
        for number in range(CONVERSATIONS):
            texts = [" ".join(["tea", *chance.choices(words, k=60)]) for _ in range(EVENTS)]
            if number % 10 == 0:
                texts = [f"{text} lemon" for text in texts]
            if number % 1_000 == 0:
                texts = [f"{text} zebra" for text in texts]
            histories[f"c{number}"].append([Message(source="user", content=it) for it in texts])
    # A server that has just started still counts the figures of all conversations.
    for title in ("without an index", "with an index", "with an index and all figures"):
        if title == "with an index":
            command = [sys.executable, "-m", "foldlog", "store", "index"]
            subprocess.run([*command, "--db", f"{folder / 'served.db'}"], check=True)
        elif title == "with an index and all figures":
            with foldlog.open(f"sqlite:///{folder / 'served.db'}") as histories:
                histories.maintenance.keep_up()
        with served(folder) as server:
            for query, limit in (("zebra", 20), ("lemon", 100), ("tea", 100), ("unicorn", 20)):
                most = PAGES_WITHOUT_INDEX if title == "without an index" else PAGES
                took_s, hits = walk_hits(server.client(), query, limit, most)
                ordered = sorted(took_s)
                print(
                    f"search {title}: {query}: {hits} hits in {len(took_s)} pages; first page"
                    f" {1e3 * took_s[0]:.0f} ms, median {1e3 * ordered[len(ordered) // 2]:.0f} ms,"
                    f" slowest {1e3 * ordered[-1]:.0f} ms"
                )


def walk_hits(client: Client, words: str, limit: int, most: int) -> tuple[list[float], int]:
    """Return the time of each page of a search, up to ``most`` pages, and the number of hits."""
    took_s = list[float]()
    seen = set[tuple[str, int]]()
    parameters = {"words": words, "limit": str(limit)}
    while len(took_s) < most:
        began_s = time.monotonic()
        page = json.loads(client.send("GET", f"/v1/search?{urlencode(parameters)}"))
        took_s.append(time.monotonic() - began_s)
        seen |= {(hit["conversation"], hit["event"]) for hit in page["hits"]}
        if page["next"] is None:
            break
        parameters["after"] = page["next"]
    return took_s, len(seen)


MEASURED = {
    "cpu": measure_cpu,
    "together": measure_together,
    "search": measure_search,
    "follow": measure_follow,
    "idle": measure_idle,
    "slow": measure_slow,
}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*MEASURED]))
def main(names: Sequence[str]) -> None:
    for name in names or MEASURED:
        with tempfile.TemporaryDirectory(prefix="foldlog-service-") as folder:
            MEASURED[name](Path(folder))


if __name__ == "__main__":
    main()
