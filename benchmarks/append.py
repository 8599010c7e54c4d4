"""Measure a durable append: alone, with an idempotency key, in batches, and with many threads.

For single appends and batches, the baseline is raw sqlite3, which also encodes its events. For many
threads, the baseline is one thread of foldlog. Each append is on disk when it returns. One question
preloads a small library that makes each fsync a millisecond slower, because threads gain more from
a shared fsync if the disk is slow.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.frame import Question, Round, Scale, in_new_process
from benchmarks.raw import RawStore, body_of
from benchmarks.workload import history
from foldlog.eventstore import ANY_VERSION, NOT_RECORDED, CondensationAction, Event, open_store

APPENDS = 400
BATCH = 500
THREADS = 32


def workload(count: int) -> list[Event]:
    events = (e for e in history(4 * count + 200) if not isinstance(e, CondensationAction))
    return [replace(event, id=NOT_RECORDED, cause=None) for event in islice(events, 2, count + 2)]


def one_by_one(scale: Scale, folder: Path, keyed: bool = False) -> Iterator[Round]:
    """Append the events one by one. foldlog and raw take turns at each event, so that a slow moment
    of the disk affects both.
    """
    events = workload(APPENDS if scale.name == "full" else 40)
    for n in range(scale.rounds):
        raw = RawStore(folder / f"raw-{n}.db")
        with open_store(f"sqlite:///{folder}/ours-{n}.db") as store:
            ours = raws = 0.0
            for version, event in enumerate(events):
                key = f"turn-{version}" if keyed else None
                begun = time.perf_counter()
                raw.append("c1", version, "event", body_of(event))
                between = time.perf_counter()
                store.append("c1", event, expected_version=version, idempotency_key=key)
                ended = time.perf_counter()
                raws += between - begun
                ours += ended - between
            _compare(store.version("c1"), len(events))
        raw.close()
        yield Round(1e6 * ours / len(events), 1e6 * raws / len(events))


def batches(scale: Scale, folder: Path, **how: Any) -> Iterator[Round]:
    """Append batches. The time includes a checkpoint of each write-ahead log, because raw makes
    checkpoints during its commits, and foldlog makes them in the background. ``how`` contains
    options for foldlog's store.
    """
    batch = workload(BATCH)
    count = 10 if scale.name == "full" else 2
    for n in range(scale.rounds):
        raw = RawStore(folder / f"raw-{n}.db")
        with open_store(f"sqlite:///{folder}/ours-{n}.db", **how) as store:
            ours = raws = 0.0
            for nth in range(count):
                begun = time.perf_counter()
                raw.append_batch(
                    ("c1", nth * BATCH + k, "event", body_of(event))
                    for k, event in enumerate(batch)
                )
                between = time.perf_counter()
                store.append("c1", batch, expected_version=nth * BATCH)
                ended = time.perf_counter()
                raws += between - begun
                ours += ended - between
            raws += _written_back(folder / f"raw-{n}.db")
            ours += _written_back(folder / f"ours-{n}.db")
            _compare(store.version("c1"), count * BATCH)
        raw.close()
        yield Round(count * BATCH / ours, count * BATCH / raws)


def _written_back(path: Path) -> float:
    """Checkpoint the rest of the write-ahead log, and return the seconds that this took."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        begun = time.perf_counter()
        while True:
            _, pages, written_pages = connection.execute("PRAGMA wal_checkpoint").fetchone()
            if pages == written_pages:
                return time.perf_counter() - begun
            time.sleep(0.000_1)  # a checkpoint of ours is in progress


def group_commit(scale: Scale, folder: Path, slow_fsync: bool = False) -> Iterator[Round]:
    """Measure the appends a second of many threads, and of one thread. Each thread appends to its
    own conversation.
    """
    appends = 2_000 if scale.name == "full" else 200
    environment = _slow_fsync(folder) if slow_fsync else {}
    for n in range(scale.rounds):
        rates = []
        for threads in (THREADS, 1):
            path = folder / f"{threads}-{n}.db"
            share = appends if threads > 1 else appends // 5
            measured = in_new_process(
                "benchmarks.append", str(path), str(threads), str(share), environment=environment
            )
            rates.append(measured["appends_per_s"])
        yield Round(*rates)


def _slow_fsync(folder: Path) -> dict[str, str]:
    """Return environment variables that make fsync and fdatasync take a millisecond longer."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError(
            "a C compiler is needed to slow fsync down for this question: install gcc"
        )
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text("""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        static void late(void) { usleep(1000); }
        int fsync(int fd) { static int (*f)(int); if (!f) f = dlsym(RTLD_NEXT, "fsync"); late(); return f(fd); }
        int fdatasync(int fd) { static int (*f)(int); if (!f) f = dlsym(RTLD_NEXT, "fdatasync"); late(); return f(fd); }
        """)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True
    )
    return {"LD_PRELOAD": str(library)}


def _compare(version: int, expected: int) -> None:
    if version != expected:
        raise AssertionError(f"{version} events were appended, not {expected}")


def appends_per_second(path: str, threads: int, appends: int) -> float:
    events = workload(100)
    with open_store(f"sqlite:///{path}") as store:
        for n in range(threads):
            store.append(f"c{n}", events[0], expected_version=0)

        def write(conversation: str, count: int) -> None:
            for n in range(count):
                store.append(conversation, events[n % len(events)], expected_version=ANY_VERSION)

        writers = [
            threading.Thread(target=write, args=(f"c{n}", appends // threads))
            for n in range(threads)
        ]
        begun = time.perf_counter()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        seconds = time.perf_counter() - begun
        _compare(
            sum(store.version(f"c{n}") - 1 for n in range(threads)), appends // threads * threads
        )
    return appends // threads * threads / seconds


def _main(arguments: Sequence[str]) -> None:
    path, threads, appends = arguments
    sys.stdout.write(
        json.dumps({"appends_per_s": appends_per_second(path, int(threads), int(appends))})
    )


QUESTIONS = [
    Question("append one event, durable", "µs", 1.15, "at most", one_by_one),
    Question(
        "append one event with an idempotency key",
        "µs",
        1.25,
        "at most",
        partial(one_by_one, keyed=True),
    ),
    Question(
        f"append batches of {BATCH}", "events/s", 0.85, "at least", batches, explained="A batch"
    ),
    Question(
        f"{THREADS} threads, each append durable",
        "appends/s",
        2.5,
        "at least",
        group_commit,
        raw="ours, one thread",
    ),
    Question(
        f"{THREADS} threads where fsync takes 1 ms more",
        "appends/s",
        8.0,
        "at least",
        partial(group_commit, slow_fsync=True),
        raw="ours, one thread",
        explained="A batch",
    ),
]

if __name__ == "__main__":
    _main(sys.argv[1:])
