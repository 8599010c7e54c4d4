"""Measure how long a View takes to open, now or at a past version, of a short or a long history, or
of a fork.

Most openings run in a new process, and the clock is its CPU time after the imports.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import foldlog
from benchmarks.append import KEY
from benchmarks.frame import (
    Question,
    Round,
    Scale,
    Timed,
    by_turns,
    in_new_process,
    not_compared,
)
from benchmarks.prepared import checkpoint, prepare_stores
from benchmarks.raw import body_of
from benchmarks.size import make_small
from benchmarks.workload import PERIOD, history
from foldlog.eventstore import (
    ANY_VERSION,
    Message,
    Store,
    open_store,
)
from foldlog.projections import Views

_TURNS = 4
_DEPTH = 10
_OWN = 5
"""Events that each fork adds."""
_LAST = 50

Side = Callable[[], Timed]


def cold(path: Path, side: str = "ours", *version: str, **environment: str) -> Timed:
    measured = in_new_process("benchmarks.cold", side, str(path), *version, **environment)
    return Timed(measured["cpu"], measured["answer"])


def _same(ours: Timed, raw: Timed) -> bool:
    return ours.answer == raw.answer


def cold_open(length: str, scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepare_stores(folder.parent, getattr(scale, length))
    yield from _cold_turns(scale, partial(cold, stores.ours), partial(cold, stores.raw, "raw"))


def _cold_turns(
    scale: Scale, ours: Side, raw: Side, same: Callable[[Timed, Timed], bool] = _same
) -> Iterator[Round]:
    yield from by_turns(scale, ours, raw, same=same, rounds=_TURNS * scale.rounds)


def past(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open the View in the middle of the history, and the current View. The version is as far after
    a condensation as the end of the history is, so both Views have the same size.
    """
    path = prepare_stores(folder.parent, scale.usual).ours
    length = scale.usual
    version = length - PERIOD * (length // (2 * PERIOD))
    yield from _cold_turns(
        scale,
        partial(cold, path, "ours", str(version)),
        partial(cold, path),
        same=not_compared,
    )


def memory(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepare_stores(folder.parent, scale.usual)
    for _ in range(_TURNS * scale.rounds):
        sides = (("ours", stores.ours), ("raw", stores.raw))
        yield Round(
            *(in_new_process("benchmarks.cold", *map(str, side))["bytes"] for side in sides)
        )


def encrypted(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepare_stores(folder.parent, scale.usual)
    make_small(folder / "small.db", scale.usual)
    small = partial(cold, folder / "small.db", FOLDLOG_KEY=KEY)
    yield from _cold_turns(scale, small, partial(cold, stores.ours))


# -- forks


def _forks(scale: Scale, folder: Path) -> str:
    """Return the URL of a store with a chain of forks of a conversation, and with a conversation
    that has the same events as the last fork.
    """
    url = f"sqlite:///{folder / 'forks.db'}"
    with open_store(url, durability="relaxed") as store:
        if store.version("whole"):
            return url
        store.register(Views(store))
        for name in ("fork 0", "whole"):
            store.ingest(name, history(scale.usual))
        for depth in range(1, _DEPTH + 1):
            fork = f"fork {depth}"
            store.fork(f"fork {depth - 1}", store.version(f"fork {depth - 1}"), fork)
            for name in (fork, "whole"):
                for n in range(_OWN):
                    _append(store, name, f"{depth} {n}")
    return url


def _append(store: Store, conversation: str, text: str) -> None:
    message = Message(source="user", content=text)
    store.append(conversation, message, expected_version=ANY_VERSION)


def opening_forks(scale: Scale, folder: Path) -> Iterator[Round]:
    url = _forks(scale, folder.parent)

    def opened(conversation: str) -> Timed:
        with open_store(url) as store:
            store.version("fork 0")  # the connection is open
            begun = time.process_time()
            ids = [event.id for event in Views(store).current(conversation)]
            return Timed(time.process_time() - begun, ids)

    yield from by_turns(
        scale,
        partial(opened, f"fork {_DEPTH}"),
        partial(opened, "whole"),
        same=_same,
        rounds=_TURNS * scale.rounds,
    )


def forking(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure a fork. The baseline is the append of one event to a new conversation, which writes
    one row into each table.
    """
    url = _forks(scale, folder.parent)
    numbers = count()
    with open_store(url, durability="relaxed") as store:
        version = store.version(f"fork {_DEPTH}")

        def fork() -> None:
            store.fork(f"fork {_DEPTH}", version, f"another {next(numbers)}")

        def begin() -> None:
            _append(store, f"new {next(numbers)}", "hi")

        yield from by_turns(scale, fork, begin, rounds=10 * _TURNS * scale.rounds)


# -- the end of a history

_TABLES = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, body TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS messages_of_a_session ON messages (session, id);
"""


def tail(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open a store and read its last events, as the session stores of agent SDKs do."""
    url = f"sqlite:///{folder}/ours.db"
    path = folder / "raw.db"
    events = [
        Message(source="user", content=f"message {n} {'x' * 300}") for n in range(scale.usual)
    ]
    with foldlog.open(url) as histories:
        histories["c1"].append(events)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_TABLES)
        rows = [(body_of(event).decode(),) for event in events]
        db.executemany("INSERT INTO messages (session, body) VALUES ('c1', ?)", rows)
        db.commit()
    checkpoint(path)

    def ours() -> list[str]:
        with foldlog.open(url) as histories:
            return [str(event.content) for event in histories["c1"].tail(_LAST)]

    def by_hand() -> list[str]:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_TABLES)
            newest = "SELECT body FROM messages WHERE session = 'c1' ORDER BY id DESC LIMIT ?"
            items = [json.loads(body) for (body,) in db.execute(newest, (_LAST,))]
            return [item["content"] for item in reversed(items)]

    yield from by_turns(scale, ours, by_hand, rounds=10 * _TURNS * scale.rounds)


_COLD = "cold open of a View"
_CAREFUL = "raw, the same checks"
QUESTIONS = [
    Question(
        f"{_COLD}, 10,000 events",
        "ms CPU",
        1.9,
        partial(cold_open, "usual"),
        _CAREFUL,
    ),
    Question(
        f"{_COLD}, 1,000,000 events",
        "ms CPU",
        1.9,
        partial(cold_open, "longest"),
        _CAREFUL,
    ),
    Question(f"{_COLD}, encrypted and compressed", "ms CPU", 2.0, encrypted, "ours, plain"),
    Question("View at a past version", "ms CPU", 1.3, past, "ours, the current View"),
    Question("memory to open a View", "MB", 1.2, memory, _CAREFUL),
    Question(
        f"View of a fork, depth {_DEPTH}", "ms CPU", 1.3, opening_forks, "ours, one conversation"
    ),
    Question(f"fork at depth {_DEPTH}", "µs CPU", 2.0, forking, "ours, a new conversation"),
    Question(
        f"open, last {_LAST} of 10,000 events", "ms CPU", 2.2, tail, "a session store by hand"
    ),
]
