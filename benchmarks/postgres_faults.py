"""Faults under load on PostgreSQL: ``python -m benchmarks.postgres_faults [--events N] [--faults N] [--scenario …]``.

Writers append without a pause while servers are killed, frozen, restarted and cut off. Every append that returned is
noted; at the end, each of those events must be there, once. The exit status is 1 if one is lost or doubled.

    failover   a primary and a synchronous standby: the primary is killed (SIGKILL to all its processes), the standby
               promoted, the killed one made a standby of it, again and again
    quorum     the same with three servers, of which any one must confirm; the standby that has most is promoted
    restart    the one server is restarted, in turn fast and by a crash (immediate)
    frozen     the primary is stopped for some seconds (SIGSTOP) and goes on
    cut        connections are ended by the server, and cut by a proxy just before or just behind a commit

A promoted server waits for a standby before it confirms anything, so a second failure cannot lose what the first one
left on one disk only.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from eventstore import ANY_VERSION, Message, Store, open_store
from tests.postgres.cutting import CuttingProxy
from tests.postgres.servers import Server

WRITERS = 16
CONVERSATIONS_EACH = 20


class Cluster:
    """A primary and its standbys. Each has the same settings, so that a promoted one waits for the others at once."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._made = size
        names = [f"n{n}" for n in range(size)]
        settings = {"synchronous_standby_names": f"ANY 1 ({', '.join(names)})"} if size > 1 else {}
        self.primary = Server(folder / "n0")
        self.primary.initialize(settings)
        self.primary.start()
        self.names = {self.primary: "n0"}
        self.standbys: list[Server] = []
        for name in names[1:]:
            self._add_standby(Server(folder / name), name)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.names)
        return f"postgresql://postgres@{hosts}/postgres"

    def fail_over(self) -> None:
        """The primary dies; the standby that has most takes over; the dead one comes back as its standby."""
        killed = self.primary
        killed.kill()
        self.primary = max(self.standbys, key=_received)
        self.primary.promote()
        self.standbys.remove(self.primary)
        for standby in self.standbys:
            standby.configure({"primary_conninfo": _conninfo(self.primary, self.names[standby])})
            standby.reload()
        shutil.rmtree(killed.folder)
        self._add_standby(killed, self.names[killed])

    def stop(self) -> None:
        for server in [self.primary, *self.standbys]:
            server.stop("immediate")

    def _add_standby(self, server: Server, name: str) -> None:
        server.follow(self.primary, name)
        server.start()
        self.standbys.append(server)
        self.names[server] = name


def _received(standby: Server) -> int:
    return int(standby.sql("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"))


def _conninfo(primary: Server, name: str) -> str:
    return f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"


