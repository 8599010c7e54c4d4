"""Test a store on Citus: ``python -m benchmarks.postgres_citus minutes``, ``… moves``, or ``… cpu``.

``minutes`` starts a coordinator and two workers with Citus, and a store in eight schemas. For ten
minutes, 16 writers append through all nodes, four followers read (through the coordinator, through
each worker, and one that opens the store again and again), and a thread erases. Meanwhile, schemas
are moved between the workers, a worker is killed during each third move, and every node is killed
in turn. It prints how many acknowledged events were lost, doubled, missed or read out of order by a
follower, the outcomes of the erasures, what ``verify`` finds, and the longest append.

``moves`` starts a coordinator and two workers with Citus, and a store in four schemas
(``?stores=4``). Writers append without a pause through the coordinator, and a follower reads, while
each schema is moved between the workers twice, and a worker is killed (SIGKILL to all its
processes) and started again after every second move. The checks are the checks of
``benchmarks.postgres_faults``.

``cpu`` measures the CPU time of an append, of the client and of all servers: on a server without
Citus, and on Citus through the coordinator, through the worker that has the store, and through the
other worker.

Citus must be installed for the PostgreSQL that ``$FOLDLOG_POSTGRES_BIN`` names.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import psycopg

from benchmarks.postgres_clusters import Fault
from benchmarks.postgres_faults import run
from benchmarks.postgres_load import Follower, Load, check
from foldlog.eventstore import ANY_VERSION, open_store
from tests.postgres.servers import Server, ServerUnavailable, new_primary
from tests.said import say

STORES = 4
MOVES = 2 * STORES
_SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.enable_schema_based_sharding": "on",
    "citus.node_conninfo": "sslmode=disable",
    "wal_level": "logical",
    "max_prepared_transactions": "400",
    "shared_buffers": "64MB",
}


class Citus:
    """A coordinator, and two workers that have all tables."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = Server(folder / "coordinator")
        self.workers = [Server(folder / f"worker{n}") for n in range(2)]
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        for server in (self.coordinator, *self.workers):
            server.initialize(_SETTINGS)
            server.start()
            server.sql("CREATE EXTENSION citus")
        port = self.coordinator.port
        self.coordinator.sql(f"SELECT citus_set_coordinator_host('127.0.0.1', {port})")
        for worker in self.workers:
            self.coordinator.sql(f"SELECT citus_add_node('127.0.0.1', {worker.port})")
        self.coordinator.sql(
            f"SELECT citus_set_node_property('127.0.0.1', {port}, 'shouldhaveshards', false)"
        )

    @property
    def url(self) -> str:
        return self.coordinator.url(stores=str(STORES))

    def place(self, schema: str = "foldlog") -> Server:
        """Return the worker that has the tables of a schema."""
        port = self.coordinator.sql(
            f"SELECT nodeport FROM citus_shards WHERE table_name::text = '{schema}.events'"
        )
        [worker] = [worker for worker in self.workers if worker.port == int(port)]
        return worker

    def move(self, schema: str) -> None:
        """Move a schema to the other worker, while it is used. Writers wait: some tables have no
        primary key, so Citus cannot replicate their changes in the meantime.
        """
        place = self.place(schema)
        [target] = [worker for worker in self.workers if worker is not place]
        self.coordinator.sql(
            f"SELECT citus_schema_move('{schema}', '127.0.0.1', {target.port}, 'block_writes')"
        )

    def stop(self) -> None:
        for server in (self.coordinator, *self.workers):
            with contextlib.suppress(ServerUnavailable):  # it did not start
                server.stop("immediate")


@contextlib.contextmanager
def moving(folder: Path) -> Iterator[tuple[str, Fault]]:
    """Start Citus. Each fault moves one schema, and after every second move, kills a worker."""
    citus = Citus(folder)
    moves = itertools.count()

    def move_or_kill() -> None:
        number = next(moves)
        citus.move(f"foldlog_{number % STORES:02d}")
        if number % 2:
            worker = random.choice(citus.workers)
            worker.kill()
            time.sleep(random.uniform(0, 1))
            worker.start()

    try:
        yield citus.url, move_or_kill
    finally:
        citus.stop()


class Disturbances:
    """Moves schemas, and kills nodes, in turn."""

    def __init__(self, citus: Citus, stores: int) -> None:
        self._citus = citus
        self._schemas = itertools.cycle([f"foldlog_{number:02d}" for number in range(stores)])
        nodes = {
            "worker 0": citus.workers[0],
            "worker 1": citus.workers[1],
            "coordinator": citus.coordinator,
        }
        self._nodes = itertools.cycle(nodes.items())
        self._turn = itertools.count(1)
        self.counts: Counter[str] = Counter()

    def disturb(self) -> None:
        turn = next(self._turn)
        if turn % 2:
            self._move(is_disturbed=turn % 3 == 0)
        else:
            name, node = next(self._nodes)
            self._kill(node, name)

    def _move(self, *, is_disturbed: bool) -> None:
        moving = threading.Thread(target=self._move_one, args=(next(self._schemas),))
        moving.start()
        if is_disturbed:
            time.sleep(random.uniform(0, 0.5))
            number = random.randrange(2)
            self._kill(self._citus.workers[number], f"worker {number}, during a move")
        moving.join()

    def _move_one(self, schema: str) -> None:
        try:
            self._citus.move(schema)
            self.counts["moves"] += 1
        except psycopg.Error as error:
            self.counts["moves that failed"] += 1
            print(f"move of {schema}: {' '.join(str(error).split())[:120]}", flush=True)

    def _kill(self, node: Server, name: str) -> None:
        node.kill()
        self.counts[f"kills of {name}"] += 1
        time.sleep(random.uniform(0, 2))
        node.start()


