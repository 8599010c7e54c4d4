"""Hostile input to everything that reads input, by the million.

    python -m tests.fuzz [--inputs 1000000] [--seed 1] [--target NAME] [--from N]

Ends with a table of what came of them, and with exit status 1 if anything came that may not: an
error that is not of ours, more than 5 s, more memory than 2 GiB. ``--from N --inputs 1`` tries one
input again.
"""

import argparse
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict

from tests.fuzz.targets import TARGETS, warm_up

_SECONDS_MAX = 5
"""Of the processor's time: the machine may be busy."""
_WAIT_MAX = 120
_MEMORY_MAX = 2 * 2**30
_FAILURES_SHOWN = 10


class TooSlow(BaseException):
    """An input took longer than any may."""


def _too_slow(_, frame):
    raise TooSlow(f"over {_SECONDS_MAX} s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="start")
    parser.add_argument("--target", choices=list(TARGETS))
    arguments = parser.parse_args()
    os.environ.pop("FOLDLOG_DB", None)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
    for stops in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(stops, _too_slow)
    warm_up()
    names = (
        [arguments.target]
        if arguments.target
        else [n for n, t in TARGETS.items() for _ in range(t.share)]
    )
    outcomes = defaultdict(Counter)
    slowest = defaultdict(float)
    failures = 0
    began = time.monotonic()
    for number in range(arguments.start, arguments.start + arguments.inputs):
        # Shares are spread evenly: a stride that has no factor in common with a hundred.
        name = names[number * 37 % len(names)]
        at = random.Random(f"{arguments.seed} {number}")
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS_MAX * 2)
        signal.setitimer(signal.ITIMER_REAL, _WAIT_MAX)
        try:
            outcomes[name][TARGETS[name].run(at)] += 1
        # any error that comes here is what is looked for
        except (Exception, TooSlow) as error:  # noqa: BLE001
            failures += 1
            outcomes[name][f"FAILED {type(error).__name__}"] += 1
            if failures <= _FAILURES_SHOWN:
                sys.stdout.write(f"\n{name}, input {number}:\n{traceback.format_exc(limit=-6)}\n")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = time.process_time() - started
        slowest[name] = max(slowest[name], took)
        if took > _SECONDS_MAX:
            failures += 1
            sys.stdout.write(f"\n{name}, input {number}: took {took:.1f} s\n")
        if sys.stderr.isatty() and number % 1_000 == 0:
            sys.stderr.write(f"\r{number - arguments.start:,} inputs, {failures} failures")
    for name, counts in outcomes.items():
        summary = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        sys.stdout.write(
            f"{name}: {sum(counts.values()):,} inputs: {summary}; slowest {slowest[name] * 1e3:.0f}"
            " ms\n"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took_all = time.monotonic() - began
    sys.stdout.write(
        f"{arguments.inputs:,} inputs, {failures:,} failures, {took_all:.0f} s, at most {peak:.0f}"
        " MiB\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
