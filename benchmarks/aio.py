"""Compare appends through ``foldlog.aio`` with synchronous appends, from one task and from many.

Both sides append the same events durably, each side to its own store. A single task and synchronous
code take turns at each event, so that a slow moment of the disk affects both. In each round, many
tasks append first, and then as many threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import foldlog
import foldlog.aio
from benchmarks.append import APPENDS, THREADS, workload
from benchmarks.frame import Question, Round, Scale
from foldlog.eventstore import Event


def one_task(scale: Scale, folder: Path) -> Iterator[Round]:
    events = workload(APPENDS if scale.name == "full" else 40)
    for n in range(scale.rounds):
        yield asyncio.run(_one_task(events, folder, n))


async def _one_task(events: Sequence[Event], folder: Path, number: int) -> Round:
    ours = raws = 0.0
    with foldlog.open(folder / f"sync-{number}.db") as histories:
        async with foldlog.aio.open(folder / f"async-{number}.db") as faces:
            history, face = histories["c1"], faces["c1"]
            for version, event in enumerate(events):
                begun = time.perf_counter()
                history.append(event, expected_version=version)
                between = time.perf_counter()
                await face.append(event, expected_version=version)
                ours += time.perf_counter() - between
                raws += between - begun
            if [event.id for event in history.events()] != [
                event.id async for event in face.events()
            ]:
                raise AssertionError("the two sides wrote different histories")
    return Round(1e6 * ours / len(events), 1e6 * raws / len(events))


def many_tasks(scale: Scale, folder: Path) -> Iterator[Round]:
    events = workload(APPENDS if scale.name == "full" else 10)
    for n in range(scale.rounds):
        yield Round(asyncio.run(_tasks(events, folder, n)), _threads(events, folder, n))


async def _tasks(events: Sequence[Event], folder: Path, number: int) -> float:
    """Return the appends per second of many tasks. Each task appends to its own history."""
    async with foldlog.aio.open(folder / f"tasks-{number}.db") as faces:

        async def write(name: str) -> None:
            face = faces[name]
            for version, event in enumerate(events):
                await face.append(event, expected_version=version)

        begun = time.perf_counter()
        await asyncio.gather(*(write(f"c{task}") for task in range(THREADS)))
        return THREADS * len(events) / (time.perf_counter() - begun)


def _threads(events: Sequence[Event], folder: Path, number: int) -> float:
    with foldlog.open(folder / f"threads-{number}.db") as histories:

        def write(name: str) -> None:
            history = histories[name]
            for version, event in enumerate(events):
                history.append(event, expected_version=version)

        threads = [
            threading.Thread(target=write, args=(f"c{thread}",)) for thread in range(THREADS)
        ]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return THREADS * len(events) / (time.perf_counter() - begun)


QUESTIONS = [
    Question("append one event, async, one task", "µs", 1.3, "at most", one_task, "the sync face"),
    Question(
        "append, async, 32 tasks",
        "appends/s",
        1.0,
        "at least",
        many_tasks,
        "the sync face, 32 threads",
    ),
]
