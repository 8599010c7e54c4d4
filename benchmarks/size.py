"""Measure the bytes of an event on disk: the size of foldlog's complete checkpointed file, and of
the baseline's file.
"""

from __future__ import annotations

import base64
import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import prepared
from benchmarks.raw import RawStore
from foldlog.eventstore import Message, open_store

_SENT = 100
_IMAGE_BYTES = 100_000


def measure(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure a single round, because a size is the same each time."""
    stores = prepared(folder.parent, scale.usual)
    yield Round(
        stores.ours.stat().st_size / stores.length, stores.raw.stat().st_size / stores.length
    )


def measure_image(scale: Scale, folder: Path) -> Iterator[Round]:
    """Store the same image in each of 100 events. The baseline stores the image in base64, as JSON
    does.
    """
    image = random.Random(0).randbytes(_IMAGE_BYTES)
    ours, by_hand = folder / "ours.db", folder / "raw.db"
    with open_store(f"sqlite:///{ours}", durability="relaxed") as store:
        for n in range(_SENT):
            part = {"type": "image_url", "image_url": {"url": image}}
            store.append("c1", Message(source="user", content=(part,)), expected_version=n)
    raw = RawStore(by_hand)
    part = {"type": "image_url", "image_url": {"url": base64.b64encode(image).decode()}}
    body = json.dumps({"kind": "message", "content": [part], "source": "user"}).encode()
    raw.append_batch(("c1", n, "message", body) for n in range(_SENT))
    raw.close()
    yield Round(_bytes_of(ours) / _SENT, _bytes_of(by_hand) / _SENT)


def _bytes_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


QUESTIONS = [
    Question(
        "size on disk, everything in it",
        "bytes/event",
        1.05,
        "at most",
        measure,
        explained="Size on disk",
    ),
    Question(
        "size on disk, an image of 100 KB sent 100 times",
        "bytes/event",
        0.02,
        "at most",
        measure_image,
        explained="Size on disk",
    ),
]
