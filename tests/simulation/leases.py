"""Compare leases with a model: workers have different clocks, and pause for longer than the time to
live of a lease.

    python -m tests.simulation.leases --seed 1 --steps 100000 [--sqlite]

The seed determines everything, and nothing waits: time is a number. Before any transaction of a
worker another worker may take a step. Each worker has a clock that is wrong by up to an hour, runs
a little too fast or too slow, and jumps. The model has the one valid lease: the last one that was
taken and not given back.
"""

import argparse
import logging
import random
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from unittest import mock

from foldlog import ConversationErased, Histories, LeaseTaken, Message, Store
from foldlog._history import lease as leases
from foldlog.eventstore import open_store
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from tests.simulation.seam import Seam

_TTL_S = 10.0
_STEPS_OF_WORLD = 400
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_STEPS = {
    "begin": 4,
    "append": 8,
    "renew": 4,
    "leave": 1,
    "die": 1,
    "user": 1,
    "wait": 6,
    "stand still": 1,
    "set": 1,
    "administer": 1,
}


class Mismatch(AssertionError):
    """The product and the model differ."""


class _Worker:
    """A process: its clocks, its store, and its lease block, if it is in one."""

    def __init__(self, world, name, recorder):
        self.world = world
        self.name = name
        self.inner = recorder
        self.offset_s = 0.0
        self.speed = 1.0
        if not world.one_clock:
            self.offset_s = world.rng.choice([0, world.rng.uniform(-3_600, 3_600)])
            self.speed = world.rng.uniform(0.9, 1.1)
        self.restart()

    def wall(self):
        return _BEGAN + timedelta(seconds=self.offset_s + self.world.now)

    def monotonic(self):
        return 77.0 + self.speed * self.world.now

    def restart(self):
        """Begin as a new process, which does not have the former block."""
        self.seam = Seam(self.inner, shared=True)
        self.seam.arm(at_transaction=self.world.between)
        self.history = Histories(Store(self.seam, clock=self.wall))["c"]  # type: ignore[arg-type]
        self.block = None
        self.seen = None, 0.0
        """The number of the lease row that it saw last, and when it first saw it."""


