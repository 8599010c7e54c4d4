"""How long does a list of a user's 200 histories take, of 100,000?

The baseline is a table of sessions that every message of every session updates: an index by user and last activity, and
its rows as they are. CPU time counts, of user and system: on a loaded machine the clock tells how long both waited.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import foldlog
from benchmarks.frame import Question, Round, Scale

LISTED = 200


def listing(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open the store and list a user's histories, in a process that has done it before."""
    ours, raw = _stores(scale, folder)
    statement = (
        "SELECT id, created_at, updated_at, attributes FROM sessions WHERE user = ? ORDER BY updated_at DESC LIMIT ?"
    )
    for place in range(3 * scale.rounds + 1):
        with foldlog.open(ours) as histories:
            histories.list({"user": "u0"}, limit=1, age_max_s=3600)
            begun = time.process_time()
            found = histories.list({"user": "u0"}, limit=LISTED, age_max_s=3600)
            between = time.process_time()
        db = sqlite3.connect(raw, isolation_level=None)
        db.execute("SELECT id FROM sessions WHERE user = ? LIMIT 1", ("u0",)).fetchall()
        middle = time.process_time()
        rows = [(*row, json.loads(attributes)) for *row, attributes in db.execute(statement, ("u0", LISTED))]
        ended = time.process_time()
        db.close()
        if [one.attributes for one in found.conversations] != [row[3] for row in rows]:
            raise AssertionError("the two sides list different histories")
        if place:  # the first one compiled our code
            yield Round(1_000 * (between - begun), 1_000 * (ended - middle))


def _stores(scale: Scale, folder: Path) -> tuple[str, Path]:
    count = min(100_000, scale.usual)
    users = max(count // LISTED, 1)
    ours, raw = f"sqlite:///{folder}/ours.db", folder / "raw.db"
    db = sqlite3.connect(raw, isolation_level=None)
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, user TEXT, created_at REAL, updated_at REAL, attributes TEXT)"
    )
    db.execute("CREATE INDEX sessions_of_a_user ON sessions (user, updated_at)")
    db.execute("BEGIN")
    with foldlog.open(ours, durability="relaxed") as histories:
        for n in range(count):
            attributes = {"app": "chat", "user": f"u{n % users}", "title": f"conversation number {n}"}
            histories.create(f"c{n}", attributes)
            row = f"c{n}", attributes["user"], float(n), float(n), json.dumps(attributes)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
        histories.list(age_max_s=0, limit=1)
    db.execute("COMMIT")
    db.close()
    return ours, raw


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
]
