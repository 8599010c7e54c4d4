"""Measure an erasure that leaves no bytes. The vacuum after an erasure rewrites the whole file. The
baseline therefore deletes the rows with ``secure_delete``, and then runs ``VACUUM``.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

from benchmarks.frame import Question, Round, Scale, by_turns
from foldlog.eventstore import ANY_VERSION, Message, open_store
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.erase import erase

FILE_BYTES = 100_000_000
EVENTS = 400
_DELETE = (
    "DELETE FROM events WHERE conversation = ?",
    "DELETE FROM idempotency_keys WHERE conversation = ?",
)


def erasing(scale: Scale, folder: Path) -> Iterator[Round]:
    path = _fill_store(scale, folder)
    numbers = count()
    with open_store(f"sqlite:///{path}") as store:

        def ours() -> int:
            receipt = erase(store, f"c{next(numbers)}", reason="measured")
            vacuum(store)
            return receipt.version

        yield from by_turns(
            scale, ours, lambda: _by_hand(path, f"c{next(numbers)}"), clock=time.perf_counter
        )


def _fill_store(scale: Scale, folder: Path) -> Path:
    """Return the path of a store of ``FILE_BYTES``. The events of its conversations were appended
    in turn, so that conversations share pages.
    """
    path = folder / "store.db"
    rng = random.Random(1)
    sizes = [min(20_000, int(rng.lognormvariate(7, 1))) for _ in range(EVENTS)]
    full = FILE_BYTES // (EVENTS * 1_800) if scale.name == "full" else 0
    conversations = max(full, 2 * scale.rounds + 3)
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        for first in range(0, EVENTS, 20):
            for n in range(conversations):
                batch = [
                    Message(source="user", content="x" * size) for size in sizes[first : first + 20]
                ]
                key = f"{rng.random()}-{first}"
                store.append(f"c{n}", batch, expected_version=ANY_VERSION, idempotency_key=key)
    return path


def _by_hand(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        (key,) = connection.execute(
            "SELECT key FROM conversations WHERE id = ?", (name,)
        ).fetchone()
        connection.execute("BEGIN")
        deleted = [connection.execute(statement, (key,)).rowcount for statement in _DELETE]
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return deleted[0]


QUESTIONS = [
    Question(
        "erase a conversation of a store of 100 MB",
        "ms",
        1.5,
        erasing,
        "deleted and vacuumed by hand",
    ),
]
