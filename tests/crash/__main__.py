"""Test that no acknowledged event is ever lost.

    python -m tests.crash load --events 100000 --kills 200    kills writers at random moments
    python -m tests.crash everywhere statements               kills a process before each SQL statement
    python -m tests.crash everywhere writes                   kills it before each call that changes a file
    python -m tests.crash everywhere power                    also drops the bytes that were not synced
    python -m tests.crash everywhere full                     fills the disk before each write
    python -m tests.crash everywhere sync                     lets each sync fail
    python -m tests.crash writers                             runs 16 processes of 8 threads, a long import and an erasure
    python -m tests.crash words [--db URL]                    kills what fills a search index and removes words from it

Prints what is wrong. The exit status is 1 if something is.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash import everywhere, indexed_words, many_writers, under_load
from tests.crash.faults import restart_with_faults


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    load = commands.add_parser("load")
    load.add_argument(
        "--events", type=int, default=0, help="the least number of acknowledged events"
    )
    load.add_argument("--kills", type=int, default=0, help="the least number of kills")
    load.add_argument("--seconds", type=float, default=0, help="the shortest time")
    load.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    points = commands.add_parser("everywhere")
    points.add_argument("mode", choices=everywhere.MODES)
    points.add_argument(
        "--every",
        type=int,
        default=1,
        help="crash only at every Nth point",
    )
    points.add_argument("scenarios", nargs="*", choices=[*everywhere.SCENARIOS, []])
    writers = commands.add_parser("writers")
    writers.add_argument("--processes", type=int, default=16)
    writers.add_argument("--threads", type=int, default=8)
    writers.add_argument("--seconds", type=float, default=10)
    writers.add_argument(
        "--imported", type=int, default=200_000, help="events of the import that runs beside them"
    )
    writers.add_argument(
        "--erased",
        type=int,
        default=50_000,
        help="events of the history that is erased beside them",
    )
    writers.add_argument(
        "--longest-wait-s",
        type=float,
        default=1.0,
        help="the longest wait of an append, on a machine that does nothing else",
    )
    writers.add_argument("--sync-ms", type=int, default=0, help="how much longer each sync takes")
    words = commands.add_parser("words")
    words.add_argument("--rounds", type=int, default=500)
    words.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    words.add_argument(
        "--db", default="", help="an empty database of PostgreSQL; a file without this option"
    )
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.command == "everywhere":
        if everywhere.MODES[arguments.mode].needs_faults:
            restart_with_faults(["-m", "tests.crash", *sys.argv[1:]])
        findings = everywhere.run(arguments.mode, arguments.scenarios, arguments.every)
    else:
        if getattr(arguments, "sync_ms", 0):
            delay = {"FOLDLOG_SYNC_DELAY_US": str(1_000 * arguments.sync_ms)}
            restart_with_faults(["-m", "tests.crash", *sys.argv[1:]], **delay)
        folder = Path(tempfile.mkdtemp(prefix="foldlog-crash-"))
        options = {
            name: value
            for name, value in vars(arguments).items()
            if name not in ("command", "sync_ms")
        }
        runs = {"load": under_load.run, "writers": many_writers.run, "words": indexed_words.run}
        findings = runs[arguments.command](folder, **options)
        if findings:
            print(f"the store is left in {folder}")
        else:
            shutil.rmtree(folder)
    for finding in findings[:50]:
        print(f"    {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
