"""Read histories ahead in processes of their own, on all cores, while one process writes them in their order.

Reading makes most of the work of an import: parsing, decoding, packing the records, encoding the events. A history
crosses to its process as its place in a file, and comes back as the columns of its events. The writer reads the first
ones itself, and on one core all; one that is long, or whose process fails, it reads while it writes.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain
from multiprocessing import get_context
from typing import Any

from foldlog._formats.record import ImportFinding
from foldlog._formats.sources import Source
from foldlog.eventstore import Event, EventStoreError
from foldlog.eventstore.codec import encode

_WORTH_BYTES = 8 * 2**20
"""A process takes a quarter of a second to begin: less than this is read sooner without one."""
_LONGEST_BYTES = 32 * 2**20
"""The longest history that is held in memory as a whole."""

Make = Callable[[Sequence[Event]], Any]
"""Makes something of the events of a history in the process that reads them, which finds it by its name."""

_Read = tuple[list[tuple[Any, ...]], list[ImportFinding], int, Any]


def read_ahead(sources: Iterable[Source], make: Make, processes: int | None = None) -> Iterator[Source]:
    """Yield the sources in their order, most of them read already; these have what ``make`` made as ``ahead``.

    ``processes`` are as many as this process may use cores, unless given; with one, it is this one. They end with the
    iteration. Memory: a few histories for each.
    """
    number = _cores() if processes is None else processes
    ahead, read = iter(sources), 0
    for source in ahead:
        if number > 1 and (read := read + source.size_bytes) >= _WORTH_BYTES:
            yield from _read_by(number, chain((source,), ahead), make)
            return
        if _is_read_ahead(source):
            with suppress(EventStoreError):  # its import reads it, and finds out why
                source.take(*_read(source, make))
        yield source


def _is_read_ahead(source: Source) -> bool:
    return source.grown is None and source.size_bytes <= _LONGEST_BYTES


def _cores() -> int:
    """Return the number of cores that this process may use, where the system tells; else that of the machine."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _read_by(number: int, sources: Iterator[Source], make: Make) -> Iterator[Source]:
    pool = ProcessPoolExecutor(number, get_context("spawn"), _begin)
    waiting: deque[tuple[Source, Future[_Read] | None]] = deque()
    try:
        for source in sources:
            waiting.append((source, _begun(pool, source, make)))
            if len(waiting) > 3 * number:
                yield _taken(*waiting.popleft())
        while waiting:
            yield _taken(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _begun(pool: ProcessPoolExecutor, source: Source, make: Make) -> Future[_Read] | None:
    """Have a source read. Return None where the writer has to, or has: it is long, or a process was killed."""
    if not _is_read_ahead(source):
        return None
    try:
        return pool.submit(_read, source, make)
    except BrokenProcessPool:
        return None


def _taken(source: Source, reading: Future[_Read] | None) -> Source:
    """Return a source with what was read. Where a process could not read it, the writer does, and finds out why."""
    if reading is not None and reading.exception() is None:
        source.take(*reading.result())
    return source


def _read(source: Source, make: Make) -> _Read:
    """Return the columns of the events of a source, its findings, and what ``make`` makes of the events. Raises
    ``InvalidEvent`` for one that no store takes.
    """
    events = list(source.events())
    columns = list(zip(*(encode(event)[:-1] for event in events), strict=True))
    return columns, source.findings, source.findings_count, make(events)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are for the writer
    gc.set_threshold(100_000, 20, 100)  # events are many objects without cycles
