"""Measure the cost of the hash chain, compression, encryption and verification.

The baseline of the chain is the same store without a chain. The baseline of compression and
encryption is the same store without both. The baseline of a verification is hand-written code that
reads and hashes every body.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from benchmarks.append import batches
from benchmarks.frame import Question, Round, Scale
from benchmarks.opening import cold_round
from benchmarks.prepared import prepared
from benchmarks.raw import RawStore
from benchmarks.workload import history
from foldlog.eventstore import ANY_VERSION, CondensationAction, Event, KeyRing, Store, open_store
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.log import writing
from foldlog.eventstore.log.keys import KEY
from foldlog.eventstore.log.row import SALT_BYTES, checksum_seed, with_checksums
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.verify import verify as verify_store
from foldlog.eventstore.recorders.types import HEAD_BYTES, Conversation, Row, row_of
from foldlog.projections import Views

BATCH = 500
BATCHES = 8
SINGLES = 300
_KEY = "11" * 32
KEYS = KeyRing(_KEY)


def verify(scale: Scale, folder: Path) -> Iterator[Round]:
    """Verify every checksum, head and position, and the file with SQLite's own check."""
    stores = prepared(folder.parent, scale.usual)
    for _ in range(scale.rounds):
        raw = RawStore(stores.raw)
        begun = time.perf_counter()
        head, count = b"", 0
        for _, body in raw.bodies("c1", 0, stores.length):
            head = hashlib.sha256(head + body).digest()
            count += 1
        by_hand = count / (time.perf_counter() - begun)
        raw.close()
        with open_store(f"sqlite:///{stores.ours}") as store:
            begun = time.perf_counter()
            verdicts = list(verify_store(store))
            checked = sum(verdict.version for verdict in verdicts) / (time.perf_counter() - begun)
        if any(verdict.findings for verdict in verdicts) or verdicts[0].version != count:
            raise AssertionError(
                "the prepared store is damaged, or has other events than the baseline"
            )
        yield Round(checked, by_hand)


def chain_of_a_batch(scale: Scale, folder: Path) -> Iterator[Round]:
    yield from _with_and_without_chain(scale, folder, BATCH)


def chain_of_single_appends(scale: Scale, folder: Path) -> Iterator[Round]:
    yield from _with_and_without_chain(scale, folder, 1)


