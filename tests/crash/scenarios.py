"""The work of a process that is killed. Each scenario can be repeated from the start, as a client does
after a crash, and then ends as it would have ended without the crash.
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from foldlog.eventstore import ANY_VERSION
from foldlog.eventstore.log import importing, streams
from foldlog.eventstore.maintenance import erase as erasure
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.recorders.sqlite import log_checkpoints
from tests.crash.ledger import Ledger, batch_of, open_at


class Scenario(NamedTuple):
    prepare: Callable[[Path], None]
    run: Callable[[Path, Ledger], None]
    erases: str = ""
    """A text that the files have before the scenario, and not after it."""


def _prepare_nothing(path):
    """Begin without a file."""


def _prepare_history(path):
    with open_at(path) as store:
        store.append("c1", batch_of("before", 12), expected_version=0)
        store.append("c2", batch_of("before", 2), expected_version=0)


def append(path, ledger):
    with open_at(path) as store:
        for n in range(3):
            ledger.append(store, "c1", f"single-{n}", 1)


def append_batches(path, ledger):
    with open_at(path) as store:
        for n in range(2):
            at = 12 + 14 * n
            if store.version("c1") == at:
                recorded = store.append("c1", batch_of(f"batch-{n}", 14), expected_version=at)
                ledger.enter("c1", recorded[0].id, 14, f"batch-{n}")


def append_and_write_back(path, ledger):
    """After each append, write the log back into the database while commits go on."""
    log_checkpoints.AT = 1
    with open_at(path) as store:
        for n in range(3):
            ledger.append(store, "c1", f"single-{n}", 1)
            for thread in threading.enumerate():
                if thread.name == log_checkpoints.THREAD:
                    thread.join()


def _import_in_small_chunks():
    importing.CHUNK = 5
    importing.REST_S = 0


def ingest_staged(path, ledger):
    """Import a history of several chunks, which is staged and then published."""
    _import_in_small_chunks()
    with open_at(path) as store:
        store.ingest("imported", batch_of("whole", 22))
        ledger.enter("imported", 0, 22, "whole")
        ledger.append(store, "c1", "after", 2)


def ingest_tail(path, ledger):
    """Import the events that a source has grown by. Each chunk is committed alone, so it is a batch."""
    _import_in_small_chunks()
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


SECRET = "secret~"


def _prepare_secret(path):
    _import_in_small_chunks()
    _prepare_history(path)
    with open_at(path) as store:
        for n in range(40):
            text = "public~" if n % 2 else SECRET
            (event,) = batch_of(f"mixed-{n}", 1)
            parts = (
                {"type": "text", "text": text * (5 * n)},
                {"type": "raw", "data": text.encode() * (30 * (n % 7))},
            )
            store.append(
                "c1" if n % 2 else "secret",
                replace(event, content=parts),
                expected_version=ANY_VERSION,
                idempotency_key=f"{n * 7 % 40}-{text * 3}",
            )


def erase(path, ledger):
    with open_at(path) as store:
        erasure.erase(store, "secret", reason="asked to")
        ledger.append(store, "c1", "after", 2)
        vacuum(store)


def stream(path, ledger):
    """Write two replies piece by piece, and append each with the end of its stream. What a crash left
    unfinished is written on.
    """
    with open_at(path) as store:
        for n in range(2):
            name = f"streamed-{n}"
            if store.recorded("c1", name):
                continue
            written = store.query("c1", lambda reading: streams.newest(reading, "reply"))
            if written is None or written.closed_at is not None:
                written = store.project("c1", _begin_reply)
            while written.end < 3:
                place = {"number": written.number, "begins": written.end}
                written = store.project("c1", partial(streams.append, **place, units=1, body=b"x"))
            recorded = store.append(
                "c1",
                batch_of(name, 1),
                expected_version=ANY_VERSION,
                idempotency_key=name,
                also=partial(streams.close, number=written.number, end=3),
            )
            ledger.enter("c1", recorded[0].id, 1, name)


def _begin_reply(writing):
    return streams.begin(writing, "reply", "text/plain")


def migrate_new(path, ledger):
    """Open a file that does not exist."""
    with open_at(path) as store:
        ledger.append(store, "c1", "first", 1)


SCENARIOS = {
    "append": Scenario(_prepare_history, append),
    "append_batches": Scenario(_prepare_history, append_batches),
    "append_and_write_back": Scenario(_prepare_history, append_and_write_back),
    "ingest_staged": Scenario(_prepare_history, ingest_staged),
    "ingest_tail": Scenario(_prepare_history, ingest_tail),
    "erase": Scenario(_prepare_secret, erase, erases=SECRET),
    "stream": Scenario(_prepare_history, stream),
    "migrate_new": Scenario(_prepare_nothing, migrate_new),
}
