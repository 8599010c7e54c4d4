"""Measure lists in a store of 20,000 histories: the histories of a user, the start of the web page,
and totals.

For the histories of a user, the baseline is a table of sessions with an index by user and last
activity. The other questions compare the CPU time with the time that a person may wait.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import foldlog
from benchmarks.frame import Question, Round, Scale, Timed, by_turns
from foldlog._app.server.conversations import ServedConversations
from foldlog._reports.figures.documents import collect_stats
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.prices import Prices
from foldlog.eventstore import Message, Store, open_store
from foldlog.projections import Views

LISTED = 200
_WAIT_S = 0.5
"""How long a person may wait for a list of all conversations."""


def listing(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open the store and list a user's histories, in a process that has done this before."""
    ours_url, raw_path = _stores(scale, folder)
    statement = (
        "SELECT id, created_at, updated_at, attributes FROM sessions WHERE user = ? ORDER BY"
        " updated_at DESC LIMIT ?"
    )

    def ours() -> Timed:
        with foldlog.open(ours_url) as histories:
            histories.list({"user": "u0"}, limit=1, age_max_s=3600)
            begun = time.process_time()
            page = histories.list({"user": "u0"}, limit=LISTED, age_max_s=3600)
            seconds = time.process_time() - begun
        return Timed(seconds, [row.attributes for row in page.conversations])

    def by_hand() -> Timed:
        with closing(sqlite3.connect(raw_path, isolation_level=None)) as db:
            db.execute("SELECT id FROM sessions WHERE user = ? LIMIT 1", ("u0",)).fetchall()
            begun = time.process_time()
            rows = [json.loads(row[3]) for row in db.execute(statement, ("u0", LISTED))]
            return Timed(time.process_time() - begun, rows)

    yield from by_turns(
        scale,
        ours,
        by_hand,
        same=lambda ours, raw: ours.answer == raw.answer,
        rounds=3 * scale.rounds,
    )


def _stores(scale: Scale, folder: Path) -> tuple[str, Path]:
    users = max(scale.conversations // LISTED, 1)
    ours = f"sqlite:///{folder}/ours.db"
    raw = folder / "raw.db"
    rows = []
    with foldlog.open(ours, durability="relaxed") as histories:
        for n in range(scale.conversations):
            user = f"u{n % users}"
            title = f"conversation number {n}"
            attributes = {"app": "chat", "user": user, "title": title}
            histories.create(f"c{n}", attributes)
            rows.append((f"c{n}", user, float(n), float(n), json.dumps(attributes)))
        histories.list(age_max_s=0, limit=1)
    with closing(sqlite3.connect(raw)) as db:
        db.execute(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, user TEXT, created_at REAL, updated_at"
            " REAL, attributes TEXT)"
        )
        db.execute("CREATE INDEX sessions_of_a_user ON sessions (user, updated_at)")
        db.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", rows)
        db.commit()
    return ours, raw


def figures(answer: Callable[[Store], object], scale: Scale, folder: Path) -> Iterator[Round]:
    """Open a store with stored figures, and answer a question about all conversations."""
    url = f"{_make_counted_store(folder.parent, scale.conversations)}?mode=ro"
    for number in range(scale.rounds + 1):
        with open_store(url) as store:
            begun = time.process_time()
            answer(store)
            ended = time.process_time()
        if number:  # the first one compiled our code
            yield Round(ended - begun, _WAIT_S)


def _make_counted_store(folder: Path, count: int) -> str:
    """Return the URL of a store with ``count`` conversations that call models, and with their
    stored figures. The store is made if it does not exist.
    """
    path = folder / f"counted-{count}.db"
    url = f"sqlite:///{path}"
    if path.exists():
        return url
    with foldlog.open(url, durability="relaxed") as histories:
        for number in range(count):
            usage = {"prompt_tokens": 1_000 + number % 500, "completion_tokens": 50}
            meta = {"model": f"model-{number % 3}", "usage": usage, "cost": 0.01}
            request = Message(source="user", content=f"task {number} of the list")
            histories[f"{number * 48_271 % 100_003:06}-{number}"].append(
                [request, Message(source="agent", content="done", meta=meta)]
            )
        for _ in FiguresOfStore(histories.store).of(histories.store.iter_conversations()):
            pass
    return url


def _home(store: Store) -> object:
    with closing(ServedConversations(store)) as served:
        return served.list(), served.fleet("")


def _stats(store: Store) -> object:
    return collect_stats(store, None, views=Views(store), prices=Prices())


_WAIT = "0.5 s"
QUESTIONS = [
    Question(
        f"list {LISTED} histories of a user", "ms CPU", 3.0, listing, "an indexed SELECT by hand"
    ),
    Question(
        "the page's home, 20,000 conversations", "ms CPU", 1.0, partial(figures, _home), _WAIT
    ),
    Question("stats, 20,000 conversations", "ms CPU", 1.0, partial(figures, _stats), _WAIT),
]
