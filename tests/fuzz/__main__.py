"""Give hostile inputs to everything that reads input, by the million.

    python -m tests.fuzz [--inputs 1000000] [--seed 1] [--target NAME] [--from N]

Prints a table of the outcomes. The exit status is 1 if an input fails: it raises an error that is not
foldlog's, takes more than 5 s, or needs more than 2 GiB. ``--from N --inputs 1`` repeats one input.
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
"""Seconds of processor time, because the machine may be busy."""
_WAIT_MAX = 120
"""Seconds on the clock, for an input that waits and uses no processor."""
_MEMORY_MAX = 2 * 2**30
_FAILURES_SHOWN = 10


class TooSlow(BaseException):
    """An input took too long."""


def _raise_too_slow(timer_signal, frame):
    if timer_signal == signal.SIGPROF:
        raise TooSlow(f"over {_SECONDS_MAX} s of processor time")
    raise TooSlow(f"over {_WAIT_MAX} s")


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
    for timer_signal in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(timer_signal, _raise_too_slow)
    warm_up()
    names = [name for name, target in TARGETS.items() for _ in range(target.share)]
    if arguments.target:
        names = [arguments.target]
    outcomes = defaultdict(Counter)
    slowest = defaultdict(float)
    failures = 0
    began = time.monotonic()
    for number in range(arguments.start, arguments.start + arguments.inputs):
        # 37 has no factor in common with 100, so each target gets its share evenly
        name = names[number * 37 % len(names)]
        rng = random.Random(f"{arguments.seed} {number}")
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, _SECONDS_MAX)
        signal.setitimer(signal.ITIMER_REAL, _WAIT_MAX)
        try:
            outcomes[name][TARGETS[name].run(rng)] += 1
        except (Exception, TooSlow) as error:  # noqa: BLE001 - any error here is a failure
            failures += 1
            outcomes[name][f"FAILED {type(error).__name__}"] += 1
            if failures <= _FAILURES_SHOWN:
                sys.stdout.write(f"\n{name}, input {number}:\n{traceback.format_exc(limit=-6)}\n")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest[name] = max(slowest[name], time.process_time() - started)
        if sys.stderr.isatty() and number % 1_000 == 0:
            sys.stderr.write(f"\r{number - arguments.start:,} inputs, {failures} failures")
    for name, counts in outcomes.items():
        summary = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())
        sys.stdout.write(
            f"{name}: {sum(counts.values()):,} inputs: {summary}; slowest {slowest[name] * 1e3:.0f}"
            " ms\n"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{arguments.inputs:,} inputs, {failures:,} failures, {seconds:.0f} s, at most {peak:.0f}"
        " MiB\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
