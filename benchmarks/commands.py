"""Measure commands. Each command runs in a new process, and the figure is the CPU time of this
process, with the start of Python, the imports, and the opening of the store. The process of the
baseline begins in the same way.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.frame import (
    Question,
    Round,
    Scale,
    by_turns,
    child_cpu_s,
    not_compared,
    run,
)
from benchmarks.prepared import Prepared, prepare_stores
from foldlog.eventstore import Message, open_store

_BY_HAND = "benchmarks.by_hand"


# -- many conversations


def conversations(folder: Path, count: int) -> Path:
    """Return the path of a store with ``count`` conversations of two events. The store is made if
    it does not exist yet.
    """
    path = folder / f"conversations-{count}.db"
    if not path.exists():
        messages = [
            Message(source="user", content="hello"),
            Message(source="agent", content="good day"),
        ]
        with open_store(f"sqlite:///{path}", durability="relaxed") as store:
            for number in range(count):
                store.append(f"conversation-{number:08d}", messages, expected_version=0)
    return path


def listing(
    options: Sequence[str],
    scale: Scale,
    folder: Path,
    *,
    is_small: bool = False,
    has_figures: bool = False,
) -> Iterator[Round]:
    """List all conversations of a store, or with ``is_small``, of a store of ten. With
    ``has_figures``, the store contains the figures of each conversation.
    """
    count = 10 if is_small else scale.conversations
    path = conversations(folder.parent, count)
    if has_figures:
        path = Path(shutil.copy(path, folder / "counted.db"))
        run("foldlog", "stats", "--db", f"sqlite:///{path}")
    shown = [*options, *([] if is_small else ["--limit", str(count)])]
    out = folder / "out.txt"

    def ours() -> list[str]:
        run("foldlog", "list", *shown, "--db", f"sqlite:///{path}", out=out)
        return _names(out)

    def by_hand() -> list[str]:
        run(_BY_HAND, "list", str(path), out=out)
        return _names(out)

    yield from by_turns(scale, ours, by_hand, clock=child_cpu_s)


def _names(out: Path) -> list[str]:
    lines = out.read_text().splitlines()
    return sorted(line.split()[0] for line in lines if line.startswith("conversation-"))


# -- one long conversation


def growing(arguments: Sequence[str], scale: Scale, folder: Path) -> Iterator[Round]:
    """Run a command on the longest history, and on one of a hundredth of its length."""
    sides = []
    for length in (scale.longest, scale.usual):
        stores = prepare_stores(folder.parent, length)
        sides.append(partial(_run, folder, stores, arguments))
    yield from by_turns(scale, *sides, clock=child_cpu_s, same=not_compared)


def _run(folder: Path, stores: Prepared, arguments: Sequence[str]) -> int:
    """Run a command, and return the number of its lines."""
    command, *rest = arguments
    out = folder / "out.txt"
    run("foldlog", command, "c1", *rest, "--db", stores.url, out=out)
    return len(out.read_bytes().splitlines())


def printing(scale: Scale, folder: Path) -> Iterator[Round]:
    """Print every event."""
    stores = prepare_stores(folder.parent, scale.usual)
    out = folder / "lines.txt"

    def by_hand() -> int:
        run(_BY_HAND, "lines", str(stores.ours), out=out)
        return len(out.read_bytes().splitlines())

    yield from by_turns(
        scale,
        partial(_run, folder, stores, ["log"]),
        by_hand,
        count=stores.length,
        clock=child_cpu_s,
    )


def exporting(scale: Scale, folder: Path) -> Iterator[Round]:
    """Write every event into a new database. The answer of a side is its number of events."""
    stores = prepare_stores(folder.parent, scale.usual)

    def ours() -> int:
        path = _removed(folder / "audit.db")
        run("foldlog", "export", "c1", "--to", str(path), "--db", stores.url)
        return _count_events(path)

    def by_hand() -> int:
        path = _removed(folder / "tables.db")
        run(_BY_HAND, "tables", str(stores.ours), str(path))
        return _count_events(path)

    yield from by_turns(scale, ours, by_hand, count=stores.length, clock=child_cpu_s)


def _removed(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _count_events(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        (count,) = database.execute("SELECT count(*) FROM events").fetchone()
    return int(count)


QUESTIONS = [
    Question(
        "list of a small store",
        "ms CPU",
        2.9,
        partial(listing, ["--short"], is_small=True),
        "sqlite3, msgspec, print",
    ),
    Question(
        "list of a small store, --limit 10",
        "ms CPU",
        3.1,
        partial(listing, ["--short", "--limit", "10"], is_small=True),
        "sqlite3, msgspec, print",
    ),
    Question(
        "list of 20,000 conversations",
        "ms CPU",
        8.0,
        partial(listing, ["--short"]),
        "sqlite3, print",
    ),
    Question(
        "list of 20,000, with stored figures",
        "ms CPU",
        4.0,
        partial(listing, [], has_figures=True),
        "sqlite3, print",
    ),
    Question("view, 1,000,000 events", "ms CPU", 1.5, partial(growing, ["view"]), "10,000 events"),
    Question(
        "why, of a forgotten event, 1,000,000 events",
        "ms CPU",
        1.5,
        partial(growing, ["why", "5"]),
        "10,000 events",
    ),
    Question("log, whole", "events/s", 0.3, printing, "read, write JSON lines"),
    Question("audit database, whole", "events/s", 0.5, exporting, "read, insert, index by hand"),
]