@click.group()
def app() -> None:
    """Test a store on Citus."""


@app.command()
@click.option("--events", default=10_000, help="Run until this number of events is acknowledged.")
@click.option("--every-s", default=3.0, help="Seconds of undisturbed work between two faults.")
def moves(events: int, every_s: float) -> None:
    """Move each schema twice, and kill a worker four times."""
    if not run("moves", moving, events, MOVES, every_s, encrypted=False):
        raise SystemExit(1)


@app.command()
@click.option("--seconds", default=600.0, help="Run for this time.")
@click.option("--stores", default=8, help="The number of schemas.")
@click.option("--every-s", default=5.0, help="Seconds of undisturbed work between two faults.")
@click.option("--patience-s", default=120, help="The patience of the writers and followers.")
def minutes(seconds: float, stores: int, every_s: float, patience_s: int) -> None:
    """Move schemas and kill every node for ten minutes, and count the lost events."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        citus = Citus(folder)
        ending.callback(citus.stop)
        options = {"stores": str(stores), "patience_s": str(patience_s)}
        url = citus.coordinator.url(**options)
        open_store(url).close()
        workers = [worker.url(**options) for worker in citus.workers]
        load = Load(
            url,
            encrypted=False,
            erases=True,
            writers_urls=[url, url, *workers],
            followers=[*map(Follower, [url, *workers]), Follower(url, reopens=True)],
        )
        disturbances = Disturbances(citus, stores)
        ends = time.monotonic() + seconds
        try:
            while time.monotonic() < ends and not load.errors:
                time.sleep(every_s)
                disturbances.disturb()
                counts = ", ".join(f"{n} {name}" for name, n in disturbances.counts.items())
                print(f"{len(load.acknowledged):,} events acknowledged; {counts}", flush=True)
        finally:
            load.finish()
        outcome = check(url, load)
        prepared = sum(
            int(node.sql("SELECT count(*) FROM pg_prepared_xacts"))
            for node in (citus.coordinator, *citus.workers)
        )
        for error in load.errors:
            print(error)
        print(
            f"{len(load.acknowledged):,} events acknowledged in {len(load.times):,} appends,"
            f" longest append {load.longest_s:.1f} s; {outcome}; erasures: {dict(load.receipts)};"
            f" {prepared} prepared transactions left; {len(load.errors)} errors"
        )
        if not outcome.is_clean or load.errors:
            raise SystemExit(1)


@app.command()
@click.option("--appends", default=300, help="The appends of each turn.")
@click.option("--turns", default=5, help="The turns of each address.")
def cpu(appends: int, turns: int) -> None:
    """Print the median CPU time and round trip of an append."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        plain = new_primary(folder / "plain")
        ending.callback(plain.stop, "immediate")
        citus = Citus(folder)
        ending.callback(citus.stop)
        servers = [plain, citus.coordinator, *citus.workers]
        with open_store(citus.coordinator.url()):
            [here, other] = sorted(citus.workers, key=lambda worker: worker is not citus.place())
        addresses = {
            "PostgreSQL": plain,
            "coordinator": citus.coordinator,
            "worker with the store": here,
            "other worker": other,
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in addresses}
        for turn, (name, server) in itertools.product(range(turns), addresses.items()):
            taken[name].append(_append(server.url(), f"c{turn}", appends, servers))
        for name, pairs in taken.items():
            cpu_s, wall_s = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{name:22} {cpu_s * 1e3:6.2f} ms of CPU, {wall_s * 1e3:6.2f} ms")


def _append(
    url: str, conversation: str, appends: int, servers: Sequence[Server]
) -> tuple[float, float]:
    """Return the CPU time and the time of an append, in seconds."""
    with open_store(url) as store:
        say(store, conversation, "0", expected_version=ANY_VERSION)
        began = time.perf_counter()
        cpu_before = cpu_s(servers)
        for number in range(appends):
            say(store, conversation, f"{number} {'x' * 500}", expected_version=ANY_VERSION)
        return (cpu_s(servers) - cpu_before) / appends, (time.perf_counter() - began) / appends


def cpu_s(servers: Sequence[Server]) -> float:
    """Return the CPU time of this process and of all processes of servers since their start."""
    ticks = 0
    for server in servers:
        for pid in [server.pid, *server.children]:
            with contextlib.suppress(FileNotFoundError):  # the server has counted it
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15] if pid == server.pid else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


if __name__ == "__main__":
    app()
