"""Compare stores, copies and backups of many processes with a model: ``python -m tests.simulation
--seed 1 --steps 10000``.

The seed determines everything that varies. A failure is printed with its seed and a shortened
sequence of steps, and ``--again SEED/WORLD`` repeats it. A long run prints each minute how far it
came, and ``--world`` continues from there. The exit status is 1 if something failed.
"""

import argparse
import logging
import os
import signal
import sys
import time
from functools import partial
from multiprocessing import get_context

from tests.simulation.run import replay, run_worlds, shorten
from tests.simulation.table import crowd
from tests.simulation.world import sped_up


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", type=int, default=0, help="begin with this world of the seed")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after this time, whatever is left"
    )
    parser.add_argument(
        "--memory", action="store_true", help="use stores in memory: faster, without backups"
    )
    parser.add_argument(
        "--postgres", action="store_true", help="start a PostgreSQL server and use stores on it"
    )
    parser.add_argument(
        "--crowded",
        action="store_true",
        help="let another process take a step within each step, which shows races sooner",
    )
    parser.add_argument("--again", metavar="SEED/WORLD", help="run the steps of one world again")
    parser.add_argument("--processes", type=int, default=1, help="run as many worlds at a time")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.crowded:
        crowd()
    if arguments.postgres:
        if arguments.processes > 1:
            parser.error("--processes runs stores in memory and SQLite files only")
        from tests.simulation.servers import running_server

        with running_server() as new_url:
            return _run(arguments, "postgres", new_url)
    return _run(arguments, "memory" if arguments.memory else "sqlite", None)


def _run(arguments, recorder, database):
    began = time.monotonic()
    cpu_began = _cpu_seconds()
    count = 0
    failure = None
    if arguments.again:
        with sped_up():
            failure = replay(arguments.again, recorder, database)
    elif arguments.processes == 1:
        count, failure = _run_share(arguments, recorder, database, 0)
    else:
        count, failure = _run_all_shares(arguments, recorder)
    seconds = time.monotonic() - began
    cpu = _cpu_seconds() - cpu_began
    if failure is not None:
        with sped_up():
            _print_failure(shorten(failure, database=database))
    found = "nothing" if failure is None else failure.label
    if arguments.again:
        print(f"world {arguments.again}, {recorder}: {found} found")
    else:
        print(
            f"seed {arguments.seed}, {recorder}: {count:,} steps in {seconds:.0f} s"
            f" ({count / max(cpu, 1e-9):,.0f} a second of processor time), {found} found"
        )
    return int(failure is not None)


def _run_all_shares(arguments, recorder):
    count = 0
    failure = None
    run_share = partial(_run_share, arguments, recorder, None)
    # a process that is ended removes the files of its world
    end_on_signal = (signal.SIGTERM, lambda *_: sys.exit())
    with get_context("fork").Pool(arguments.processes, signal.signal, end_on_signal) as pool:
        for share, failure in pool.imap_unordered(run_share, range(arguments.processes)):
            count += share
            if failure is not None:
                break
        pool.terminate()
        pool.join()  # afterwards the processor time of the processes is known
    return count, failure


def _run_share(arguments, recorder, database, number):
    """Run the share of one of the processes: each so many-th world."""
    return run_worlds(
        arguments.seed,
        -(-arguments.steps // arguments.processes),
        arguments.seconds,
        recorder,
        database,
        first=arguments.world + number,
        every=arguments.processes,
        report=partial(print, flush=True),
    )


def _cpu_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _print_failure(failure):
    print(f"\nFOUND {failure.label} in world {failure.seed} ({failure.recorder}):")
    print(*failure.trace, failure.detail, f"steps = {list(failure.steps)}", sep="\n")


if __name__ == "__main__":
    sys.exit(main())
