"""Measure the rebuild of all revisions from the events on disk. The baseline reads, decodes and
folds the events by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.folding import by_hand
from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import prepared
from benchmarks.raw import RawStore, timeless
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Message,
    Observation,
    SystemMessage,
    open_store,
)
from foldlog.projections import Views


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepared(folder.parent, scale.usual)
    decoder = msgspec.json.Decoder(
        SystemMessage | Message | Action | Observation | CondensationAction
    )
    for _ in range(scale.rounds):
        raw = RawStore(stores.raw)
        begun = time.perf_counter()
        expected = by_hand([decoder.decode(body) for _, body in raw.bodies("c1", 0, scale.usual)])
        raw_seconds = time.perf_counter() - begun
        raw.close()
        with open_store(f"sqlite:///{stores.ours}") as store:
            views = Views(store)
            begun = time.perf_counter()
            views.rebuild("c1")
            our_seconds = time.perf_counter() - begun
            if timeless(views.current("c1")) != timeless(expected):
                raise AssertionError("the two sides show different events")
        yield Round(scale.usual / our_seconds, scale.usual / raw_seconds)


QUESTIONS = [
    Question(
        "full rebuild from disk",
        "events/s",
        0.9,
        "at least",
        measure,
        "read, decode and fold by hand",
        "Reading everything",
    ),
]
