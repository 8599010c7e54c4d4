"""Show that nothing acknowledged is ever lost.

    python -m tests.crash load --events 100000 --kills 200    writers are killed at random moments, again and again
    python -m tests.crash everywhere statements               a process is killed before every SQL statement,
    python -m tests.crash everywhere writes                   before every call that changes a file,
    python -m tests.crash everywhere power                    and what was not synced by then is lost;
    python -m tests.crash everywhere full                     the disk is full from a write on;
    python -m tests.crash everywhere sync                     a sync fails

Exit status 1 where something was wrong; then it is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash import everywhere, under_load
from tests.crash.faults import begin_again_with_faults


def parsed() -> argparse.Namespace:
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
        help="crash at every so many points, and around commits, only",
    )
    points.add_argument("scenarios", nargs="*", choices=[*everywhere.SCENARIOS, []])
    return parser.parse_args()


def main() -> int:
    chosen = parsed()
    if chosen.command == "everywhere":
        if everywhere.WAYS[chosen.way].needs_faults:
            begin_again_with_faults(["-m", "tests.crash", *sys.argv[1:]])
        findings = everywhere.run(chosen.way, chosen.scenarios, chosen.every)
    else:
        folder = Path(tempfile.mkdtemp(prefix="foldlog-crash-"))
        findings = under_load.run(
            folder,
            events=chosen.events,
            kills=chosen.kills,
            seconds=chosen.seconds,
            seed=chosen.seed,
        )
        if findings:
            print(f"the store is left in {folder}")
        else:
            shutil.rmtree(folder)
    for finding in findings[:50]:
        print(f"    {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
