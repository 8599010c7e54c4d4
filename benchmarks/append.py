"""Measure a durable append: alone, in batches, with many threads, and through ``foldlog.aio``.

Each append is on disk when it returns, so the clock of single appends is elapsed time, and the two
sides take turns at every few events: a slow moment of the disk then affects both. The clock of
batches is CPU time. It includes a checkpoint of each write-ahead log, because raw makes checkpoints
during its commits, and foldlog makes them in the background.

A single append is compared with a program by hand that keeps the same promises, and with the
recorder of the eventsourcing library, which makes no hashes and checksums, takes no lock between
processes, and does not check that the file still has its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from fcntl import LOCK_EX, LOCK_UN, flock
from functools import partial
from itertools import count, islice
from pathlib import Path
from uuid import uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore
from msgspec.structs import replace

import foldlog.aio
from benchmarks.frame import Question, Round, Scale, by_turns, in_new_process
from benchmarks.raw import RawStore, body_of, identity, with_proofs
from benchmarks.workload import history
from foldlog.eventstore import (
    ANY_VERSION,
    NOT_RECORDED,
    CondensationAction,
    Event,
    KeyRing,
    Store,
    open_store,
)

BATCH = 500
THREADS = 32
KEY = "11" * 32
_TURN = 10
_TURNS = 20
_BATCHES = 8
Append = Callable[[int, Event], object]
"""Appends an event to the conversation, which is at the given version."""


def workload(count: int, seed: int = 7) -> list[Event]:
    events = (
        event
        for event in history(4 * count + 200, seed=seed)
        if type(event) is not CondensationAction
    )
    return [replace(event, id=NOT_RECORDED, cause=None) for event in islice(events, 2, count + 2)]


def _appending(append: Append, events: list[Event]) -> Callable[[], int]:
    """Return a side that appends the next events, and returns the version."""
    version = 0

    def take_turn() -> int:
        nonlocal version
        for event in events[version : version + _TURN]:
            append(version, event)
            version += 1
        return version

    return take_turn


def careful_append(path: Path) -> Append:
    """Append as foldlog does: under a lock of writers, to a file that still has its name, with an
    index of Views, two hashes and two checksums.
    """
    raw = RawStore(path)
    raw.db.execute("CREATE INDEX views ON events (conversation, id) WHERE kind = 'event'")
    lock = os.open(f"{path}-queue", os.O_CREAT | os.O_RDWR)
    opened = identity(path)

    def append(version: int, event: Event) -> None:
        bodies = with_proofs([body_of(event)])
        flock(lock, LOCK_EX)
        raw.db.execute("BEGIN IMMEDIATE")
        if identity(path) != opened:
            raise AssertionError("the file has been replaced")
        raw.append("c1", version, next(bodies))
        raw.db.execute("COMMIT")
        flock(lock, LOCK_UN)

    return append


def library_append(path: Path) -> Append:
    """Append with the recorder of the eventsourcing library, which checks versions."""
    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path)))
    recorder.create_table()
    originator = uuid4()
    return lambda version, event: recorder.insert_events(
        [StoredEvent(originator, version, type(event).__name__, body_of(event))]
    )


def one_by_one(baseline: Callable[[Path], Append], scale: Scale, folder: Path) -> Iterator[Round]:
    rounds = _TURNS * scale.rounds
    events = workload(_TURN * (rounds + 1))
    append = baseline(folder / "raw.db")
    with open_store(f"sqlite:///{folder}/ours.db") as store:
        ours = _appending(
            lambda version, event: store.append("c1", event, expected_version=version), events
        )
        raw = _appending(append, events)
        yield from by_turns(scale, ours, raw, count=_TURN, clock=time.perf_counter, rounds=rounds)


def one_task(scale: Scale, folder: Path) -> Iterator[Round]:
    rounds = _TURNS * scale.rounds
    events = workload(_TURN * (rounds + 1))
    with ExitStack() as opened, asyncio.Runner() as runner:
        history = opened.enter_context(foldlog.open(folder / "executor.db"))["c1"]
        face = runner.run(_open_face(folder / "async.db"))
        loop = runner.get_loop()
        sides = [
            partial(_append_in_task, append, runner, events, count())
            for append in (
                face["c1"].append,
                lambda event, expected_version: loop.run_in_executor(
                    None, partial(history.append, event, expected_version=expected_version)
                ),
            )
        ]
        yield from by_turns(
            scale,
            *sides,
            count=_TURN,
            clock=time.perf_counter,
            rounds=rounds,
        )
        runner.run(face.close())


def _append_in_task(
    append: Callable[..., Awaitable[object]],
    runner: asyncio.Runner,
    events: list[Event],
    turns: Iterator[int],
) -> int:
    first = next(turns) * _TURN

    async def take_turn() -> int:
        for version, event in enumerate(events[first : first + _TURN], first):
            await append(event, expected_version=version)
        return first + _TURN

    return runner.run(take_turn())


async def _open_face(path: Path) -> foldlog.aio.Histories:
    return await foldlog.aio.open(path).__aenter__()


def batches(scale: Scale, folder: Path) -> Iterator[Round]:
    events = workload(BATCH)
    raw = RawStore(folder / "raw.db")
    number = 0

    def by_hand() -> int:
        nonlocal number
        for _ in range(_BATCHES):
            raw.append_batch("c1", number, with_proofs(map(body_of, events)))
            number += BATCH
        _write_back(folder / "raw.db")
        return number

    with open_store(f"sqlite:///{folder}/ours.db") as store:
        ours = partial(_append_batches, store, folder / "ours.db", events)
        yield from by_turns(scale, ours, by_hand, count=_BATCHES * BATCH)
    raw.close()


def encrypted_batches(scale: Scale, folder: Path) -> Iterator[Round]:
    events = workload(BATCH)
    url = "sqlite:///{}"
    paths = [folder / "small.db", folder / "plain.db"]
    with (
        open_store(url.format(paths[0]), keys=KeyRing(KEY), compression="zstd") as small,
        open_store(url.format(paths[1])) as plain,
    ):
        sides = [
            partial(_append_batches, store, path, events)
            for store, path in zip((small, plain), paths, strict=True)
        ]
        yield from by_turns(scale, *sides, count=_BATCHES * BATCH)


def _append_batches(store: Store, path: Path, events: list[Event]) -> int:
    for _ in range(_BATCHES):
        store.append("c1", events, expected_version=ANY_VERSION)
    _write_back(path)
    return store.version("c1")


def _write_back(path: Path) -> None:
    """Checkpoint the rest of the write-ahead log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        while True:
            _, pages, written_pages = connection.execute("PRAGMA wal_checkpoint").fetchone()
            if pages == written_pages:
                return
            time.sleep(0.000_1)  # a checkpoint of ours is in progress


