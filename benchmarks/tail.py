"""Measure reading the end of a long history, and taking back its newest event.

The baseline works like the session stores of agent SDKs. The baseline opens a table of messages
with an index by session (``CREATE TABLE IF NOT EXISTS``), selects the last rows in descending
order, and decodes them with ``json.loads``. To take an event back, it deletes the last row.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import foldlog
from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import body_of
from foldlog import History
from foldlog.eventstore import Event, Message

LAST = 50

_TABLES = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, body TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX IF NOT EXISTS messages_of_a_session ON messages (session, id);
"""


def last(scale: Scale, folder: Path, read: Callable[[History], Sequence[Event]]) -> Iterator[Round]:
    """Open the store and read the last events, in a process that has done this before."""
    ours, raw = _stores(scale, folder)
    for round_number in range(scale.rounds + 1):
        begun = time.perf_counter()
        opened = foldlog.open(ours)
        events = read(opened["c1"])
        between = time.perf_counter()
        db = _raw(raw)
        rows = db.execute(
            "SELECT body FROM messages WHERE session = 'c1' ORDER BY id DESC LIMIT ?", (LAST,)
        ).fetchall()
        items = [json.loads(body) for (body,) in reversed(rows)]
        ended = time.perf_counter()
        opened.close()
        db.close()
        if [event.content for event in events if isinstance(event, Message)] != [
            item["content"] for item in items
        ]:
            raise AssertionError("the two sides read different ends")
        if round_number:  # the first one compiled our code
            yield Round(1_000 * (between - begun), 1_000 * (ended - between))


def pop(scale: Scale, folder: Path) -> Iterator[Round]:
    """Take the newest event back, durably."""
    ours, raw = _stores(scale, folder)
    db = _raw(raw)
    db.execute("PRAGMA synchronous = FULL")
    newest = "SELECT id FROM messages WHERE session = 'c1' ORDER BY id DESC LIMIT 1"
    with foldlog.open(ours) as opened:
        history = opened["c1"]
        for round_number in range(10 * scale.rounds + 1):
            begun = time.perf_counter()
            (event,) = history.pop()
            between = time.perf_counter()
            ((body,),) = db.execute(
                f"DELETE FROM messages WHERE id = ({newest}) RETURNING body"
            ).fetchall()
            item = json.loads(body)
            ended = time.perf_counter()
            if not isinstance(event, Message) or event.content != item["content"]:
                raise AssertionError("the two sides took different events back")
            if round_number:
                yield Round(1_000 * (between - begun), 1_000 * (ended - between))
    db.close()


def _raw(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(_TABLES)
    return db


def _stores(scale: Scale, folder: Path) -> tuple[str, Path]:
    events = [
        Message(source="user", content=f"message {n} {'x' * 300}")
        for n in range(min(10_000, scale.usual))
    ]
    ours, raw = f"sqlite:///{folder}/ours.db", folder / "raw.db"
    with foldlog.open(ours) as opened:
        opened["c1"].append(events)
    db = _raw(raw)
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO messages (session, body) VALUES ('c1', ?)",
        [(body_of(e).decode(),) for e in events],
    )
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return ours, raw


_SESSIONS = "a session store by hand"

QUESTIONS = [
    Question(
        "open, last 50 of 10,000 events",
        "ms",
        2.0,
        "at most",
        partial(last, read=lambda h: h.tail(LAST)),
        _SESSIONS,
        "Tails and lists",
    ),
    Question("take the newest of 10,000 events back", "ms", 4.0, "at most", pop, _SESSIONS),
]
