"""Stores, copies and backups of many processes, against a model: ``python -m tests.simulation
--seed 1 --steps 10000``.

Everything that varies is drawn from the seed. What fails is printed with its seed and a shortened
sequence of steps, and is taken again with ``--again SEED/WORLD``. A long run says each minute how
far it came; ``--world`` goes on from there. Exit status 1 where something failed.
"""

import argparse
import logging
import sys
import time
from functools import partial

from tests.simulation.run import again, shortened, worlds
from tests.simulation.steps import crowd
from tests.simulation.world import sped_up


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", type=int, default=0, help="begin with this world of the seed")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after so many, whatever is left"
    )
    parser.add_argument(
        "--memory", action="store_true", help="stores in memory: faster, without backups"
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="stores on a PostgreSQL server, which is started for it",
    )
    parser.add_argument(
        "--crowded",
        action="store_true",
        help="another process takes a step within each step: finds races sooner",
    )
    parser.add_argument("--again", metavar="SEED/WORLD", help="take the steps of one world again")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if given.crowded:
        crowd()
    recorder = "memory" if given.memory else "sqlite"
    if given.postgres:
        from tests.simulation.servers import server

        with server() as new_url:
            return _run(given, "postgres", new_url)
    return _run(given, recorder, None)


def _run(given, recorder, database):
    began, ran = time.monotonic(), time.process_time()
    taken = 0
    if given.again:
        with sped_up():
            failed = again(given.again, recorder, database)
    else:
        taken, failed = worlds(
            given.seed,
            given.steps,
            given.seconds,
            recorder,
            database,
            first=given.world,
            tell=partial(print, flush=True),
        )
    seconds, cpu = time.monotonic() - began, time.process_time() - ran
    if failed is not None:
        with sped_up():
            _tell(shortened(failed, database=database))
    print(
        f"seed {given.seed}, {recorder}: {taken:,} steps in {seconds:.0f} s"
        f" ({taken / max(cpu, 1e-9):,.0f} a second of processor time),"
        f" {'nothing' if failed is None else failed.label} found"
    )
    return int(failed is not None)


def _tell(failed):
    print(f"\nFOUND {failed.label} in world {failed.seed} ({failed.recorder}):")
    print("\n".join(failed.told), failed.detail, f"steps = {list(failed.steps)}", sep="\n")


sys.exit(main())
