"""What a process does when it is killed. Each can be done again from the start, as a client does
after a crash, and then ends where it would have ended at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from foldlog import Histories
from foldlog._history.lease import LeaseBlock
from foldlog.eventstore import (
    ANY_VERSION,
    Event,
    Message,
    Origin,
    Store,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.appending import append_all
from foldlog.eventstore.maintenance import erase as detachment, erase as erasure
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.redact import redact as redact_event
from foldlog.eventstore.recorders.sqlite import checkpoints
from foldlog.eventstore.store import prepare_append
from foldlog.projections import Views
from tests.crash.ledger import Ledger, batch_of, open_at

__all__ = ["SCENARIOS", "Scenario"]


class Scenario(NamedTuple):
    prepare: Callable[[Path], None]
    run: Callable[[Path, Ledger], None]
    without_views: bool = False
    """Revisions may be missing: it begins so."""
    erases: str = ""
    """What its files hold before it, and not after it."""


def _in_small_chunks() -> None:
    importing.CHUNK = 5
    importing.REST_S = 0


def _nothing(path: Path) -> None:
    """Before it, there is no file."""


def _some_history(path: Path) -> None:
    with open_at(path) as store:
        store.append("c1", batch_of("before", 12), expected_version=0)
        store.append("c2", batch_of("before", 2), expected_version=0)


def _without_views(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        store.append("c1", batch_of("before", 30), expected_version=0)


def append(path: Path, ledger: Ledger) -> None:
    with open_at(path) as store:
        for n in range(3):
            ledger.append(store, "c1", f"single-{n}", 1)


def append_batches(path: Path, ledger: Ledger) -> None:
    with open_at(path) as store:
        for n in range(2):
            at = 12 + 14 * n
            if store.version("c1") == at:
                recorded = store.append("c1", batch_of(f"batch-{n}", 14), expected_version=at)
                ledger.enter("c1", recorded[0].id, 14, f"batch-{n}")


def append_and_write_back(path: Path, ledger: Ledger) -> None:
    """After each append the log is written back beside the commits, and begun again."""
    checkpoints.AT = 1
    with open_at(path) as store:
        for n in range(3):
            ledger.append(store, "c1", f"single-{n}", 1)
            for thread in threading.enumerate():
                if thread.name == checkpoints.THREAD:
                    thread.join()


def _with_bytes(events: list[Event], data: bytes) -> list[Event]:
    """The same events, their messages with these bytes."""
    part = {"type": "raw", "data": data}
    return [
        replace(event, content=({"type": "text", "text": event.content}, part))
        if isinstance(event, Message)
        else event
        for event in events
    ]


def append_bytes(path: Path, ledger: Ledger) -> None:
    """Batches with bytes, some of which are there already."""
    with open_at(path) as store:
        for n in range(3):
            batch = _with_bytes(batch_of(f"bytes-{n}", 3), b"shared" * 1_000 if n else b"first")
            recorded = store.append(
                "c1", batch, expected_version=ANY_VERSION, idempotency_key=f"bytes-{n}"
            )
            ledger.enter("c1", recorded[0].id, 3, f"bytes-{n}")


def append_deduped(path: Path, ledger: Ledger) -> None:
    """A batch that is sent again after a crash adds nothing that is there; the first one indexes
    what was before.
    """
    with open_at(path) as store:
        for n in range(2):
            batch = [
                replace(event, origin=Origin(format="source", id=f"{n}-{place}"))
                for place, event in enumerate(batch_of(f"source-{n}", 3))
            ]
            recorded = store.append("c1", batch, expected_version=ANY_VERSION, dedupe="origin")
            if recorded:
                ledger.enter("c1", recorded[0].id, 3, f"source-{n}")


def append_together(path: Path, ledger: Ledger) -> None:
    """Appends to several conversations at once, as the async face makes them; one of each group
    fails.
    """
    with open_at(path) as store:
        for n in range(2):
            names = {"c1": 3, "c2": 1, f"new-{n}": 2}
            works = [
                prepare_append(
                    store, name, batch_of(f"together-{n}", size), ANY_VERSION, f"together-{n}"
                )
                for name, size in names.items()
            ]
            works.insert(1, prepare_append(store, "c1", batch_of("stale", 1), 1))
            outcomes = append_all(store.database, works)
            assert isinstance(outcomes.pop(1).error, VersionConflict)
            for (name, size), outcome in zip(names.items(), outcomes, strict=True):
                ledger.enter(name, outcome.unwrap()[0].id, size, f"together-{n}")


def work(path: Path, ledger: Ledger) -> None:
    """A worker takes the lease that a killed one left, once its time has ended, appends, renews it
    and gives it back. Its thread is left out: the statements are the same each time.
    """
    with open_at(path) as store:
        history = Histories(store)["c1"]
        block = LeaseBlock(history, 0.02, 60, "worker")
        block._left.set()
        with block:
            for n in range(2):
                recorded = history.append(batch_of(f"work-{n}", 2), idempotency_key=f"work-{n}")
                ledger.enter("c1", recorded[0].id, 2, f"work-{n}")
                block.renew()
        assert history.current_lease() is None


def begin_conversations(path: Path, ledger: Ledger) -> None:
    with open_at(path) as store:
        for n in range(2):
            if store.version(f"new-{n}") == 0:
                store.append(f"new-{n}", batch_of("first", 4), expected_version=0)
                ledger.enter(f"new-{n}", 0, 4, "first")


def ingest(path: Path, ledger: Ledger) -> None:
    """A short history, in one transaction."""
    _ingest(path, ledger, "imported", 7)


def ingest_staged(path: Path, ledger: Ledger) -> None:
    """A history of several chunks, staged and then published."""
    _ingest(path, ledger, "imported", 22)
    with open_at(path) as store:
        ledger.append(store, "c1", "after", 2)


def ingest_tail(path: Path, ledger: Ledger) -> None:
    """What a source has grown by. Its chunks go in one by one, so each is a batch of its own."""
    _in_small_chunks()
    history = (
        batch_of("before", 12)
        + batch_of("tail-0", 5)
        + batch_of("tail-1", 5)
        + batch_of("tail-2", 3)
    )
    with open_at(path) as store:
        store.ingest("c1", history)
        for n, size in enumerate((5, 5, 3)):
            ledger.enter("c1", 12 + 5 * n, size, f"tail-{n}")


def _ingest(path: Path, ledger: Ledger, conversation: str, size: int) -> None:
    _in_small_chunks()
    with open_at(path) as store:
        store.ingest(conversation, batch_of("whole", size))
        ledger.enter(conversation, 0, size, "whole")


def catch_up(path: Path, ledger: Ledger) -> None:
    """A structural event stores the revisions that a writer without Views did not."""
    with open_store(f"sqlite:///{path}") as store:
        views = Views(store)
        assert len(views.current("c1")) > 0
        store.register(views)
        ledger.append(store, "c1", "after", 4)


def rebuild(path: Path, ledger: Ledger) -> None:
    """Revisions are made anew and swapped, and then again."""
    with open_store(f"sqlite:///{path}") as store:
        views = Views(store)
        assert views.rebuild("c1") == views.rebuild("c1") > 0
        views.current("c1")


SECRET = "secret~"


def _with_a_secret(path: Path) -> None:
    _in_small_chunks()
    _some_history(path)
    with open_at(path) as store:
        for n in range(40):
            store.append(
                "c1" if n % 2 else "secret",
                _with_bytes(
                    batch_of(f"mixed-{n}", 1, text=("public~" if n % 2 else SECRET) * (5 * n)),
                    ("public~" if n % 2 else SECRET).encode() * (30 * (n % 7)),
                ),
                expected_version=ANY_VERSION,
                idempotency_key=f"{n * 7 % 40}-{('public~' if n % 2 else SECRET) * 3}",
            )


def erase(path: Path, ledger: Ledger) -> None:
    with open_at(path) as store:
        erasure.erase(store, "secret", reason="asked to")
        ledger.append(store, "c1", "after", 2)
        vacuum(store)


def _with_a_secret_event(path: Path) -> None:
    _some_history(path)
    with open_at(path) as store:
        for n in range(30):
            store.append(
                "c2",
                batch_of(f"mixed-{n}", 1, text="public~" * (5 * n)),
                expected_version=ANY_VERSION,
            )
            if n == 20:
                _append_secret(store)
        store.fork("c1", 13, "f2")


def _append_secret(store: Store) -> None:
    secret = _with_bytes(batch_of("private", 1, text=SECRET * 300), (SECRET * 1_000).encode())
    store.append("c1", secret, expected_version=ANY_VERSION, idempotency_key=SECRET)


def redact(path: Path, ledger: Ledger) -> None:
    """An event of a conversation that has a fork is redacted, and its append is sent again."""
    with open_at(path) as store:
        redact_event(store, "c1", 12, reason="asked to", by="me")
        ledger.append(store, "c1", "after", 2)
        _append_secret(store)
        assert store.version("c1") == 16
        vacuum(store)


def fork(path: Path, ledger: Ledger) -> None:
    """A fork begins, and gets its first events."""
    with open_at(path) as store:
        with contextlib.suppress(VersionConflict):  # it was begun before the crash
            store.fork("c1", 12, "f")
        ledger.append(store, "f", "own", 3)


def _with_a_fork(path: Path) -> None:
    _some_history(path)
    with open_at(path) as store:
        store.fork("c1", 12, "f")
        store.append("c1", batch_of("private", 4, text=SECRET * 40), expected_version=12)


def detach(path: Path, ledger: Ledger) -> None:
    """A conversation is erased, and its fork keeps what it shares."""
    detachment._CHUNK, detachment.REST_S = 5, 0
    with open_at(path) as store:
        erasure.erase(store, "c1", reason="asked to", detach_forks=True)
        ledger.append(store, "f", "own", 3)
        assert store.version("f") == 15
        vacuum(store)


def _with_secret_forks(path: Path) -> None:
    """A conversation, a fork of it and a fork of that one; all hold the secret, and ``c2`` does
    not.
    """
    _some_history(path)
    with open_at(path) as store:
        store.append("c1", batch_of("private", 2, text=SECRET * 40), expected_version=12)
        for parent, at, name in (("c1", 14, "branch"), ("branch", 16, "leaf")):
            store.fork(parent, at, name)
            store.append(
                name, batch_of(f"private {name}", 2, text=SECRET * 40), expected_version=at
            )


def erase_with_forks(path: Path, ledger: Ledger) -> None:
    """A conversation is erased with its forks, and theirs."""
    importing.CHUNK, importing.REST_S = 2, 0
    with open_at(path) as store:
        erasure.erase(store, "c1", reason="asked to", with_forks=True)
        assert {row.id for row in store.conversations() if row.erased_at is not None} == {
            "c1",
            "branch",
            "leaf",
        }
        ledger.append(store, "c2", "after", 2)
        vacuum(store)


def migrate_new(path: Path, ledger: Ledger) -> None:
    """The first opening of a file that is not there."""
    with open_at(path) as store:
        store.append(
            "c1", batch_of("first", 1), expected_version=ANY_VERSION, idempotency_key="first"
        )
        ledger.enter("c1", 0, 1, "first")


SCENARIOS = {
    "append": Scenario(_some_history, append),
    "append_batches": Scenario(_some_history, append_batches),
    "append_and_write_back": Scenario(_some_history, append_and_write_back),
    "append_bytes": Scenario(_some_history, append_bytes),
    "append_deduped": Scenario(_some_history, append_deduped),
    "append_together": Scenario(_some_history, append_together),
    "work": Scenario(_some_history, work),
    "begin_conversations": Scenario(_some_history, begin_conversations),
    "ingest": Scenario(_some_history, ingest),
    "ingest_staged": Scenario(_some_history, ingest_staged),
    "ingest_tail": Scenario(_some_history, ingest_tail),
    "catch_up": Scenario(_without_views, catch_up, without_views=True),
    "rebuild": Scenario(_some_history, rebuild),
    "erase": Scenario(_with_a_secret, erase, erases=SECRET),
    "redact": Scenario(_with_a_secret_event, redact, erases=SECRET),
    "fork": Scenario(_some_history, fork),
    "detach": Scenario(_with_a_fork, detach, erases=SECRET),
    "erase_with_forks": Scenario(_with_secret_forks, erase_with_forks, erases=SECRET),
    "migrate_new": Scenario(_nothing, migrate_new),
}
