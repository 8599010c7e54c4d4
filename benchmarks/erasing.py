"""Measure an erasure that leaves no bytes: its own time, and how long writers wait during it.

The vacuum after an erasure rewrites the whole file. The baseline therefore deletes the rows with
``secure_delete``, and then runs ``VACUUM``. A writer must never wait longer than a second, whatever
the size of the store.
"""

from __future__ import annotations

import json
import random
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from foldlog.eventstore import ANY_VERSION, Message, open_store
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact

FILE_BYTES = 100_000_000
EVENTS = 400
LONGEST_WAIT_MS = 1_000.0
_DELETE = (
    "DELETE FROM events WHERE conversation = ?",
    "DELETE FROM idempotency_keys WHERE conversation = ?",
)


def erasing(scale: Scale, folder: Path) -> Iterator[Round]:
    path = _filled(scale, folder)
    for n in range(scale.rounds):
        with open_store(f"sqlite:///{path}") as store:
            begun = time.perf_counter()
            receipt = erase(store, f"c{2 * n}", reason="measured")
            vacuum(store)
            ours = time.perf_counter() - begun
            if receipt.version != EVENTS:
                raise AssertionError("the conversation was not erased, or not all of it")
        begun = time.perf_counter()
        _by_hand(path, f"c{2 * n + 1}", *_DELETE)
        yield Round(1e3 * ours, 1e3 * (time.perf_counter() - begun))


def redacting(scale: Scale, folder: Path) -> Iterator[Round]:
    path = _filled(scale, folder)
    for n in range(scale.rounds):
        with open_store(f"sqlite:///{path}") as store:
            begun = time.perf_counter()
            receipt = redact(store, f"c{2 * n}", n, reason="measured", by="a benchmark")
            vacuum(store)
            ours = time.perf_counter() - begun
            if receipt.position is None:
                raise AssertionError("the event was not redacted, or not all of it")
        begun = time.perf_counter()
        _by_hand(
            path, f"c{2 * n + 1}", "UPDATE events SET body = '{}' WHERE conversation = ? AND id = 5"
        )
        yield Round(1e3 * ours, 1e3 * (time.perf_counter() - begun))


def waiting(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the longest append of another process during an erasure."""
    path = _filled(scale, folder)
    for n in range(scale.rounds):
        command = [sys.executable, "-m", "benchmarks.erasing", str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            with open_store(f"sqlite:///{path}") as store:
                erase(store, f"c{n}", reason="measured")
            printed, _ = writer.communicate("end\n")
        yield Round(json.loads(printed), LONGEST_WAIT_MS)


def _filled(scale: Scale, folder: Path) -> Path:
    """Return the path of a store of ``FILE_BYTES``. The events of its conversations were appended
    in turn, so that conversations share pages.
    """
    path = folder / "store.db"
    rng = random.Random(1)
    sizes = [min(20_000, int(rng.lognormvariate(7, 1))) for _ in range(EVENTS)]
    bytes_each = EVENTS * 1_800
    count = max(FILE_BYTES // bytes_each if scale.name == "full" else 0, 2 * scale.rounds + 1)
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        for first in range(0, EVENTS, 20):
            for n in range(count):
                batch = [
                    Message(source="user", content="x" * size) for size in sizes[first : first + 20]
                ]
                store.append(
                    f"c{n}",
                    batch,
                    expected_version=ANY_VERSION,
                    idempotency_key=f"{rng.random()}-{first}",
                )
    return path


def _by_hand(path: Path, name: str, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        (key,) = connection.execute(
            "SELECT key FROM conversations WHERE id = ?", (name,)
        ).fetchone()
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement, (key,))
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _append_until_told(path: str) -> None:
    longest = 0.0
    with open_store(f"sqlite:///{path}") as store:
        store.append(
            "writer", Message(source="user", content="first"), expected_version=ANY_VERSION
        )
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            begun = time.perf_counter()
            store.append(
                "writer", Message(source="user", content="x" * 1_000), expected_version=ANY_VERSION
            )
            longest = max(longest, time.perf_counter() - begun)
    print(json.dumps(1e3 * longest))


QUESTIONS = [
    Question(
        "erase a conversation of a store of 100 MB",
        "ms",
        4.0,
        "at most",
        erasing,
        "deleted and vacuumed by hand",
    ),
    Question(
        "redact an event of a store of 100 MB",
        "ms",
        4.0,
        "at most",
        redacting,
        "replaced and vacuumed by hand",
    ),
    Question(
        "an append while a conversation is erased",
        "ms",
        1.0,
        "at most",
        waiting,
        "the longest wait allowed",
    ),
]

if __name__ == "__main__":
    _append_until_told(sys.argv[1])
