"""Compute the clusters and the cost of a very large store: ``python -m benchmarks.postgres_scale``.

The program loads a sample into a real server, and measures the bytes of an event in the table, in
each index and in the write-ahead log. From these figures it computes the disks, clusters, depth of
indexes and money for 10^9 conversations with 10^12 events. Two results come from a simulation: how
evenly a hash spreads histories of very different lengths over the clusters, and how much of an
index the active conversations write to. ``docs/internals/SIZES.md`` has the plan.
"""

from __future__ import annotations

import hashlib
import math
import random
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.workload import history
from foldlog.eventstore import open_store
from tests.postgres.servers import Server, new_primary

CONVERSATIONS, EVENTS = 10**9, 10**12
YEAR_S = 31_536_000
YEARS = 3
PEAK = 4
"""The rate in the busiest hour, divided by the average rate."""
DISK_TB = 16
"""The disk of one cluster, which is filled to 80 %."""
STORAGE_PRICE, NODE_PRICE, COPIES = 0.115, 1.2, 2
"""The price of a gigabyte for a month and of an 8-core node for an hour, in US dollars, and the
number of servers that store each event.
"""
PAGE = 8_192
BATCH = 2
"""The number of events in an append: an action and its result."""


class Measured(NamedTuple):
    """The measured bytes for each event. ``indices`` maps the name of each index to the bytes of
    its entry.
    """

    table: float
    indices: dict[str, float]
    log: float

    @property
    def total(self) -> float:
        return self.table + sum(self.indices.values())


def measure(conversations: int) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    server = new_primary(folder / "primary", {"max_wal_size": "8GB", "checkpoint_timeout": "1h"})
    try:
        return _measure(server, conversations)
    finally:
        server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def _measure(server: Server, conversations: int) -> Measured:
    chance = random.Random(7)
    events = 0
    server.sql("CHECKPOINT")
    with open_store(server.url(schema="s", durability="relaxed")) as store:
        before = int(server.sql("SELECT pg_current_wal_lsn() - '0/0'"))
        for n in range(conversations):
            length = min(length_of(chance), 2_000)
            waiting = list(history(length))
            for start in range(0, length, BATCH):
                batch = waiting[start : start + BATCH]
                store.append(f"conversation-{n:08}", batch, expected_version=start)
            events += length
        log = (int(server.sql("SELECT pg_current_wal_lsn() - '0/0'")) - before) / events
    server.sql("VACUUM ANALYZE")
    sizes = dict(
        line.split("|")
        for line in server.sql(
            "SELECT relname, pg_relation_size(oid) +"
            " coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0) FROM pg_class WHERE"
            " relnamespace = 's'::regnamespace AND relkind IN ('r', 'i')"
        ).splitlines()
    )
    indices = {
        name: int(size) / events for name, size in sizes.items() if name.startswith("events_")
    }
    print(f"sample: {conversations:,} conversations, {events:,} events")
    return Measured(int(sizes["events"]) / events, indices, log)


def length_of(chance: random.Random) -> int:
    """Return a random length of a conversation. The distribution is log-normal, with a mean of
    1,000 events and a median of some 220. One conversation in a thousand has more than 40,000
    events.
    """
    return max(1, int(math.exp(chance.gauss(math.log(220), 1.74))))


def spread(clusters: int, conversations: int) -> float:
    """Return the size of the fullest cluster divided by the average size, if a hash of the id
    chooses the cluster of a conversation. A real cluster has 10^9 / ``clusters`` conversations,
    more than in this simulation, so its size is nearer to the average.
    """
    chance = random.Random(11)
    load = [0] * clusters
    for n in range(conversations):
        digest = hashlib.blake2b(b"conversation-%d" % n, digest_size=8).digest()
        load[int.from_bytes(digest) % clusters] += length_of(chance)
    return max(load) / statistics.mean(load)


def touched(active: int, entry: float) -> float:
    """Return the size of the part of an index to which growing conversations write: the leaf pages
    with the entries of ``active`` conversations, in the index by (conversation, id). The
    conversations began at different times, so their entries are scattered among the entries of
    other conversations.
    """
    chance = random.Random(13)
    span = active * 40  # of the conversations of the last days, one in forty still grows
    pages = {
        int(chance.random() * span * 1_000 * entry / PAGE) for _ in range(min(active, 200_000))
    }
    return len(pages) / min(active, 200_000) * active * PAGE


def depth(entries: float, entry: float) -> int:
    fan_out = PAGE * 0.7 / entry
    return max(1, math.ceil(math.log(entries / fan_out, fan_out))) + 1


def report(measured: Measured) -> None:
    print(
        f"an event on disk: {measured.total:,.0f} bytes, {measured.table:,.0f} of them in the table"
    )
    for name, size in sorted(measured.indices.items()):
        print(f"  {name:24} {size:6.1f} bytes")
    print(
        "an event in the write-ahead log, without the full pages after each checkpoint:"
        f" {measured.log:,.0f} bytes\n"
    )
    disk = EVENTS * measured.total
    clusters = math.ceil(disk / (DISK_TB * 1e12 * 0.8))
    rate = EVENTS / (YEARS * 365 * 86_400)
    key = measured.indices["events_pkey"]
    print(
        f"10^12 events: {disk / 1e15:,.2f} PB on each of {COPIES} servers; {clusters} clusters of"
        f" {DISK_TB} TB"
    )
    print(
        f"{rate:,.0f} events a second over {YEARS} years, {rate * PEAK:,.0f} at the peak: "
        f"{rate * PEAK / clusters:,.0f} for a cluster"
    )
    print(f"log: {rate * PEAK * measured.log / clusters / 1e6:,.1f} MB/s for a cluster at the peak")
    # A position has 63 bits, and the number of its transaction is above the lowest 20. JavaScript
    # can hold 53 bits exactly.
    print(
        f"the 2^43 transaction numbers last {2**43 / (rate * PEAK / clusters) / YEAR_S:,.0f}"
        f" years; positions exceed 2^53 after {2**33 / (rate / clusters) / YEAR_S:,.1f} years"
    )
    levels = depth(EVENTS / clusters, key)
    print(
        f"index by (conversation, id): {levels} levels in a cluster, {depth(1e9, key)} in a"
        " cluster of 10^9 events"
    )
    for active in (10_000, 100_000, 1_000_000):
        print(
            f"  {active:9,} growing conversations write to {touched(active, key) / 1e9:5.2f} GB"
            " of the index's leaf pages"
        )
    print(
        f"fullest cluster over the average, {clusters} clusters and 2 million conversations: "
        f"{spread(clusters, 2_000_000):.3f}"
    )
    storage = disk / 1e9 * COPIES * STORAGE_PRICE
    nodes = clusters * COPIES * NODE_PRICE * 730
    print(
        f"\ncost of a month with all events: ${storage:,.0f} for storage, ${nodes:,.0f} for servers"
    )
    million = EVENTS / 1e6
    print(
        f"for a million events: ${storage / million:.4f} a month to keep, "
        f"${nodes * YEARS * 12 / million:.4f} once for servers over {YEARS} years"
    )


def main(
    conversations: Annotated[
        int, typer.Option(help="Number of conversations in the sample.")
    ] = 300,
) -> None:
    """Measure the sample, and print the computed and simulated figures."""
    report(measure(conversations))


if __name__ == "__main__":
    typer.run(main)
