"""Measure what reads every event: decoding, a rebuild, a verification, and the lifetimes of events.

Each baseline selects the bodies of a hand-written table, decodes them with msgspec, and computes as
many hashes and checksums as foldlog does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from benchmarks.frame import Question, Round, Scale, by_turns, not_compared
from benchmarks.prepared import prepare_stores
from benchmarks.raw import DECODE, RawStore, fold, timeless, with_checks
from foldlog.eventstore import Event, open_store
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views


def read(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepare_stores(folder.parent, scale.usual)
    with closing(RawStore(stores.raw)) as raw, open_store(stores.url) as store:
        yield from by_turns(
            scale,
            lambda: list(store.events("c1")),
            lambda: [DECODE(body) for body in with_checks(raw.bodies("c1", stores.length))],
            count=stores.length,
            same=_same_events,
        )


def _same_events(ours: list[Event], raw: list[Event]) -> bool:
    return timeless(ours) == timeless(raw)


def rebuild(scale: Scale, folder: Path) -> Iterator[Round]:
    """Rebuild all revisions from the events on disk, and open the View."""
    stores = prepare_stores(folder.parent, scale.long)
    with closing(RawStore(stores.raw)) as raw, open_store(stores.url) as store:
        views = Views(store)

        def ours() -> list[Event]:
            views.rebuild("c1")
            return list(views.current("c1"))

        def by_hand() -> list[Event]:
            return fold([DECODE(body) for body in with_checks(raw.bodies("c1", stores.length))])

        yield from by_turns(scale, ours, by_hand, count=stores.length, same=_same_events)


def verify_all(scale: Scale, folder: Path) -> Iterator[Round]:
    """Verify every checksum, head and position, and the file with SQLite's own check."""
    stores = prepare_stores(folder.parent, scale.long)
    with closing(RawStore(stores.raw)) as raw, open_store(stores.url) as store:

        def ours() -> int:
            verdicts = list(verify(store))
            if any(verdict.findings for verdict in verdicts):
                raise AssertionError("the prepared store is damaged")
            return sum(verdict.version for verdict in verdicts)

        def by_hand() -> int:
            head = b""
            salt = bytes(16)
            count = 0
            for body in with_checks(raw.bodies("c1", stores.length)):
                head = sha256(head + sha256(salt + body).digest()).digest()
                count += 1
            return count

        yield from by_turns(scale, ours, by_hand, count=stores.length)


def lifetimes(scale: Scale, folder: Path) -> Iterator[Round]:
    """Find the versions at which the View showed each event. The baseline reads all events."""
    stores = prepare_stores(folder.parent, scale.usual)
    with open_store(stores.url) as store:
        yield from by_turns(
            scale,
            lambda: Views(store).lifetimes("c1"),
            lambda: deque(store.events("c1"), maxlen=0),
            same=not_compared,
        )


QUESTIONS = [
    Question("read 10,000 events, decoded", "events/s", 0.6, read, "raw, two checksums, decode"),
    Question(
        "full rebuild from disk", "events/s", 0.55, rebuild, "read, check, decode, fold by hand"
    ),
    Question("verify every event", "events/s", 0.4, verify_all, "read, check, hash by hand"),
    Question("lifetimes of all events", "ms CPU", 2.0, lifetimes, "reading all events"),
]
