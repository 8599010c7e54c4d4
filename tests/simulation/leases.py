"""Leases against a model: workers with clocks of their own, which stand still for longer than the
time to live.

    python -m tests.simulation.leases --seed 1 --steps 100000 [--sqlite]

Everything is drawn from the seed, and nothing waits: time is a number. Before any transaction of a
worker another one may take a step. Each worker has a clock that is wrong by up to an hour, runs a
little too fast or too slow, and jumps. The model knows the one lease that counts: the last one that
was taken and not given back.
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

__all__ = ["Found", "run"]

_TTL_S = 10.0
_OF_WORLD = 400
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
}
_STEPS["administer"] = 1


class Found(AssertionError):
    """The product and the model differ."""


class _Worker:
    """A process: its clocks, its store, and its block, if it is in one."""

    def __init__(self, world, name, recorder):
        self.world, self.name, self.inner = world, name, recorder
        self.set_clock()
        self.begin_anew()

    def set_clock(self):
        draw = self.world.draw
        self.wrong_s = (
            0.0 if self.world.one_clock else draw.choice([0, draw.uniform(-3_600, 3_600)])
        )
        self.speed = 1.0 if self.world.one_clock else draw.uniform(0.9, 1.1)

    def wall(self):
        return _BEGAN + timedelta(seconds=self.wrong_s + self.world.now)

    def monotonic(self):
        return 77.0 + self.speed * self.world.now

    def begin_anew(self):
        """Begin as a new process does, which knows nothing of a former block."""
        self.seam = Seam(self.inner, shared=True)
        self.seam.arm(at_transaction=self.world.between)
        self.history = Histories(Store(self.seam, clock=self.wall))["c"]  # type: ignore[arg-type]
        self.block = None
        self.seen = None, 0.0


class _World:
    """Some workers on one store, and the model: whose lease counts, when it ends, who appended
    what.
    """

    def __init__(self, seed, recorders):
        self.draw = random.Random(seed)
        self.now, self.counts = 0.0, 0
        self.busy = []
        """The workers within a step: each waits for the next one."""
        self.one_clock = self.draw.random() < 0.3
        self.workers = [
            _Worker(self, name, recorder) for name, recorder in zip("abc", recorders, strict=True)
        ]
        self.valid = None
        self.until, self.of = _BEGAN, self.valid
        self.row = 0
        """A number for each form of the row, by which a worker tells whether it stood unchanged."""
        self.log = []
        self.erased = set()
        """The leases of erased conversations: their workers are refused, and they keep nobody."""

    def between(self):
        """Before a transaction of one worker let another one take a step."""
        others = [each for each in self.workers if each not in self.busy]
        if others and self.draw.random() < 0.15:
            self.step(self.draw.choice(others))

    def step(self, worker):
        kind = self.draw.choices(list(_STEPS), _STEPS.values())[0]
        self.busy.append(worker)
        try:
            with mock.patch.object(leases, "time", SimpleNamespace(monotonic=worker.monotonic)):
                getattr(self, "_" + kind.replace(" ", "_"))(worker)
        finally:
            self.busy.pop()
        if not self.busy:
            self.check(worker)

    def check(self, worker):
        if (
            self.one_clock
            and worker.block is not None
            and worker.block not in {self.valid, *self.erased}
        ):
            with mock.patch.object(leases, "time", SimpleNamespace(monotonic=worker.monotonic)):
                if worker.block.lease.held and self.valid is not None:
                    raise Found(
                        f"{worker.name} believes that it has the lease of {self.valid.lease.worker}"
                    )

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _begin(self, worker):
        if worker.block is not None and vars(worker.history).get("_lease_block") is worker.block:
            if worker.history._generation.fence is not None:
                return
            block = worker.block  # it waits
        else:
            block = leases.LeaseBlock(worker.history, _TTL_S, 1e8, worker.name)
            worker.seen = None, 0.0
        worker.block = block
        try:
            waits = block.attempt() is not None
        except ConversationErased:  # this worker met the erased one
            self._leave(worker)
            worker.begin_anew()
            return
        before, now = self.valid, worker.wall()
        stood_s = worker.monotonic() - worker.seen[1] if worker.seen[0] == self.row else 0.0
        ended = self.until <= now or stood_s > _TTL_S
        if waits:
            if before is None or before is block or (ended and worker.seen[0] == self.row):
                raise Found(f"{worker.name} waits, and the lease is free")
            if worker.seen[0] != self.row:
                worker.seen = self.row, worker.monotonic()
            return
        if before not in (None, block) and not ended:
            raise Found(
                f"{worker.name} took the lease of {before.lease.worker} before its time ended"
            )
        self.valid = block
        self._renewed(worker)

    def _append(self, worker):
        if worker.block is None or worker.history._generation.fence is None:
            return
        text = f"{worker.name} {self.counts}"
        self.counts += 1
        try:
            worker.history.append(Message(source="agent", content=text))
        except LeaseTaken:
            if self.valid is worker.block:
                raise Found(
                    f"an append of {worker.name} was refused, and its lease counts"
                ) from None
            return
        except ConversationErased:
            if not self.erased:
                raise Found(
                    f"an append of {worker.name} met an erasure that was not made"
                ) from None
            return
        self.log.append(text)
        if self.valid is not worker.block:
            other = None if self.valid is None else self.valid.lease.worker
            raise Found(f"{worker.name} appended, and the lease is that of {other}")

    def _renew(self, worker):
        if worker.block is None or worker.history._generation.fence is None:
            return
        renewed = worker.block.renew()
        if renewed is not (worker.block is self.valid):
            raise Found(f"the lease of {worker.name} was {'' if renewed else 'not '}renewed")
        if worker.block is self.valid:
            self._renewed(worker)

    def _renewed(self, worker):
        until = worker.wall() + timedelta(seconds=_TTL_S)
        self.row += (until, worker.block) != (self.until, self.of)
        self.until, self.of = until, worker.block

    def _leave(self, worker):
        if worker.block is not None:
            block, worker.block = worker.block, None
            block.leave()
            if self.valid is block:
                self.valid = None

    def _die(self, worker):
        if self.draw.random() < 0.3:
            worker.begin_anew()

    def _user(self, worker):
        text = f"user {self.counts}"
        self.counts += 1
        Histories(Store(worker.inner))["c"].append(Message(source="user", content=text))
        self.log.append(text)

    def _administer(self, worker):
        """Erase the conversation and begin it again, which has no lease; fork it, or take its last
        event back.
        """
        histories = Histories(Store(worker.inner))
        version = histories["c"].version()
        match self.draw.choice(["erase", "fork", "retract"]) if version else "":
            case "erase":
                histories.erase("c", reason="asked to", detach_forks=True)
                histories.create("c", replace_erased=True)
                self.log, self.valid, self.erased = [], None, {*self.erased, self.valid}
            case "fork":
                histories["c"].fork(self.draw.randrange(1, version + 1))
            case "retract":
                histories["c"].retract(version - 1)

    def _wait(self, worker):
        self.now += self.draw.uniform(0, _TTL_S / 2)

    def _stand_still(self, worker):
        self.now += self.draw.uniform(0, 4 * _TTL_S)

    def _set(self, worker):
        if self.draw.random() < 0.3:
            worker.wrong_s = 0.0 if self.one_clock else self.draw.uniform(-3_600, 3_600)


@contextmanager
def _recorders(*, sqlite):
    """Three recorders on one store; in memory they are one."""
    if not sqlite:
        yield [MemoryRecorder()] * 3
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        stores = [
            opened.enter_context(open_store(f"{folder}/s.db", durability="relaxed"))
            for _ in range(3)
        ]
        yield [store.database.recorder for store in stores]


def run(seed, steps, *, sqlite=False):
    """Take steps in one world after another. Return how many leases were taken. Raises
    ``Found``.
    """
    taken = 0
    thread = SimpleNamespace(start=lambda: None, is_alive=lambda: False)
    threads = SimpleNamespace(Event=threading.Event, Thread=lambda **_: thread)
    with mock.patch.object(leases, "threading", threads):
        for number in range(max(1, steps // _OF_WORLD)):
            with _recorders(sqlite=sqlite) as recorders:
                world = _World(f"{seed}/{number}", recorders)
                for place in range(min(steps, _OF_WORLD)):
                    try:
                        world.step(world.draw.choice(world.workers))
                    except Found as error:
                        raise Found(f"world {seed}/{number}, step {place}: {error}") from None
                stored = Histories(Store(recorders[0]))["c"].events()
                if [event.content for event in stored if isinstance(event, Message)] != world.log:
                    raise Found(
                        f"world {seed}/{number}: the log has other events than were acknowledged"
                    )
                taken += world.row
    return taken


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.leases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--sqlite", action="store_true", help="files, and not memory")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    taken = run(given.seed, given.steps, sqlite=given.sqlite)
    print(
        f"seed {given.seed}: {given.steps:,} steps, leases taken or renewed {taken:,} times,"
        " nothing found"
    )


if __name__ == "__main__":
    main()
