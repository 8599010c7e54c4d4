"""Workers that pay and are killed at random moments: ``python -m tests.crash.effects --kills
1000``.

Four processes run the same conversations of one store under leases, and pay what the model asks for.
They are killed at random and started again until each payment is made or in doubt. No payment may be
made twice, and a payment that is missing must be in doubt.
"""

import argparse
import fcntl
import json
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import foldlog
from foldlog import LeaseTaken

WORKERS = 4
CONVERSATIONS = 8
PAYMENTS = 6
_SLOW_S = 0.004
"""How long a payment takes before and after it is booked, so that kills come there too."""


class Outcome(NamedTuple):
    """The numbers of a run."""

    kills: int
    twice: int
    """Payments that were made twice."""
    lost: int
    """Payments that are missing and not in doubt."""
    doubts: int
    """Payments in doubt."""
    paid_in_doubt: int
    """Payments in doubt that were made."""


class Payments:
    """The tools of an agent, which pay through a system that books its payments."""

    def pay(self, to):
        return self._book(to, None)

    def pay_once(self, to, key):
        """Pay through a system that refuses a key that it has booked."""
        return self._book(to, key, refuses_keys=True)

    def pay_noting(self, to, key):
        """Pay through a system that books the key, and books the same key again."""
        return self._book(to, key)


class Bank(Payments):
    """A file with a line for each payment, which all processes append to."""

    def __init__(self, path):
        self._path = path

    def lines(self):
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def look_up(self, key, call):
        return next((f"paid {line['to']}" for line in self.lines() if line["key"] == key), None)

    def _book(self, to, key, *, refuses_keys=False):
        time.sleep(_SLOW_S)
        with self._path.open("a") as bank:
            fcntl.flock(bank, fcntl.LOCK_EX)
            if not refuses_keys or all(line["key"] != key for line in self.lines()):
                bank.write(json.dumps({"to": to, "key": key}) + "\n")
                bank.flush()
        time.sleep(_SLOW_S)
        return f"paid {to}"


MODES = {
    "never": lambda bank: (bank.pay, {}),
    "same key": lambda bank: (bank.pay_once, {"repeat": "same key"}),
    "check": lambda bank: (bank.pay_noting, {"check": bank.look_up}),
}


def work(url, bank, mode, seed):
    """Run the conversations until nothing is left to pay."""
    tool, options = MODES[mode](bank)
    names = [f"c{number}" for number in range(CONVERSATIONS)]
    random.Random(seed).shuffle(names)
    with foldlog.open(url) as histories:
        while names:
            history = histories[names[0]]
            try:
                with history.lease(ttl_s=2, wait_s=0):
                    _turn(history, tool, options)
            except LeaseTaken:  # perhaps by a killed worker, for up to two seconds
                time.sleep(0.05)
            if len(history.effects()) == PAYMENTS and not history.open_calls():
                names.pop(0)
            else:
                names.append(names.pop(0))


def _turn(history, tool, options):
    for call in history.open_calls():
        history.run(call, tool, **options)
    number = len(history.effects())
    if number < PAYMENTS:
        function = {"name": "pay", "arguments": json.dumps({"to": f"{history.id}-{number}"})}
        call = {"id": f"call-{number}", "type": "function", "function": function}
        history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
        history.run(history.open_calls()[0], tool, **options)


def pay_with_kills(mode, kills, seed):
    """Let four workers pay, and kill workers at random moments: as often as ``kills`` says, or until
    everything is paid. Raises ``ChildProcessError`` if a worker failed by itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db"
        bank = Bank(Path(folder) / "bank")
        workers = _Workers(url, bank, mode, seed)
        try:
            killed = workers.kill_some(kills)
            workers.wait()
        finally:
            workers.end()
        work(url, bank, mode, seed)
        return _outcome(url, bank, killed)


class _Workers:
    """The processes of the workers that run now."""

    def __init__(self, url, bank, mode, seed):
        self._arguments = (url, bank, mode)
        self._seed = seed
        self._random = random.Random(seed)
        self._pids = set()

    def kill_some(self, kills):
        """Start workers, and kill one after another, until one has finished or so many are killed.
        Return how many were killed.
        """
        killed = 0
        while True:
            while len(self._pids) < WORKERS:
                self._seed += 1
                self._pids.add(_start(*self._arguments, self._seed))
            time.sleep(self._random.uniform(0.01, 0.06))
            finished = [pid for pid in sorted(self._pids) if self._has_finished(pid, os.WNOHANG)]
            if finished or killed >= kills:
                return killed
            victim = self._random.choice(sorted(self._pids))
            os.kill(victim, signal.SIGKILL)
            self._has_finished(victim)
            killed += 1

    def wait(self):
        """Wait until all workers have finished."""
        for pid in sorted(self._pids):
            self._has_finished(pid)

    def end(self):
        """Kill the workers that still run, because a worker has failed."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _has_finished(self, pid, options=0):
        """Return whether a worker has ended, which must have succeeded or been killed."""
        ended, status = os.waitpid(pid, options)
        if not ended:
            return False
        self._pids.discard(pid)
        exit_code = os.waitstatus_to_exitcode(status)
        if exit_code not in (0, -signal.SIGKILL):
            raise ChildProcessError(f"a worker ended with {exit_code}")
        return True


def _start(url, bank, mode, seed):
    pid = os.fork()
    if pid:
        return pid
    try:
        work(url, bank, mode, seed)
    except BaseException:  # noqa: BLE001 - the status tells the parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _outcome(url, bank, kills):
    paid = Counter(line["to"] for line in bank.lines())
    expected = {
        f"c{number}-{payment}" for number in range(CONVERSATIONS) for payment in range(PAYMENTS)
    }
    with foldlog.open(url) as histories:
        doubts = {
            effect.call.arguments["to"]
            for name in histories
            for effect in histories[name].effects("unknown")
        }  # type: ignore[index,call-overload]
    twice = sum(count > 1 for count in paid.values())
    return Outcome(
        kills, twice, len(expected - paid.keys() - doubts), len(doubts), len(doubts & paid.keys())
    )


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.crash.effects")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    for mode in MODES:
        total = Outcome(0, 0, 0, 0, 0)
        runs = 0
        while total.kills < options.kills / len(MODES):
            outcome = pay_with_kills(mode, 25, options.seed + runs)
            total = Outcome(*map(sum, zip(total, outcome, strict=True)))
            runs += 1
        print(f"{mode}: {runs} runs of {CONVERSATIONS * PAYMENTS} payments, {total}", flush=True)
        failed += total.twice + total.lost
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
