"""Measure reading and decoding events. The baseline reads the events with one SELECT over a range,
and decodes them with msgspec.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.frame import Question, Round, Scale
from benchmarks.raw import RawStore, body_of, timeless
from benchmarks.workload import history
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Message,
    Observation,
    SystemMessage,
    open_store,
)

EVENTS = 10_000


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    length = min(EVENTS, scale.usual)
    events = list(history(length))
    raw = RawStore(folder / "raw.db")
    raw.append_batch(("c1", e.id, "event", body_of(e)) for e in events)
    decoder = msgspec.json.Decoder(
        SystemMessage | Message | Action | Observation | CondensationAction
    )
    with open_store(f"sqlite:///{folder}/ours.db") as store:
        store.ingest("c1", events)
        for _ in range(scale.rounds):
            # both sides begin alike: a full collection would come to whichever is second
            gc.collect()
            begun = time.perf_counter()
            by_hand = [decoder.decode(body) for _, body in raw.bodies("c1", 0, length)]
            raw_seconds = time.perf_counter() - begun
            gc.collect()
            begun = time.perf_counter()
            ours = list(store.events("c1"))
            our_seconds = time.perf_counter() - begun
            if timeless(ours) != by_hand:
                raise AssertionError("the two sides read different events")
            yield Round(length / our_seconds, length / raw_seconds)
    raw.close()


QUESTIONS = [Question("read 10,000 events, decoded", "events/s", 0.5, "at least", measure)]
