"""Kill eight writers of one store at random moments, start them again, and then check everything.

Each writer has two threads. They append single events and batches to their own and to shared
conversations, with expected versions, idempotency keys, races and leases, and import histories that
are long enough to be staged. A follower reads all the time. In the end it must have read the events
of the store in their order.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import count

import foldlog.eventstore.log.importing
from foldlog import Histories, LeaseTaken
from foldlog.eventstore import ANY_VERSION, IdempotencyConflict, VersionConflict, open_store
from foldlog.eventstore.recorders.sqlite import log_checkpoints
from tests.at_once import at_once
from tests.crash.ledger import Ledger, batch_of, inspect, open_at

WRITERS = 8
THREADS = 2
SHARED = 5
CHUNK = 100
PAGES = 60


class Writer:
    """One thread of a writer process. Its name is unique, and so are the names that it makes."""

    def __init__(self, store, ledger, name, file):
        self._store = store
        self._file = file
        self._ledger = ledger
        self._name = name
        self._random = random.Random(name)
        self._batches = 0
        self._own = f"own-{name}"
        self._driven = Histories(store)["driven"]

    def write_for_ever(self):
        kinds = [
            self._append_to_own,
            self._append_to_shared,
            self._append_to_shared,
            self._append_with_key,
            self._race,
            self._drive,
        ]
        kinds.append(lambda: open_and_close(self._file))
        while True:
            if self._random.random() < 0.02:
                self._import()
            else:
                self._random.choice(kinds)()

    def _append_to_own(self):
        size = self._random.choice((1, 1, 1, 5, 20))
        self._append(self._own, size, self._store.version(self._own))

    def _append_to_shared(self):
        name = self._next()
        size = self._random.choice((1, 1, 4))
        conversation = self._shared()
        batch = batch_of(name, size, forgets=self._store.version(conversation) or 1)
        recorded = self._store.append(conversation, batch, expected_version=ANY_VERSION)
        self._ledger.enter(conversation, recorded[0].id, size, name)

    def _append_with_key(self):
        """Repeat an append, as after a lost answer: it must return the same events."""
        name = self._next()
        conversation = self._shared()
        first = self._store.append(
            conversation, batch_of(name, 2), expected_version=ANY_VERSION, idempotency_key=name
        )
        self._ledger.enter(conversation, first[0].id, 2, name)
        again = self._store.append(
            conversation, batch_of(name, 2), expected_version=0, idempotency_key=name
        )
        if again != first:
            raise AssertionError(f"the same key gave {again}, and before it {first}")
        try:
            self._store.append(
                conversation, batch_of(name, 3), expected_version=ANY_VERSION, idempotency_key=name
            )
        except IdempotencyConflict:
            return
        raise AssertionError(f"key {name} took other events")

    def _race(self):
        conversation = self._shared()
        for _ in range(3):
            try:
                self._append(conversation, 1, self._store.version(conversation))
            except VersionConflict:
                continue
            return

    def _drive(self):
        """Append under the lease of a conversation: nobody else may append between a read of the
        version and the append.
        """
        with suppress(LeaseTaken), self._driven.lease(ttl_s=0.5, wait_s=0):
            for _ in range(3):
                name = self._next()
                version = self._driven.version()
                recorded = self._driven.append(batch_of(name, 2), expected_version=version)
                self._ledger.enter("driven", recorded[0].id, 2, name)

    def _import(self):
        name = self._next()
        size = self._random.choice((3, CHUNK, 3 * CHUNK + 7))
        conversation = f"imported-{name}"
        self._store.ingest(conversation, batch_of(name, size))
        self._ledger.enter(conversation, 0, size, name)

    def _append(self, conversation, size, version):
        name = self._next()
        batch = batch_of(name, size, forgets=version or 1)
        recorded = self._store.append(conversation, batch, expected_version=version)
        if recorded[0].id != version:
            raise AssertionError(
                f"expected version {version} of {conversation}, got id {recorded[0].id}"
            )
        self._ledger.enter(conversation, version, size, name)

    def _shared(self):
        return f"shared-{self._random.randrange(SHARED)}"

    def _next(self):
        self._batches += 1
        return f"{self._name}.{self._batches}"


def write(folder, name):
    """Run a writer process until SIGKILL or the first error, which it writes into a file."""
    foldlog.eventstore.log.importing.CHUNK = CHUNK
    log_checkpoints.AT = PAGES  # many are then killed while they write back
    ledger = Ledger(folder / f"{name}.ledger")
    file = folder / "store.db"
    with open_at(file) as store:

        def work(thread):
            try:
                Writer(store, ledger, f"{name}-{thread}", file).write_for_ever()
            except BaseException as error:  # noqa: BLE001 - a file tells the parent
                (folder / f"{name}-{thread}.error").write_text(f"{type(error).__name__}: {error}\n")
                os._exit(1)

        at_once(work, range(THREADS))


def visit(path):
    """Open and close the store. If no other process has it open, SQLite removes the log."""
    with open_at(path) as store:
        store.version("driven")


def open_and_close(path):
    """Make this process lose SQLite's locks, as an application does that copies the file."""
    if sys.platform == "linux":  # on other systems events may be lost: docs/errors.md
        path.open("rb").close()