class Writers:
    """Threads that append as fast as they can and note what was acknowledged. Every event's text is its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self.acknowledged: list[tuple[str, int, str]] = []
        self.times: list[float] = []
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        chance = random.Random(writer)
        versions = {f"w{writer}-{n}": 0 for n in range(CONVERSATIONS_EACH)}
        number = 0
        while not self._stop.is_set():
            conversation = chance.choice(list(versions))
            texts = [f"{conversation}/{number + n}" for n in range(chance.choice([1, 1, 2, 5, 20]))]
            number += len(texts)
            expected = chance.choice([versions[conversation], ANY_VERSION])
            key = chance.choice([None, f"turn-{number}"])
            events = [Message(source="user", content=text) for text in texts]
            try:
                recorded = self._store.append(conversation, events, expected_version=expected, idempotency_key=key)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed, and says so
                self.errors.append(error)
                return
            self.times.append(time.monotonic())
            self.acknowledged.extend((conversation, r.id, t) for r, t in zip(recorded, texts, strict=True))
            versions[conversation] = recorded[-1].id + 1

    @property
    def events(self) -> int:
        return len(self.acknowledged)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def stalls(writers: Writers, moments: list[float]) -> list[float]:
    """For each fault, the longest time in which nothing was acknowledged, from just before it to the next."""
    longest = []
    times = sorted(writers.times)
    for moment, following in pairwise([*moments, times[-1]]):
        near = [t for t in times if moment - 0.5 <= t <= following]
        longest.append(max(later - earlier for earlier, later in pairwise(near)))
    return longest


def check(store: Store, writers: Writers) -> tuple[int, int]:
    """(lost, doubled) of what was acknowledged."""
    stored: dict[tuple[str, int], str] = {}
    seen: Counter[str] = Counter()
    for recorded in store.follow():
        stored[recorded.conversation, recorded.id] = recorded.event.content
        seen[recorded.event.content] += 1
    lost = sum(stored.get((conversation, i)) != text for conversation, i, text in writers.acknowledged)
    return lost, sum(count - 1 for count in seen.values())


Fault = Callable[[], None]


@contextlib.contextmanager
def clustered(folder: Path, size: int) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, size)
    try:
        yield cluster.url, cluster.fail_over
    finally:
        cluster.stop()


@contextlib.contextmanager
def restarted(folder: Path) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, 1)
    modes = iter(["fast", "immediate"] * 1_000)

    def restart() -> None:
        cluster.primary.stop(next(modes))
        time.sleep(random.uniform(0, 1))
        cluster.primary.start()

    try:
        yield cluster.url, restart
    finally:
        cluster.stop()


@contextlib.contextmanager
def frozen(folder: Path) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, 1)

    def freeze() -> None:
        cluster.primary.signal(signal.SIGSTOP)
        time.sleep(random.uniform(2, 6))
        cluster.primary.signal(signal.SIGCONT)

    try:
        yield cluster.url, freeze
    finally:
        cluster.stop()


@contextlib.contextmanager
def cut(folder: Path) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, 1)
    proxy = CuttingProxy(cluster.primary.port)

    def cut_some() -> None:
        cluster.primary.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'foldlog'")
        for _ in range(20):
            proxy.order(random.choice(["request", "answer"]))

    try:
        yield cluster.url.replace(str(cluster.primary.port), str(proxy.port)), cut_some
    finally:
        proxy.close()
        cluster.stop()


SCENARIOS = {
    "failover": lambda folder: clustered(folder, 2),
    "quorum": lambda folder: clustered(folder, 3),
    "restart": restarted,
    "frozen": frozen,
    "cut": cut,
}


def run(name: str, events: int, faults_min: int, every_s: float) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    faults, moments = 0, []
    try:
        with SCENARIOS[name](folder) as (url, fault), open_store(f"{url}?connections_max={WRITERS}") as store:
            writers = Writers(store)
            began = time.monotonic()
            while (writers.events < events or faults < faults_min) and not writers.errors:
                time.sleep(every_s)
                moments.append(time.monotonic())
                fault()
                faults += 1
                print(f"{name}: {faults} faults, {writers.events:,} events acknowledged", flush=True)
            time.sleep(every_s)
            writers.finish()
            took = time.monotonic() - began
            lost, doubled = check(store, writers)
    except subprocess.SubprocessError as error:
        raise SystemExit(f"{name}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for error in writers.errors:
        print(f"{name}: an append failed: {error}")
    waits = stalls(writers, moments)
    print(
        f"{name}: {writers.events:,} events acknowledged in {took:.0f} s through {faults} faults: {lost} lost, "
        f"{doubled} doubled, {len(writers.errors)} errors; "
        f"stalls: median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s"
    )
    return lost == doubled == len(writers.errors) == 0


def main(
    events: Annotated[int, typer.Option(help="How many acknowledged events each scenario goes on to.")] = 100_000,
    scenario: Annotated[list[str] | None, typer.Option(help="Which; all of them if not given.")] = None,
    faults: Annotated[int, typer.Option(help="How many faults each scenario goes on to.")] = 10,
    every_s: Annotated[float, typer.Option(help="Seconds of undisturbed work between two faults.")] = 3.0,
) -> None:
    """Kill, promote, restart and cut, and count what was lost."""
    held = [run(name, events, faults, every_s) for name in scenario or SCENARIOS]
    if not all(held):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
