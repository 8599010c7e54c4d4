"""Start servers for runs with faults. A primary, with or without synchronous standbys, is killed,
restarted, frozen or cut off, and a standby is promoted.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.postgres.cutting import CuttingProxy
from tests.postgres.servers import Server

__all__ = ["SCENARIOS", "Fault", "Scenario"]


class Cluster:
    """A primary and its standbys. All servers have the same settings, so a promoted standby
    immediately waits for the other servers.
    """

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
        """Kill the primary, promote the standby that received most of the log, and start the killed
        server again as a standby.
        """
        killed = self.primary
        killed.kill()
        self.primary = max(self.standbys, key=_received_position)
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


def _received_position(standby: Server) -> int:
    return int(standby.sql("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn"))


def _conninfo(primary: Server, name: str) -> str:
    return f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"


Fault = Callable[[], None]
Scenario = Callable[[Path], contextlib.AbstractContextManager[tuple[str, Fault]]]


@contextlib.contextmanager
def clustered(folder: Path, size: int) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, size)
    try:
        yield cluster.url, cluster.fail_over
    finally:
        cluster.stop()


@contextlib.contextmanager
def alone(folder: Path, disturb: Callable[[Server, int], None]) -> Iterator[tuple[str, Fault]]:
    """Start one server, and yield its URL and a function that disturbs the server. ``disturb`` gets
    the server and the number of earlier disturbances.
    """
    cluster = Cluster(folder, 1)
    times = itertools.count()
    try:
        yield cluster.url, lambda: disturb(cluster.primary, next(times))
    finally:
        cluster.stop()


def restart(server: Server, times: int) -> None:
    server.stop("immediate" if times % 2 else "fast")
    time.sleep(random.uniform(0, 1))
    server.start()


def freeze(server: Server, times: int) -> None:
    server.signal(signal.SIGSTOP)
    time.sleep(random.uniform(2, 6))
    server.signal(signal.SIGCONT)


@contextlib.contextmanager
def cut(folder: Path) -> Iterator[tuple[str, Fault]]:
    cluster = Cluster(folder, 1)
    proxy = CuttingProxy(cluster.primary.port)

    def cut_some() -> None:
        cluster.primary.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ="
            " 'foldlog'"
        )
        for mark in (b"\0commit\0", b"\0begin_conversation\0", b"\0set_key\0"):
            for _ in range(20):
                proxy.order(random.choice(["request", "answer"]), mark=mark)

    try:
        yield cluster.url.replace(str(cluster.primary.port), str(proxy.port)), cut_some
    finally:
        proxy.close()
        cluster.stop()


SCENARIOS: dict[str, Scenario] = {
    "failover": lambda folder: clustered(folder, 2),
    "quorum": lambda folder: clustered(folder, 3),
    "restart": lambda folder: alone(folder, restart),
    "frozen": lambda folder: alone(folder, freeze),
    "cut": cut,
}
