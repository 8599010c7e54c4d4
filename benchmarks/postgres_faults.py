"""Test a PostgreSQL store with faults under load: ``python -m benchmarks.postgres_faults [--keys]
[--events N] [--faults N] …``.

Writers append without a pause, and a follower reads, while servers are killed, frozen, restarted
and cut off. The run notes every append that returned. At the end, the store must contain each of
these events once, and the follower must have seen each event. With ``--keys``, everything is
encrypted. Conversations begin without encryption, and several writers encrypt them at the same
time. Two commands at a time rotate the key, again and again. Some conversations are erased. At the
end, the newest key alone must read everything, and no data of an erased conversation may be left.
The exit status is 1 if a check fails.

    failover   a primary and a synchronous standby: the primary is killed (SIGKILL to all its
               processes), the standby is promoted, and the killed server starts again as the
               standby of the new primary, again and again
    quorum     the same with three servers: one standby must confirm each commit, and the standby
               that received most of the log is promoted
    restart    one server, which is restarted, every second time after a crash (immediate)
    frozen     one server, which is stopped for some seconds (SIGSTOP) and then continues
    cut        the server ends connections, and a proxy cuts connections just before or just after a
               commit

A promoted server waits for a standby before it confirms a commit. So the next failure cannot lose
data that the last failure left on only one disk.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click

from benchmarks.postgres_clusters import SCENARIOS, Scenario
from benchmarks.postgres_load import Load, check


def stalls(load: Load, moments: list[float]) -> list[float]:
    """Return, for each fault, the longest time without an acknowledged append, from just before the
    fault to the next fault.
    """
    longest = []
    times = sorted(load.times)
    for moment, following in pairwise([*moments, *times[-1:]]):
        near = [time_s for time_s in times if moment - 0.5 <= time_s <= following]
        longest.append(max((later - earlier for earlier, later in pairwise(near)), default=0.0))
    return longest


def run(
    name: str,
    scenario: Scenario,
    events: int,
    faults_min: int,
    every_s: float,
    *,
    encrypted: bool,
) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    title = f"{name} with keys" if encrypted else name
    faults = 0
    moments = []
    try:
        with scenario(folder) as (url, fault):
            load = Load(url, encrypted=encrypted)
            began = time.monotonic()
            try:
                while (load.events < events or faults < faults_min) and not load.errors:
                    time.sleep(every_s)
                    moments.append(time.monotonic())
                    fault()
                    faults += 1
                    print(
                        f"{title}: {faults} faults, {load.events:,} events acknowledged", flush=True
                    )
                time.sleep(every_s)
            finally:
                load.finish()
            took = time.monotonic() - began
            outcome = check(url, load)
    except subprocess.SubprocessError as error:
        raise SystemExit(f"{title}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for error in load.errors:
        print(f"{title}: {error}")
    waits = stalls(load, moments) or [0.0]  # an error may end the run before its first fault
    print(
        f"{title}: {load.events:,} events acknowledged in {took:.0f} s through {faults} faults,"
        f" {load.driven:,} under a lease, {load.planted} conversations begun plain,"
        f" {load.rotations} rotations, {sum(load.erased.values())} erasures: {outcome},"
        f" {len(load.errors)} errors; stalls: median {statistics.median(waits):.2f} s, longest"
        f" {max(waits):.2f} s",
        flush=True,
    )
    return outcome.is_clean and not load.errors


@click.command()
@click.option(
    "--events",
    default=100_000,
    help="Each scenario runs until this number of events is acknowledged.",
)
@click.option("--scenario", "names", multiple=True, default=[*SCENARIOS], help="Only these.")
@click.option("--faults", default=10, help="Each scenario runs until this number of faults.")
@click.option("--every-s", default=3.0, help="Seconds of undisturbed work between two faults.")
@click.option("--keys", is_flag=True, help="Encrypt, rotate and erase too.")
def main(events: int, names: Sequence[str], faults: int, every_s: float, keys: bool) -> None:
    """Run the scenarios, and count the lost events."""
    held = [run(name, SCENARIOS[name], events, faults, every_s, encrypted=keys) for name in names]
    if not all(held):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
