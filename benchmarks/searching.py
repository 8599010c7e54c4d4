"""What does a search cost beside the bare query of FTS5, and does the index keep up with a writer that never pauses?"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from foldlog._follower import Follower
from foldlog._search import SearchIndex
from foldlog.eventstore import Message, open_store

_VOCABULARY = 5_000
_WORDS = 60
_QUERIES = ("needle", "word17", "word17 word99")
_REPEATED = 10
_BARE = "SELECT rowid, snippet(words, 0, '[', ']', '…', 24), rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT 20"
_WRITER = """
import sys, time
from benchmarks.searching import texts
from foldlog.eventstore import ANY_VERSION, Message, open_store
said, events, batch = texts(2_000), int(sys.argv[2]), 20
with open_store("sqlite:///" + sys.argv[1]) as store:
    begun = time.perf_counter()
    for first in range(0, events, batch):
        some = [Message(source="user", content=said[n % len(said)]) for n in range(first, first + batch)]
        store.append(f"c{first % 7}", some, expected_version=ANY_VERSION)
    print(time.perf_counter() - begun)
"""


def texts(count: int) -> list[str]:
    """Return texts of random words, the same ones each time; every hundredth has a needle."""
    chance = random.Random(1)
    vocabulary = [f"word{n}" for n in range(_VOCABULARY)]
    return [
        " ".join(chance.choices(vocabulary, k=_WORDS)) + (" needle" if chance.random() < 0.01 else "")
        for _ in range(count)
    ]


def searches(scale: Scale, folder: Path) -> Iterator[Round]:
    """The same queries through the index and on its FTS5 table, each a few times."""
    path, events = folder / "store.db", scale.usual
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        said = texts(events)
        for first in range(0, events, 1_000):
            some = [Message(source="user", content=text) for text in said[first : first + 1_000]]
            store.append(f"c{first}", some, expected_version=0)
        with SearchIndex(store) as index, closing(sqlite3.connect(f"{path}.search")) as connection:
            index.catch_up()
            for _ in range(scale.rounds):
                ours = _spent(lambda: [index.search(query) for query in _QUERIES])
                bare = _spent(lambda: [connection.execute(_BARE, (_match(query),)).fetchall() for query in _QUERIES])
                yield Round(1_000 * ours / len(_QUERIES), 1_000 * bare / len(_QUERIES))


def _match(query: str) -> str:
    return " AND ".join(f'"{word}"' for word in query.split())


def _spent(work: object) -> float:
    begun = time.perf_counter()
    for _ in range(_REPEATED):
        work()  # type: ignore[operator]
    return (time.perf_counter() - begun) / _REPEATED


def following(scale: Scale, folder: Path) -> Iterator[Round]:
    """Events that the index has when a writer in another process has ended, against those that it wrote; the rest it
    has within a second.
    """
    events = 40_000 if scale.name == "full" else 400
    for number in range(min(3, scale.rounds)):
        path = folder / f"followed-{number}.db"
        open_store(f"sqlite:///{path}").close()
        with open_store(f"sqlite:///{path}") as store, Follower(store, SearchIndex(store)) as follower:
            command = [sys.executable, "-c", _WRITER, str(path), str(events)]
            subprocess.run(command, check=True, capture_output=True)
            with closing(sqlite3.connect(f"{path}.search")) as connection:
                (indexed,) = connection.execute("SELECT count(*) FROM texts").fetchone()
            follower.catch_up(60)
            yield Round(indexed, events)


QUESTIONS = [
    Question("search 100,000 events", "ms", 2.0, "at most", searches, raw="FTS5 query with snippets"),
    Question(
        "indexed when a writer of batches of 20 ends",
        "events",
        0.9,
        "at least",
        following,
        raw="written",
        explained="Following a writer",
    ),
]
