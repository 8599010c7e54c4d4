"""Measure the import of a history. The baseline is a handwritten program that parses, hashes and
inserts the records.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import RawStore
from benchmarks.workload import history
from foldlog._archive import makes_events
from foldlog._archive.importing import Import
from foldlog.eventstore import open_store
from foldlog.formats import encode

EVENTS = 5_000


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    """Import a JSONL file in the format OpenHands V1, made from the workload, as ``foldlog import``
    does.
    """
    source = folder / "history.jsonl"
    length = min(EVENTS, scale.usual)
    records = encode(history(length), "openhands-v1")
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    for n in range(scale.rounds):
        begun = time.perf_counter()
        raw = RawStore(folder / f"raw-{n}.db")
        count = _by_hand(raw, source)
        raw_seconds = time.perf_counter() - begun
        raw.close()
        begun = time.perf_counter()
        with open_store(f"sqlite:///{folder}/ours-{n}.db") as store:
            (imported,) = Import(makes_events(store), [source])
            added = store.conversation(imported.conversation).version  # this makes the events
        our_seconds = time.perf_counter() - begun
        if added != count:
            raise AssertionError(f"imported {added} events, by hand {count}")
        yield Round(added / our_seconds, count / raw_seconds)


def _by_hand(raw: RawStore, source: Path) -> int:
    head = b""
    rows = []
    with source.open("rb") as lines:
        for event_id, line in enumerate(lines):
            record = json.loads(line)
            head = hashlib.sha256(head + line).digest()
            rows.append(("c1", event_id, record.get("kind", ""), line))
    raw.append_batch(rows)
    return len(rows)


QUESTIONS = [
    Question(
        "import a history",
        "events/s",
        0.75,
        "at least",
        measure,
        "parse, hash, insert by hand",
        "An import",
    ),
]
