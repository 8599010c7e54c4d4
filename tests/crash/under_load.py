"""Kill writers at random moments while eight of them work on one store, again and again; then look
at everything.

Each writer has two threads, and does what writers do: single events and batches, on conversations
of its own and on shared ones, with expected versions, idempotency keys, races and leases, and
imports long enough to be staged. A follower reads along all the time, and must have seen in the end
what is there, in that order.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress

import foldlog.eventstore.log.importing
from foldlog import Histories, LeaseTaken
from foldlog.eventstore import ANY_VERSION, IdempotencyConflict, VersionConflict, open_store
from foldlog.eventstore.recorders.sqlite import checkpoints
from tests.at_once import at_once
from tests.crash.ledger import Ledger, batch_of, inspect, open_at

WRITERS = 8
THREADS = 2
SHARED = 5
CHUNK = 100
PAGES = 60


class Writer:
    """One thread of one life of one writer: whatever it names is named by no other."""

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
        name, size = self._next(), self._random.choice((1, 1, 4))
        conversation = self._shared()
        batch = batch_of(name, size, forgets=self._store.version(conversation) or 1)
        recorded = self._store.append(conversation, batch, expected_version=ANY_VERSION)
        self._ledger.enter(conversation, recorded[0].id, size, name)

    def _append_with_key(self):
        """As after an answer that was lost: the same again, which must be the same."""
        name, conversation = self._next(), self._shared()
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
        """Only workers with its lease append to this conversation: while one has it, a version that
        it read stays.
        """
        with suppress(LeaseTaken), self._driven.lease(ttl_s=0.5, wait_s=0):
            for _ in range(3):
                name, version = self._next(), self._driven.version()
                recorded = self._driven.append(batch_of(name, 2), expected_version=version)
                self._ledger.enter("driven", recorded[0].id, 2, name)

    def _import(self):
        name, size = self._next(), self._random.choice((3, CHUNK, 3 * CHUNK + 7))
        conversation = f"imported-{name}"
        self._store.ingest(conversation, batch_of(name, size))
        self._ledger.enter(conversation, 0, size, name)

    def _append(self, conversation, size, version):
        name = self._next()
        batch = batch_of(name, size, forgets=version or 1)
        recorded = self._store.append(conversation, batch, expected_version=version)
        if recorded[0].id != version:
            raise AssertionError(
                f"expected version {version} of {conversation}, was given id {recorded[0].id}"
            )
        self._ledger.enter(conversation, version, size, name)

    def _shared(self):
        return f"shared-{self._random.randrange(SHARED)}"

    def _next(self):
        self._batches += 1
        return f"{self._name}.{self._batches}"


def write(folder, name):
    """The life of a writer process: it ends by SIGKILL, or by the first error, which it leaves in a
    file.
    """
    foldlog.eventstore.log.importing.CHUNK = CHUNK
    checkpoints.AT = PAGES  # so that many are killed while they write the log back
    ledger = Ledger(folder / f"{name}.ledger")
    file = folder / "store.db"
    with open_at(file) as store:

        def work(thread):
            try:
                Writer(store, ledger, f"{name}-{thread}", file).write_for_ever()
            except BaseException as error:  # noqa: BLE001 - the parent is told
                (folder / f"{name}-{thread}.error").write_text(f"{type(error).__name__}: {error}\n")
                os._exit(1)

        at_once(work, range(THREADS))


def visit(path):
    """The life of a process that ends in order: if it is the last one, SQLite removes the log."""
    with open_at(path) as store:
        store.version("driven")


def open_and_close(path):
    """Take SQLite's locks away from this process, as an application's copy of the file does."""
    if sys.platform == "linux":  # elsewhere it may cost events: docs/errors.md
        path.open("rb").close()


class Follower:
    """Reads along, in a thread of this process, and remembers what it saw."""

    def __init__(self, path):
        self.seen = []
        self._path = path
        self._store = open_store(f"sqlite:///{path}")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            self.catch_up()
            open_and_close(self._path)
            time.sleep(0.002)

    def catch_up(self):
        after = self.seen[-1][0] if self.seen else 0
        self.seen += [(r.position, r.conversation, r.id) for r in self._store.follow(after)]

    def end(self):
        self._ended.set()
        self._thread.join()
        self.catch_up()
        self._store.close()


def run(folder, *, events, kills, seconds, seed):
    """Goes on until there are so many acknowledged events and kills, and so much time has passed;
    returns findings.
    """
    at = random.Random(seed)
    path = folder / "store.db"
    open_at(path).close()
    spawned = multiprocessing.get_context("forkserver")
    spawned.set_forkserver_preload(["foldlog.eventstore"])
    lives = 0

    def start():
        nonlocal lives
        lives += 1
        writer = spawned.Process(target=write, args=(folder, f"life{lives:04}"), daemon=True)
        writer.start()
        return writer

    follower = Follower(path)
    writers = [start() for _ in range(WRITERS)]
    killed, findings, begun = 0, [], time.monotonic()
    while True:
        time.sleep(at.expovariate(5))
        spawned.Process(target=visit, args=(path,), daemon=True).start()
        victim = at.randrange(WRITERS)
        writers[victim].kill()
        writers[victim].join()
        if writers[victim].exitcode != -signal.SIGKILL:
            findings += _errors(folder) or [
                f"a writer ended by itself, with {writers[victim].exitcode}"
            ]
        killed += 1
        enough = killed >= kills and time.monotonic() - begun >= seconds
        if findings or (enough and sum(a.size for a in Ledger.read(folder)) >= events):
            break
        writers[victim] = start()
    for writer in writers:
        writer.kill()
        writer.join()
    follower.end()
    elapsed = time.monotonic() - begun
    acknowledged = Ledger.read(folder)
    findings += _errors(folder)
    findings += inspect(path, acknowledged)
    with open_store(f"sqlite:///{path}") as store:
        there = [(r.position, r.conversation, r.id) for r in store.follow()]
    if there != follower.seen:
        wrong = next(
            (n for n, (a, b) in enumerate(zip(there, follower.seen, strict=False)) if a != b),
            len(there),
        )
        findings.append(
            f"the follower saw {len(follower.seen)} events of {len(there)}; the first difference is"
            f" at {wrong}: it saw {follower.seen[wrong : wrong + 2]}, there is"
            f" {there[wrong : wrong + 2]}"
        )
    print(
        f"{killed + WRITERS - 1} writers killed in {elapsed:.0f} s;"
        f" {sum(a.size for a in acknowledged):,} events in {len(acknowledged):,} calls"
        f" acknowledged, {len(there):,} there, all followed in order; {len(findings)} findings"
        f" (seed {seed})"
    )
    return findings


def _errors(folder):
    return [f"{path.stem}: {path.read_text().strip()}" for path in sorted(folder.glob("*.error"))]
