"""Measure the bytes of an event on disk: the size of foldlog's complete checkpointed file, and of
the baseline's file. A size is the same each time, so there is one round.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.append import KEY
from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import checkpoint, prepare_stores
from benchmarks.workload import history
from foldlog.eventstore import KeyRing, open_store
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.projections import Views


def plain(scale: Scale, folder: Path) -> Iterator[Round]:
    stores = prepare_stores(folder.parent, scale.long)
    sizes = (path.stat().st_size for path in (stores.ours, stores.raw))
    yield Round(*(size / stores.length for size in sizes))


def small(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure an encrypted and compressed store, with revisions, chain and indexes."""
    stores = prepare_stores(folder.parent, scale.usual)
    make_small(folder / "small.db", stores.length)
    sizes = (path.stat().st_size for path in (folder / "small.db", stores.raw))
    yield Round(*(size / stores.length for size in sizes))


def make_small(path: Path, length: int) -> None:
    with open_store(f"sqlite:///{path}", keys=KeyRing(KEY), compression="zstd") as store:
        store.register(Views(store))
        store.ingest("c1", history(length))
        vacuum(store)
    checkpoint(path)


QUESTIONS = [
    Question("size on disk, everything in it", "bytes/event", 1.07, plain),
    Question("size on disk, encrypted and compressed", "bytes/event", 0.5, small),
]
