"""Open one View in a new process: ``python -m benchmarks.cold SIDE FILE [VERSION]``. SIDE is
``ours`` (foldlog) or ``raw`` (the baseline).

The clock is CPU time. It starts after the imports, and stops at the View's last event. The memory is the growth of
the process during this time. Prints JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.raw import DECODE, checked, timeless
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
    """
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    intervals, place, summary = db.execute(
        "SELECT intervals, place, summary FROM views WHERE conversation = 'c1'"
    ).fetchone()
    events: list[Event] = [
        DECODE(body)
        for body in checked(
            body
            for (body,) in db.execute(f"SELECT e.body {_SHOWN} ORDER BY j.id", (intervals, "c1"))
        )
    ]
    if summary is not None:
        (body,) = db.execute(
            "SELECT body FROM events WHERE conversation = 'c1' AND id = ?", (summary,)
        ).fetchone()
        text = DECODE(body).summary
        events.insert(
            place, CondensationSummary(id=summary_id(summary), content=text, summary_of=summary)
        )
    return events


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measured(
    opened: Callable[[str, int | None], Sequence[Event]], path: str, version: int | None
) -> dict[str, object]:
    memory = resident_bytes()
    begun = time.process_time()
    events = opened(path, version)
    len(events)
    cpu = time.process_time() - begun
    grown = resident_bytes() - memory
    answer = hashlib.sha256(
        b"".join(b"%d " % e.id + msgspec.json.encode(e) for e in timeless(events))
    ).hexdigest()
    return {"cpu": cpu, "bytes": max(grown, 1), "answer": answer}


if __name__ == "__main__":
    side, path, *rest = sys.argv[1:]
    chosen = {side_function.__name__: side_function for side_function in (ours, raw)}[side]
    sys.stdout.write(json.dumps(measured(chosen, path, int(rest[0]) if rest else None)))
