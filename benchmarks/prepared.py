"""Make stores that several questions share, once in each run: the same history in foldlog and in a
hand-written table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.raw import RawStore, body_of
from benchmarks.workload import history
from foldlog.eventstore import CondensationSummary, Event, open_store, summary_of
from foldlog.projections import View, Views

__all__ = ["SCHEMA", "Prepared", "checkpoint", "prepare_stores"]

SCHEMA = 1
"""The number of the hand-written tables, which a program checks when it opens the file."""
_CHUNK = 1_000


class Prepared(NamedTuple):
    """Two checkpointed files with the conversation ``c1``: ``ours`` is foldlog's store with
    revisions, and ``raw`` has a row with the View, written by hand.
    """

    ours: Path
    raw: Path
    length: int

    @property
    def url(self) -> str:
        return f"sqlite:///{self.ours}"


def prepare_stores(folder: Path, length: int) -> Prepared:
    """Return stores with a workload of ``length`` events. The stores are made if they do not exist
    yet.
    """
    files = Prepared(folder / f"{length}-ours.db", folder / f"{length}-raw.db", length)
    if not files.ours.exists():
        with open_store(files.url, durability="relaxed") as store:
            views = Views(store)
            store.register(views)
            store.ingest("c1", history(length))
            view = views.current("c1")
        checkpoint(files.ours)
        _make_raw(files.raw, history(length), view)
    return files


def _make_raw(path: Path, events: Iterable[Event], view: View) -> None:
    raw = RawStore(path)
    source = iter(events)
    first = 0
    while chunk := list(islice(source, _CHUNK)):
        raw.append_batch("c1", first, map(body_of, chunk))
        first += len(chunk)
    summaries = [
        (place, summary_of(event.id))
        for place, event in enumerate(view.events)
        if isinstance(event, CondensationSummary)
    ]
    raw.db.execute(
        "CREATE TABLE views (conversation TEXT PRIMARY KEY, version INTEGER, intervals TEXT, place"
        " INTEGER, summary INTEGER)"
    )
    intervals = json.dumps(list(_intervals(event.id for event in view.events if event.id >= 0)))
    place, summary = summaries[-1] if summaries else (None, None)
    raw.db.execute(
        "INSERT INTO views VALUES ('c1', ?, ?, ?, ?)", (first, intervals, place, summary)
    )
    raw.db.execute(f"PRAGMA user_version = {SCHEMA}")
    raw.close()
    checkpoint(path)


def _intervals(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -1
    for event_id in ids:
        if first >= 0 and event_id == last + 1:
            last = event_id
            continue
        if first >= 0:
            yield first, last
        first = last = event_id
    if first >= 0:
        yield first, last


def checkpoint(path: Path) -> int:
    """Write the write-ahead log back, and return the bytes of the file."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size
