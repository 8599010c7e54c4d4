"""Baselines for the benchmarks of commands, run as ``python -m benchmarks.by_hand list|events|peak
ARGUMENTS``.

``list FILE`` reads the rows with sqlite3 and prints them as ``foldlog list`` does. ``events FILE``
reads every event of the conversation ``c1`` in Python, and prints their number. ``peak FILE
ARGUMENTS`` runs ``foldlog ARGUMENTS`` and writes its peak memory in KiB into the file.
"""

from __future__ import annotations

import runpy
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIST = """
    SELECT c.id, c.created_at, e.id + 1, substr(e.meta, 17, 8) FROM conversations c JOIN events e
        ON e.conversation = c.key AND e.id = (SELECT max(id) FROM events WHERE conversation = c.key)
    WHERE c.visible ORDER BY c.id
"""


def print_list(path: str) -> None:
    print(f"{'conversation':<21}  events  first recorded (UTC)  last recorded (UTC)")
    for name, created_at, version, recorded_at in sqlite3.connect(path).execute(_LIST):
        first, last = _moment(created_at), _moment(int.from_bytes(recorded_at))
        print(f"{name:<21}  {version:>6,}  {first:<20}  {last}")


def _moment(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(" ", "seconds")[:19]


def read_events(path: str) -> None:
    from foldlog.eventstore import open_store

    with open_store(f"sqlite:///{path}") as store:
        print(sum(1 for _ in store.events("c1")))


def run_watched(peak_file: str, *arguments: str) -> None:
    sys.argv = ["foldlog", *arguments]
    try:
        runpy.run_module("foldlog", run_name="__main__", alter_sys=True)
    finally:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        Path(peak_file).write_text(status["VmHWM"].split()[0])


if __name__ == "__main__":
    {"list": print_list, "events": read_events, "peak": run_watched}[sys.argv[1]](*sys.argv[2:])