def group_commit(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the appends of many threads, each to its own conversation, and of one thread."""
    appends = 2_000 if scale.name == "full" else 200
    for n in range(scale.rounds):
        seconds = [
            in_new_process(
                "benchmarks.append", f"{folder}/{threads}-{n}.db", str(threads), str(appends)
            )["seconds"]
            for threads in (THREADS, 1)
        ]
        yield Round(*seconds)


def _append_with_threads(path: str, threads: int, appends: int) -> float:
    """Return the seconds of an append."""
    events = workload(100)
    each = appends // threads
    with open_store(f"sqlite:///{path}") as store:

        def write(conversation: str) -> None:
            for n in range(each):
                store.append(conversation, events[n % 100], expected_version=ANY_VERSION)

        writers = [threading.Thread(target=write, args=(f"c{n}",)) for n in range(threads)]
        store.append("warm", events[0], expected_version=0)
        begun = time.perf_counter()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        seconds = time.perf_counter() - begun
        if any(store.version(f"c{n}") != each for n in range(threads)):
            raise AssertionError("a thread has lost an append")
    return seconds / (each * threads)


QUESTIONS = [
    Question(
        "append one event, durable",
        "µs",
        1.25,
        partial(one_by_one, careful_append),
        "raw, the same checks",
    ),
    Question(
        "append one event, beside a mapper",
        "µs",
        1.0,
        partial(one_by_one, library_append),
        "eventsourcing's recorder and msgspec",
    ),
    Question("append one event, async", "µs", 1.1, one_task, "the sync face in asyncio's executor"),
    Question(
        f"append batches of {BATCH}", "events/s", 0.6, batches, "raw, two hashes, two checksums"
    ),
    Question(
        f"batches of {BATCH}, encrypted and compressed",
        "events/s",
        0.45,
        encrypted_batches,
        "ours, plain",
    ),
    Question(
        f"{THREADS} threads, each append durable",
        "appends/s",
        2.5,
        group_commit,
        "ours, one thread",
    ),
]

if __name__ == "__main__":
    path, threads, appends = sys.argv[1:]
    seconds = _append_with_threads(path, int(threads), int(appends))
    sys.stdout.write(json.dumps({"seconds": seconds}))
