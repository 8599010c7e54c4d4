"""Test a store on Citus under load: ``python -m benchmarks.postgres_citus``.

The program starts a coordinator and two workers with Citus, and a store in four schemas
(``?stores=4``). Writers append without a pause through the coordinator, and a follower reads, while
each schema is moved between the workers twice, and a worker is killed (SIGKILL to all its
processes) and started again after every second move. The checks are the checks of
``benchmarks.postgres_faults``.

Citus must be installed for the PostgreSQL that ``$FOLDLOG_POSTGRES_BIN`` names.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.postgres_clusters import Fault
from benchmarks.postgres_faults import run
from tests.postgres.servers import Server

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

    def move(self, schema: str) -> None:
        """Move a schema to the other worker, while it is used. Writers wait: some tables have no
        primary key, so Citus cannot replicate their changes in the meantime.
        """
        port = int(
            self.coordinator.sql(
                f"SELECT nodeport FROM citus_shards WHERE table_name::text = '{schema}.events'"
            )
        )
        [target] = [worker for worker in self.workers if worker.port != port]
        self.coordinator.sql(
            f"SELECT citus_schema_move('{schema}', '127.0.0.1', {target.port}, 'block_writes')"
        )

    def stop(self) -> None:
        for server in (self.coordinator, *self.workers):
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


def main(
    events: Annotated[
        int, typer.Option(help="Run until this number of events is acknowledged.")
    ] = 10_000,
    every_s: Annotated[
        float, typer.Option(help="Seconds of undisturbed work between two faults.")
    ] = 3.0,
) -> None:
    """Move each schema twice, and kill a worker four times."""
    if not run("moves", moving, events, MOVES, every_s, encrypted=False):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