def _with_and_without_chain(scale: Scale, folder: Path, size: int) -> Iterator[Round]:
    """Measure how many microseconds the append of an event takes. Append ``size`` events at a time
    to each store in turn, so that both use the disk under the same conditions.
    """
    events = [
        without_id(event)
        for event in history(BATCH * BATCHES)
        if not isinstance(event, CondensationAction)
    ]
    appends = [events[n : n + size] for n in range(0, len(events), size)][
        : max(SINGLES // size, BATCHES)
    ]
    for n in range(scale.rounds):
        with (
            open_store(f"sqlite:///{folder}/with-{n}.db") as chained,
            open_store(f"sqlite:///{folder}/{n}.db") as bare,
        ):
            seconds = [0.0, 0.0]
            for turn, some in enumerate(appends):
                for side in (0, 1) if turn % 2 else (1, 0):
                    with (
                        mock.patch.object(writing, "make_rows", _unchained)
                        if side
                        else nullcontext()
                    ):
                        begun = time.perf_counter()
                        (bare if side else chained).append("c1", some, expected_version=ANY_VERSION)
                        seconds[side] += time.perf_counter() - begun
        count = sum(map(len, appends))
        yield Round(seconds[0] / count * 1e6, seconds[1] / count * 1e6)


def _append_batches(store: Store, events: list[Event]) -> float:
    begun = time.perf_counter()
    for first in range(0, len(events), BATCH):
        store.ingest(f"c{first}", (without_id(event) for event in events[first : first + BATCH]))
    return (time.perf_counter() - begun) / len(events)


def without_id(event: Event) -> Event:
    return replace(event, id=-1, cause=None)


def _unchained(
    conversation: Conversation, batch: Sequence[Encoded], now: int, secret: bytes | None = None
) -> tuple[list[Row], Conversation]:
    """Make the rows of a store without a chain: a constant takes the place of heads and salts. The
    rows still have checksums, because checksums need no chain.
    """
    proof = bytes(HEAD_BYTES + SALT_BYTES)
    before = conversation.shown
    turns = conversation.structural
    unchecked = []
    for event_id, (kind, schema, shown, structural, body, _) in enumerate(
        batch, conversation.version
    ):
        unchecked.append(
            row_of(event_id, kind, schema, shown, structural, now, 0, body, proof, before, turns)
        )
        before += shown
        turns += structural
    rows = with_checksums(checksum_seed(conversation.id), unchecked)
    return rows, conversation.grown(rows[-1])


def encrypted(scale: Scale, folder: Path) -> Iterator[Round]:
    yield from _stored_otherwise(scale, folder, keys=KEYS)


def encrypted_and_compressed(scale: Scale, folder: Path) -> Iterator[Round]:
    yield from batches(scale, folder, keys=KEYS, compression="zstd")


def opening_encrypted_and_compressed(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepared(folder.parent, scale.usual)
    path = folder / "ours.db"
    make_small(path, stores.length)
    for _ in range(scale.rounds):
        yield cold_round(stores._replace(ours=path), environment={KEY: _KEY})


def compressed(scale: Scale, folder: Path) -> Iterator[Round]:
    yield from _stored_otherwise(scale, folder, compression="zstd")


def reading_encrypted_and_compressed(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure how many events a second are read from a whole history."""
    events = [without_id(event) for event in history(BATCH * BATCHES)]
    for name, how in (("plain", {}), ("other", {"keys": KEYS, "compression": "zstd"})):
        with open_store(f"sqlite:///{folder}/{name}.db", **how) as store:
            store.ingest("c1", events)
    for _ in range(scale.rounds):
        rates = []
        for name, how in (("other", {"keys": KEYS}), ("plain", {})):
            with open_store(f"sqlite:///{folder}/{name}.db", **how) as store:
                begun = time.perf_counter()
                count = sum(1 for _ in store.events("c1"))
                rates.append(count / (time.perf_counter() - begun))
        yield Round(*rates)


def size_compressed(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the size of an encrypted and compressed store, with revisions, chain and indexes. One
    round is enough, because the size does not vary.
    """
    stores = prepared(folder.parent, scale.usual)
    path = folder / "small.db"
    make_small(path, stores.length)
    yield Round(path.stat().st_size / stores.length, stores.raw.stat().st_size / stores.length)


def make_small(path: Path, length: int) -> None:
    with open_store(f"sqlite:///{path}", keys=KEYS, compression="zstd") as store:
        store.register(Views(store))
        store.ingest("c1", history(length))
        vacuum(store)


def _stored_otherwise(scale: Scale, folder: Path, **how: Any) -> Iterator[Round]:
    events = list(history(BATCH * BATCHES))
    for n in range(scale.rounds):
        seconds = []
        for name, chosen in (("other", how), ("plain", {})):
            with open_store(f"sqlite:///{folder}/{name}-{n}.db", **chosen) as store:
                seconds.append(_append_batches(store, events))
        yield Round(1 / seconds[0], 1 / seconds[1])


_PLAIN = "the same store, plain"
QUESTIONS = [
    Question(
        "verify every event",
        "events/s",
        0.6,
        "at least",
        verify,
        "read and hash by hand",
        "Reading everything",
    ),
    Question(
        "chain, of a batch of 500",
        "µs/event",
        1.2,
        "at most",
        chain_of_a_batch,
        raw="the same without it",
    ),
    Question(
        "chain, of single appends",
        "µs/event",
        1.05,
        "at most",
        chain_of_single_appends,
        raw="the same without it",
    ),
    Question(
        "batches of 500, encrypted and compressed",
        "events/s",
        0.5,
        "at least",
        encrypted_and_compressed,
        explained="A batch, encrypted and compressed",
    ),
    Question(
        "cold open of a View, encrypted and compressed",
        "ms",
        2.0,
        "at most",
        opening_encrypted_and_compressed,
        explained="A cold open, encrypted",
    ),
    Question("batch of 500, encrypted", "events/s", 0.5, "at least", encrypted, raw=_PLAIN),
    Question(
        "batch of 500, compressed (zstd)", "events/s", 0.3, "at least", compressed, raw=_PLAIN
    ),
    Question(
        "read, encrypted and compressed",
        "events/s",
        0.2,
        "at least",
        reading_encrypted_and_compressed,
        raw=_PLAIN,
    ),
    Question(
        "size on disk, encrypted and compressed", "bytes/event", 0.5, "at most", size_compressed
    ),
]
