"""Measure what a store on PostgreSQL needs as it grows: ``python -m benchmarks.postgres_sizes``.

Starts a server, fills a store with conversations of ten events of 480 bytes, and prints the bytes
of an event and of a conversation, the WAL and the transaction numbers of an append, the private
memory of a server process with one store and with 64, and the events that search, verify, follow
and pg_dump read in a second of CPU time. docs/POSTGRESQL.md has these figures.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

import foldlog
from benchmarks.postgres_citus import cpu_s
from foldlog.eventstore import Message, open_store
from tests.postgres.servers import Server, new_primary

EVENTS_EACH = 10
_TEXT = "what somebody asked the agent to do, "
_WRITERS = 8
_APPENDS = 500
_NUMBER = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_WAL = "pg_current_wal_insert_lsn() - '0/0'::pg_lsn"


def message(number: int) -> Message:
    """Return a message of 480 bytes, which has a rare word."""
    text = f"rare{number} {_TEXT * 13}"
    return Message(source="user", content=text[:440])


def fill(url: str, conversations: int) -> None:
    with open_store(url) as store, ThreadPoolExecutor(_WRITERS) as pool:

        def write(number: int) -> None:
            first = number * EVENTS_EACH
            events = [message(first + n) for n in range(EVENTS_EACH)]
            store.append(f"c{number}", events, expected_version=0)

        list(pool.map(write, range(conversations)))


def private_mib(server: Server, application: str) -> float:
    """Return the private memory of the largest session of an application, in MiB."""
    sessions = server.sql(
        f"SELECT pid FROM pg_stat_activity WHERE application_name = '{application}'"
    )
    sizes = []
    for pid in sessions.split():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        private = [line.split() for line in lines if line.startswith("Private_")]
        sizes.append(sum(int(size) for _, size, _ in private) / 1_024)
    return max(sizes)


def per_second(server: Server, events: int, work: Callable[[], object]) -> str:
    """Return the events in a second of CPU time of this process, its programs and the server. Unlike
    the time on the clock, it depends little on what else the machine does.
    """

    def used_s() -> float:
        programs = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_s([server]) + programs.ru_utime + programs.ru_stime

    began = used_s()
    work()
    return f"{events / (used_s() - began):,.0f} events in a second of CPU time"


def figures(server: Server, conversations: int) -> dict[str, str]:
    url = server.url(application_name="sizes")
    open_store(url).close()
    events = conversations * EVENTS_EACH
    fill(url, conversations)
    server.sql("VACUUM ANALYZE")

    def size(expression: str) -> int:
        return int(server.sql(f"SELECT {expression}"))

    relation = "'foldlog.{}'::regclass"
    whole = size(f"pg_total_relation_size({relation.format('events')})")
    indexes = size(f"pg_indexes_size({relation.format('events')})")
    conversation = size(f"pg_total_relation_size({relation.format('conversations')})")
    found = {
        "an event": f"{whole / events:.0f} bytes, of which {indexes / events:.0f} are indexes",
        "a conversation": f"{conversation / conversations:.0f} bytes",
    }
    with open_store(url) as store:
        for turn, name in enumerate(("after a checkpoint", "later")):
            if name == "after a checkpoint":
                server.sql("CHECKPOINT")
            numbers = size(_NUMBER)
            wal = size(_WAL)
            for number in range(_APPENDS):
                version = EVENTS_EACH + turn
                store.append(f"c{number}", [message(number)], expected_version=version)
            numbers = size(_NUMBER) - numbers
            wal = size(_WAL) - wal
            found[f"an append of one event, {name}"] = (
                f"{wal / _APPENDS:,.0f} bytes of WAL, {numbers / _APPENDS:.2f} transaction numbers"
            )
        found["a server process, one store"] = f"{private_mib(server, 'sizes'):.1f} MiB"
    events = size("count(*) FROM foldlog.events")  # with the events of the appends
    with foldlog.open(url) as histories:
        search = per_second(server, events, lambda: list(histories.search("nowhere")))
        found["search without an index"] = search
        found["verify"] = per_second(server, events, lambda: list(histories.maintenance.verify()))
        found["follow from 0"] = per_second(server, events, lambda: list(histories.store.follow(0)))
    dump = ("pg_dump", "-f", "/dev/null", "postgres")
    found["pg_dump"] = per_second(server, events, lambda: server.run(*dump))
    many = server.url(application_name="many", stores="64", schema="many")
    with open_store(many) as store:
        for number in range(200):
            store.append(f"c{number}", [message(number)], expected_version=0)
        list(store.follow(0))
        found["a server process, 64 stores"] = f"{private_mib(server, 'many'):.1f} MiB"
    return found


@click.command()
@click.option(
    "--conversations",
    type=click.IntRange(min=_APPENDS),
    default=3_000,
    help="The number of conversations.",
)
def main(conversations: int) -> None:
    """Print what a store needs."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    try:
        server = new_primary(folder / "server")
        try:
            for name, figure in figures(server, conversations).items():
                print(f"{name:44} {figure}", flush=True)
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
