"""Measure lists in a store of 100,000 histories: the 200 histories of a user, a list sorted by a
figure, and the start of the web page.

For the histories of a user, the baseline is a table of sessions with an index by user and last
activity. The figures are user and system CPU time, because elapsed times depend on the load of the
machine. The other lists read stored figures of 100,000 conversations. Making the store for these
lists takes two minutes, once.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import foldlog
from benchmarks.frame import Question, Round, Scale
from foldlog._figures.prices import Prices
from foldlog._figures.shown import collect_stats, document_of
from foldlog._figures.stored import FiguresOfStore
from foldlog._web.conversations import ServedConversations
from foldlog.eventstore import Message, Store, open_store
from foldlog.projections import Views

LISTED = 200
_SHOWN = 20
_WAIT_MS = 1_000
"""How long a user may wait for a list of all conversations."""


def listing(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open the store and list a user's histories, in a process that has done this before."""
    ours, raw = _stores(scale, folder)
    statement = (
        "SELECT id, created_at, updated_at, attributes FROM sessions WHERE user = ? ORDER BY"
        " updated_at DESC LIMIT ?"
    )
    for round_number in range(3 * scale.rounds + 1):
        with foldlog.open(ours) as histories:
            histories.list({"user": "u0"}, limit=1, age_max_s=3600)
            begun = time.process_time()
            page = histories.list({"user": "u0"}, limit=LISTED, age_max_s=3600)
            between = time.process_time()
        db = sqlite3.connect(raw, isolation_level=None)
        db.execute("SELECT id FROM sessions WHERE user = ? LIMIT 1", ("u0",)).fetchall()
        middle = time.process_time()
        rows = [
            (*row, json.loads(attributes))
            for *row, attributes in db.execute(statement, ("u0", LISTED))
        ]
        ended = time.process_time()
        db.close()
        if [conversation.attributes for conversation in page.conversations] != [
            row[3] for row in rows
        ]:
            raise AssertionError("the two sides list different histories")
        if round_number:  # the first one compiled our code
            yield Round(1_000 * (between - begun), 1_000 * (ended - middle))


def _stores(scale: Scale, folder: Path) -> tuple[str, Path]:
    count = min(100_000, scale.usual)
    users = max(count // LISTED, 1)
    ours, raw = f"sqlite:///{folder}/ours.db", folder / "raw.db"
    db = sqlite3.connect(raw, isolation_level=None)
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, user TEXT, created_at REAL, updated_at REAL,"
        " attributes TEXT)"
    )
    db.execute("CREATE INDEX sessions_of_a_user ON sessions (user, updated_at)")
    db.execute("BEGIN")
    with foldlog.open(ours, durability="relaxed") as histories:
        for n in range(count):
            attributes = {
                "app": "chat",
                "user": f"u{n % users}",
                "title": f"conversation number {n}",
            }
            histories.create(f"c{n}", attributes)
            row = f"c{n}", attributes["user"], float(n), float(n), json.dumps(attributes)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
        histories.list(age_max_s=0, limit=1)
    db.execute("COMMIT")
    db.close()
    return ours, raw


# -- figures of all conversations
# -------------------------------------------------------------------------------------


def figures(answer: Callable[[Store], object], scale: Scale, folder: Path) -> Iterator[Round]:
    """Open a store with stored figures, and answer a question about all conversations."""
    url = f"{_counted(folder.parent, min(100_000, scale.usual))}?mode=ro"
    for round_number in range(scale.rounds + 1):
        with open_store(url) as store:
            begun = time.process_time()
            answer(store)
            ended = time.process_time()
        if round_number:  # the first one compiled our code
            yield Round(1_000 * (ended - begun), _WAIT_MS)


def _counted(folder: Path, count: int) -> str:
    """Return the URL of a store with ``count`` conversations that call models, and with their
    stored figures. The store is made if it does not exist.
    """
    path = folder / f"counted-{count}.db"
    url, is_made = f"sqlite:///{path}", path.exists()
    with foldlog.open(url, durability="relaxed") as histories:
        for number in () if is_made else range(count):
            usage = {"prompt_tokens": 1_000 + number % 500, "completion_tokens": 50}
            meta = {"model": f"model-{number % 3}", "usage": usage, "cost": 0.01}
            request = Message(source="user", content=f"task {number} of the list")
            histories[f"{number * 48_271 % 100_003:06}-{number}"].append(
                [request, Message(source="agent", content="done", meta=meta)]
            )
        for _ in FiguresOfStore(histories.store).of(histories.store.iter_conversations()):
            pass
    return url


def _last_active(store: Store) -> object:
    page = FiguresOfStore(store).page(sort="activity", limit=_SHOWN)
    return [document_of(*row, Prices()) for row in page.rows]


def _home(store: Store) -> object:
    served = ServedConversations(store)
    try:
        return served.list(), served.fleet("")
    finally:
        served.close()


def _stats(store: Store) -> object:
    return collect_stats(store, None, views=Views(store), prices=Prices())


QUESTIONS = [
    Question(
        "list 200 histories of a user, of 100,000",
        "ms CPU",
        3.0,
        "at most",
        listing,
        "an indexed SELECT by hand",
        "Tails and lists",
    ),
    *(
        Question(
            f"{name}, 100,000 conversations",
            "ms CPU",
            1.0,
            "at most",
            partial(figures, answer),
            raw="1 s",
            explained="Lists of many conversations",
        )
        for name, answer in (
            ("the last 20 active", _last_active),
            ("the page's home", _home),
            ("stats", _stats),
        )
    ),
]
