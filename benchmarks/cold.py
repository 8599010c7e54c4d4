"""Open one View in a new process: ``python -m benchmarks.cold SIDE FILE [VERSION]``. SIDE is
``ours`` (foldlog) or ``raw`` (the baseline).

The clock is CPU time. It starts after the imports, and stops at the View's last event. The memory
is the growth of the process during this time. Prints JSON.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.prepared import SCHEMA
from benchmarks.raw import DECODE, identity, timeless, with_checks
from foldlog.eventstore import (
    CondensationSummary,
    Event,
    open_store,
    summary_id,
)

# the clock runs from after the imports
from foldlog.eventstore.recorders import sqlite as _recorder  # noqa: F401
from foldlog.projections import Views

if "FOLDLOG_KEY" in os.environ:  # an encrypted store imports these too
    import zstandard  # noqa: F401
    from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401

_LOCK = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0x4000_0002, 510, 0)
"""A read lock on the bytes that SQLite locks before it removes the log, as foldlog holds it."""
_SHOWN = (
    "FROM json_each(?) j CROSS JOIN events e ON e.conversation = ? AND e.id BETWEEN j.value ->> 0"
    " AND j.value ->> 1"
)


def ours(path: str, version: int | None) -> Sequence[Event]:
    store = open_store(f"sqlite:///{path}")
    views = Views(store)
    view = views.current("c1") if version is None else views.at("c1", version)
    return view.events


def raw(path: str, _version: int | None) -> Sequence[Event]:
    """Read the View's intervals from a hand-written row, then the events in these intervals with
    one SELECT.

    As foldlog does, read one state of the database, hold a lock that keeps the log, and check the
    file's name before and after its opening, the number of the schema, that the View is the newest,
    that no event is missing, and two checksums of each event.
    """
    opened = identity(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("BEGIN")
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_OFD_SETLK, _LOCK)
    version, intervals, place, summary = db.execute(
        "SELECT version, intervals, place, summary FROM views WHERE conversation = 'c1'"
    ).fetchone()
    (last,) = db.execute("SELECT max(id) FROM events WHERE conversation = 'c1'").fetchone()
    rows = db.execute(f"SELECT e.id, e.body {_SHOWN} ORDER BY j.id", (intervals, "c1")).fetchall()
    expected = [
        event_id for start, stop in json.loads(intervals) for event_id in range(start, stop + 1)
    ]
    if schema != SCHEMA or last != version - 1 or [event_id for event_id, _ in rows] != expected:
        raise AssertionError("the tables are others, or an event is missing")
    events: list[Event] = [DECODE(body) for body in with_checks(body for _, body in rows)]
    if summary is not None:
        (text,) = db.execute(
            "SELECT body FROM events WHERE conversation = 'c1' AND id = ?", (summary,)
        ).fetchone()
        content = DECODE(next(with_checks([text]))).summary
        events.insert(
            place, CondensationSummary(id=summary_id(summary), content=content, summary_of=summary)
        )
    db.execute("ROLLBACK")
    if identity(path) != opened:
        raise AssertionError("the file has been replaced")
    return events


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_reading(
    opened: Callable[[str, int | None], Sequence[Event]], path: str, version: int | None
) -> dict[str, object]:
    memory = resident_bytes()
    begun = time.process_time()
    events = opened(path, version)
    len(events)
    cpu = time.process_time() - begun
    grown = resident_bytes() - memory
    answer = hashlib.sha256(
        b"".join(b"%d " % event.id + msgspec.json.encode(event) for event in timeless(events))
    ).hexdigest()
    return {"cpu": cpu, "bytes": max(grown, 1), "answer": answer}


if __name__ == "__main__":
    side, path, *rest = sys.argv[1:]
    chosen = {side_function.__name__: side_function for side_function in (ours, raw)}[side]
    sys.stdout.write(json.dumps(measure_reading(chosen, path, int(rest[0]) if rest else None)))
