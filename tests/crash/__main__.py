"""Show that nothing acknowledged is ever lost.

    python -m tests.crash load --events 100000 --kills 200    writers are killed at random moments, again and again
    python -m tests.crash everywhere statements               a process is killed before every SQL statement,
    python -m tests.crash everywhere writes                   before every call that changes a file,
    python -m tests.crash everywhere power                    and what was not synced by then is lost;
    python -m tests.crash everywhere full                     the disk is full from a write on;
    python -m tests.crash everywhere sync                     a sync fails
    python -m tests.crash writers                             16 processes of 8 threads, a long import and an erasure

Exit status 1 where something was wrong; then it is printed.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash import everywhere, many_writers, under_load
from tests.crash.faults import begin_again_with_faults


def parsed():
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    load = commands.add_parser("load")
    load.add_argument("--events", type=int, default=0, help="acknowledged at the least")
    load.add_argument("--kills", type=int, default=0, help="at the least")
    load.add_argument("--seconds", type=float, default=0, help="at the least")
    load.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    points = commands.add_parser("everywhere")
    points.add_argument("way", choices=everywhere.WAYS)
    points.add_argument(
        "--every",
        type=int,
        default=1,
        help="crash at every so many points only",
    )
    points.add_argument("scenarios", nargs="*", choices=[*everywhere.SCENARIOS, []])
    writers = commands.add_parser("writers")
    writers.add_argument("--processes", type=int, default=16)
    writers.add_argument("--threads", type=int, default=8)
    writers.add_argument("--seconds", type=float, default=10)
    writers.add_argument(
        "--imported", type=int, default=200_000, help="events of the import that goes on meanwhile"
    )
    writers.add_argument(
        "--erased", type=int, default=50_000, help="events of a history that is erased meanwhile"
    )
    writers.add_argument(
        "--longest-wait-s",
        type=float,
        default=1.0,
        help="of an append, on a machine with nothing else",
    )
    writers.add_argument(
        "--sync-ms", type=int, default=0, help="a disk whose sync takes so much longer"
    )
    return parser.parse_args()


def main():
    chosen = parsed()
    if chosen.command == "everywhere":
        if everywhere.WAYS[chosen.way].needs_faults:
            begin_again_with_faults(["-m", "tests.crash", *sys.argv[1:]])
        findings = everywhere.run(chosen.way, chosen.scenarios, chosen.every)
    else:
        if getattr(chosen, "sync_ms", 0):
            delay = {"FOLDLOG_SYNC_DELAY_US": str(1_000 * chosen.sync_ms)}
            begin_again_with_faults(["-m", "tests.crash", *sys.argv[1:]], **delay)
        folder = Path(tempfile.mkdtemp(prefix="foldlog-crash-"))
        options = {
            name: value
            for name, value in vars(chosen).items()
            if name not in ("command", "sync_ms")
        }
        run = under_load.run if chosen.command == "load" else many_writers.run
        findings = run(folder, **options)
        if findings:
            print(f"the store is left in {folder}")
        else:
            shutil.rmtree(folder)
    for finding in findings[:50]:
        print(f"    {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
