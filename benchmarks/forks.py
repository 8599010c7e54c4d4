"""Measure a fork at depth 1, 10 and 100: making it, opening its View, and appending to it.

A fork at depth 10 has nine forks as ancestors, and each ancestor adds some events of its own. The
baseline is a conversation with the same events, which were appended in the same way.

Opening a cold View takes half a millisecond. A loaded machine may stop the process during this
time, so the ratio of the CPU times is also measured.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.frame import Question, Round, Scale
from benchmarks.workload import history
from foldlog.eventstore import ANY_VERSION, Message, Store, open_store
from foldlog.projections import Views

DEPTHS = (1, 10, 100)
_OWN = 5
"""Events that each fork adds."""
_TIMES = 20


def _prepared(scale: Scale, folder: Path) -> str:
    """Return the URL of a store with a conversation, a chain of forks, and for each depth a
    conversation with the same events as the fork.
    """
    url = f"sqlite:///{folder / 'forks.db'}"
    with open_store(url, durability="relaxed") as store:
        if store.version("whole 100"):
            return url
        store.register(Views(store))
        store.ingest("fork 0", history(scale.usual))
        for depth in range(1, max(DEPTHS) + 1):
            parent, fork = f"fork {depth - 1}", f"fork {depth}"
            store.fork(parent, store.version(parent), fork)
            _append_own(store, fork, depth)
        for deepest in DEPTHS:
            store.ingest(f"whole {deepest}", history(scale.usual))
            for depth in range(1, deepest + 1):
                _append_own(store, f"whole {deepest}", depth)
    return url


def _append_own(store: Store, conversation: str, depth: int) -> None:
    for n in range(_OWN):
        store.append(
            conversation,
            Message(source="user", content=f"{depth} {n}"),
            expected_version=ANY_VERSION,
        )


def _opened(url: str, conversation: str, clock: Callable[[], float]) -> tuple[float, list[int]]:
    with open_store(url) as store:
        store.version("fork 0")  # the connection is open
        gc.disable()  # as timeit does: a collection might always slow the same one of the two
        try:
            start = clock()
            view = Views(store).current(conversation)
            return 1_000 * (clock() - start), [event.id for event in view]
        finally:
            gc.enable()


def opening(
    scale: Scale, folder: Path, depth: int, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Round]:
    url = _prepared(scale, folder.parent)
    for _ in range(scale.rounds):
        ours, raw = [], []
        for _ in range(_TIMES):  # in turn, because the load varies
            of_fork, of_whole = (
                _opened(url, f"{kind} {depth}", clock) for kind in ("fork", "whole")
            )
            if of_fork[1] != of_whole[1]:
                raise AssertionError("the fork and the conversation show different Views")
            ours.append(of_fork[0])
            raw.append(of_whole[0])
        yield Round(min(ours), min(raw))


def _appended(store: Store, conversation: str) -> float:
    start = time.perf_counter()
    for n in range(_TIMES):
        store.append(
            conversation, Message(source="user", content=f"{n}"), expected_version=ANY_VERSION
        )
    return 1_000_000 * (time.perf_counter() - start) / _TIMES


def appending(scale: Scale, folder: Path, depth: int) -> Iterator[Round]:
    url = _prepared(scale, folder.parent)
    with open_store(url, durability="relaxed") as store:
        store.register(Views(store))
        for number in range(scale.rounds):
            fork, whole = f"a fork {number} of {depth}", f"a fork {number} of whole {depth}"
            store.fork(f"fork {depth}", store.version(f"fork {depth}"), fork)
            store.append(
                whole, Message(source="user", content="begun"), expected_version=ANY_VERSION
            )
            yield Round(_appended(store, fork), _appended(store, whole))


def forking(scale: Scale, folder: Path, depth: int) -> Iterator[Round]:
    """Measure a fork. The baseline is the append of one event to a new conversation, which writes
    one row into each table.
    """
    url = _prepared(scale, folder.parent)
    with open_store(url, durability="relaxed") as store:
        version = store.version(f"fork {depth}")
        for number in range(scale.rounds):
            ours, raw = [], []
            for n in range(_TIMES):  # in turn, because SQLite checkpoints now and then
                name = f"{time.time_ns()} {number} {n}"
                start = time.perf_counter()
                store.fork(f"fork {depth}", version, name)
                between = time.perf_counter()
                store.append(
                    f"{name}, new", Message(source="user", content="hi"), expected_version=0
                )
                ours.append(between - start)
                raw.append(time.perf_counter() - between)
            yield Round(1_000_000 * median(ours), 1_000_000 * median(raw))


QUESTIONS = [
    *(
        Question(
            f"cold open of a fork, depth {depth}{name}",
            "ms",
            1.2 if depth < 100 else 2.0,
            "at most",
            partial(opening, depth=depth, clock=clock),
            raw="ours, one conversation",
            explained="Forks",
        )
        for name, clock in (("", time.perf_counter), (", CPU time", time.process_time))
        for depth in DEPTHS
    ),
    *(
        Question(
            f"append to a fork, depth {depth}",
            "µs",
            1.2,
            "at most",
            partial(appending, depth=depth),
            raw="ours, one conversation",
            explained="Forks",
        )
        for depth in DEPTHS
    ),
    *(
        Question(
            f"fork at depth {depth}",
            "µs",
            2.0,
            "at most",
            partial(forking, depth=depth),
            raw="ours, a new conversation",
            explained="Forks",
        )
        for depth in DEPTHS
    ),
]