class _World:
    """Some workers on one store, and the model: whose lease is valid, when it ends, and who
    appended what.
    """

    def __init__(self, seed, recorders):
        self.rng = random.Random(seed)
        self.now = 0.0
        self.texts = 0
        self.busy = []
        """The workers within a step: each waits for the step of the next one."""
        self.one_clock = self.rng.random() < 0.3
        self.workers = [
            _Worker(self, name, recorder) for name, recorder in zip("abc", recorders, strict=True)
        ]
        self.valid = None
        """The block that has the valid lease."""
        self.row = _BEGAN, None
        """The stored row of the lease: when it ends, and its block."""
        self.row_number = 0
        """Counts the changes of the row, so that a worker sees whether it stood unchanged."""
        self.log = []
        self.erased = set()
        """The blocks of erased conversations: their appends are refused, and nobody waits for
        them.
        """

    def between(self):
        """Let another worker take a step before a transaction of one worker."""
        others = [worker for worker in self.workers if worker not in self.busy]
        if others and self.rng.random() < 0.15:
            self.step(self.rng.choice(others))

    def step(self, worker):
        kind = self.rng.choices(list(_STEPS), _STEPS.values())[0]
        self.busy.append(worker)
        try:
            with _clock_of(worker):
                getattr(self, "_" + kind.replace(" ", "_"))(worker)
        finally:
            self.busy.pop()
        if not self.busy:
            self.check(worker)

    def check(self, worker):
        if not self.one_clock or self.valid is None:
            return
        if worker.block is None or worker.block in {self.valid, *self.erased}:
            return
        with _clock_of(worker):
            if worker.block.lease.held:
                raise Mismatch(
                    f"{worker.name} believes that it has the lease of {self.valid.lease.worker}"
                )

    # ----------------------------------------------------------------------------------- steps

    def _begin(self, worker):
        if worker.block is not None and worker.history._lease_block is worker.block:
            if worker.history._fence is not None:
                return
            block = worker.block  # it waits for a lease
        else:
            block = leases.LeaseBlock(worker.history, _TTL_S, 1e8, worker.name)
            worker.seen = None, 0.0
        worker.block = block
        try:
            waits = block.attempt() is not None
        except ConversationErased:  # this worker met the erased one
            self._leave(worker)
            worker.restart()
            return
        until, _ = self.row
        seen_number, seen_at = worker.seen
        is_unchanged = seen_number == self.row_number
        has_ended = until <= worker.wall()
        if is_unchanged and worker.monotonic() - seen_at > _TTL_S:
            has_ended = True
        is_free = self.valid in (None, block)
        if waits:
            if is_free or (has_ended and is_unchanged):
                raise Mismatch(f"{worker.name} waits, and the lease is free")
            if not is_unchanged:
                worker.seen = self.row_number, worker.monotonic()
            return
        if not is_free and not has_ended:
            raise Mismatch(
                f"{worker.name} took the lease of {self.valid.lease.worker} before its time ended"
            )
        self.valid = block
        self._store_row(worker)

    def _append(self, worker):
        if worker.block is None or worker.history._fence is None:
            return
        text = f"{worker.name} {self.texts}"
        self.texts += 1
        try:
            worker.history.append(Message(source="agent", content=text))
        except LeaseTaken:
            if self.valid is worker.block:
                raise Mismatch(
                    f"an append of {worker.name} was refused, and its lease is valid"
                ) from None
            return
        except ConversationErased:
            if not self.erased:
                raise Mismatch(
                    f"an append of {worker.name} met an erasure that was not made"
                ) from None
            return
        self.log.append(text)
        if self.valid is not worker.block:
            other = None if self.valid is None else self.valid.lease.worker
            raise Mismatch(f"{worker.name} appended, but {other} has the lease")

    def _renew(self, worker):
        if worker.block is None or worker.history._fence is None:
            return
        renewed = worker.block.renew()
        if renewed is not (worker.block is self.valid):
            raise Mismatch(f"the lease of {worker.name} was {'' if renewed else 'not '}renewed")
        if renewed:
            self._store_row(worker)

    def _store_row(self, worker):
        row = worker.wall() + timedelta(seconds=_TTL_S), worker.block
        self.row_number += row != self.row
        self.row = row

    def _leave(self, worker):
        if worker.block is not None:
            block = worker.block
            worker.block = None
            block.leave()
            if self.valid is block:
                self.valid = None

    def _die(self, worker):
        if self.rng.random() < 0.3:
            worker.restart()

    def _user(self, worker):
        text = f"user {self.texts}"
        self.texts += 1
        Histories(Store(worker.inner))["c"].append(Message(source="user", content=text))
        self.log.append(text)

    def _administer(self, worker):
        """Erase the conversation and begin it again without a lease; or fork it; or retract its
        last event.
        """
        histories = Histories(Store(worker.inner))
        version = histories["c"].version()
        match self.rng.choice(["erase", "fork", "retract"]) if version else "":
            case "erase":
                histories.erase("c", reason="asked to", detach_forks=True)
                histories.create("c", replace_erased=True)
                self.log = []
                self.erased.add(self.valid)
                self.valid = None
            case "fork":
                histories["c"].fork(self.rng.randrange(1, version + 1))
            case "retract":
                histories["c"].retract(version - 1)

    def _wait(self, worker):
        self.now += self.rng.uniform(0, _TTL_S / 2)

    def _stand_still(self, worker):
        self.now += self.rng.uniform(0, 4 * _TTL_S)

    def _set(self, worker):
        if self.rng.random() < 0.3:
            worker.offset_s = 0.0 if self.one_clock else self.rng.uniform(-3_600, 3_600)


def _clock_of(worker):
    clock = SimpleNamespace(monotonic=worker.monotonic)
    return mock.patch.object(leases, "time", clock)


@contextmanager
def _recorders(*, sqlite):
    """Yield three recorders of one store. In memory they are one recorder."""
    if not sqlite:
        yield [MemoryRecorder()] * 3
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_stores:
        stores = [
            open_stores.enter_context(open_store(f"{folder}/s.db", durability="relaxed"))
            for _ in range(3)
        ]
        yield [store.database.recorder for store in stores]


def run(seed, steps, *, sqlite=False):
    """Take steps in one world after another. Return how many leases were taken or renewed. Raises
    ``Mismatch``.
    """
    count = 0
    thread = SimpleNamespace(start=lambda: None, is_alive=lambda: False, ident=None)
    threads = SimpleNamespace(Event=threading.Event, Thread=lambda **_: thread)
    with mock.patch.object(leases, "threading", threads):
        for number, first in enumerate(range(0, steps, _STEPS_OF_WORLD)):
            with _recorders(sqlite=sqlite) as recorders:
                world = _World(f"{seed}/{number}", recorders)
                for place in range(min(steps - first, _STEPS_OF_WORLD)):
                    try:
                        world.step(world.rng.choice(world.workers))
                    except Mismatch as error:
                        raise Mismatch(f"world {seed}/{number}, step {place}: {error}") from None
                stored = Histories(Store(recorders[0]))["c"].events()
                if [event.content for event in stored if isinstance(event, Message)] != world.log:
                    raise Mismatch(
                        f"world {seed}/{number}: the log has other events than were acknowledged"
                    )
                count += world.row_number
    return count


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.leases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--sqlite", action="store_true", help="files, and not memory")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    count = run(arguments.seed, arguments.steps, sqlite=arguments.sqlite)
    print(
        f"seed {arguments.seed}: {arguments.steps:,} steps, leases taken or renewed {count:,} times,"
        " nothing found"
    )


if __name__ == "__main__":
    main()
