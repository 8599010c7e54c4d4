"""How many bytes does an event take on disk? The checkpointed file with everything in it, against raw's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import prepared


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    """One round: a size is the same each time."""
    stores = prepared(folder.parent, scale.usual)
    yield Round(stores.ours.stat().st_size / stores.length, stores.raw.stat().st_size / stores.length)


QUESTIONS = [Question("size on disk, everything in it", "bytes/event", 1.05, "at most", measure)]