def places(rows):
    return [(row.position, row.conversation, row.id) for row in rows]


class Follower:
    """Follows the store in a thread of this process. ``end`` raises what the thread has raised."""

    def __init__(self, path):
        self.events = []
        """(position, conversation, id) of each event that it has read"""
        self._errors = []
        self._path = path
        self._store = open_store(f"sqlite:///{path}")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop.is_set():
                self.catch_up()
                open_and_close(self._path)
                time.sleep(0.002)
        except Exception as error:  # noqa: BLE001 - raised again by ``end``
            self._errors.append(error)

    def catch_up(self):
        after = self.events[-1][0] if self.events else 0
        self.events += places(self._store.follow(after))

    def end(self):
        self._stop.set()
        self._thread.join()
        if self._errors:
            raise self._errors[0]
        self.catch_up()
        self._store.close()


def run(folder, *, events, kills, seconds, seed):
    """Run at least until there are so many acknowledged events and kills, and so much time has
    passed. Return the findings.
    """
    rng = random.Random(seed)
    path = folder / "store.db"
    open_at(path).close()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["foldlog.eventstore"])
    numbers = count(1)

    def start(work, *arguments):
        process = context.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def start_writer():
        return start(write, folder, f"writer{next(numbers):04}")

    follower = Follower(path)
    writers = [start_writer() for _ in range(WRITERS)]
    visitors = []
    killed = 0
    findings = []
    began = time.monotonic()
    while True:
        time.sleep(rng.expovariate(5))
        visitors.append(start(visit, path))
        victim = rng.randrange(WRITERS)
        writers[victim].kill()
        writers[victim].join()
        if writers[victim].exitcode != -signal.SIGKILL:
            exit_code = writers[victim].exitcode
            findings += _errors(folder) or [f"a writer ended by itself, with {exit_code}"]
        killed += 1
        enough = killed >= kills and time.monotonic() - began >= seconds
        if findings or (enough and sum(entry.size for entry in Ledger.read(folder)) >= events):
            break
        writers[victim] = start_writer()
    for writer in writers:
        writer.kill()
        writer.join()
    for visitor in visitors:
        visitor.join()
        if visitor.exitcode != 0:
            findings.append(f"a process that opened and closed the store: {visitor.exitcode}")
    follower.end()
    elapsed = time.monotonic() - began
    acknowledged = Ledger.read(folder)
    findings += _errors(folder)
    findings += inspect(path, acknowledged)
    with open_store(f"sqlite:///{path}") as store:
        stored = places(store.follow())
    if stored != follower.events:
        pairs = enumerate(zip(stored, follower.events, strict=False))
        first = next((number for number, (ours, theirs) in pairs if ours != theirs), len(stored))
        findings.append(
            f"the follower read {len(follower.events)} events of {len(stored)}; the first"
            f" difference is at {first}: it read {follower.events[first : first + 2]}, not"
            f" {stored[first : first + 2]}"
        )
    print(
        f"{killed + WRITERS - 1} writers killed in {elapsed:.0f} s;"
        f" {sum(entry.size for entry in acknowledged):,} events in {len(acknowledged):,} calls"
        f" acknowledged, {len(stored):,} stored, all followed in order; {len(findings)} findings"
        f" (seed {seed})"
    )
    return findings


def _errors(folder):
    return [f"{path.stem}: {path.read_text().strip()}" for path in sorted(folder.glob("*.error"))]
