"""Faults under load on PostgreSQL: ``python -m benchmarks.postgres_faults [--keys] [--events N]
[--faults N] …``.

Writers append without a pause, and a follower reads, while servers are killed, frozen, restarted
and cut off. Every append that returned is noted; at the end, each of those events must be there,
once, and must have been followed. With ``--keys`` everything is encrypted: conversations begin
plain and are encrypted by several writers at once, the key is rotated again and again by two
commands at a time, and conversations are erased. Then everything must be readable with the newest
key alone, and nothing may be left of what was erased. The exit status is 1 if that is not so.

    failover   a primary and a synchronous standby: the primary is killed (SIGKILL to all its
               processes), the standby
               promoted, the killed one made a standby of it, again and again
    quorum     the same with three servers, of which any one must confirm; the standby that has most
               is promoted
    restart    the one server is restarted, in turn fast and by a crash (immediate)
    frozen     the primary is stopped for some seconds (SIGSTOP) and goes on
    cut        connections are ended by the server, and cut by a proxy just before or just behind a
               commit

A promoted server waits for a standby before it confirms anything, so a second failure cannot lose
what the first one left on one disk only.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.postgres_clusters import SCENARIOS
from benchmarks.postgres_load import Load, check


def stalls(load: Load, moments: list[float]) -> list[float]:
    """For each fault, the longest time in which nothing was acknowledged, from just before it to
    the next.
    """
    longest = []
    times = sorted(load.times)
    for moment, following in pairwise([*moments, times[-1]]):
        near = [t for t in times if moment - 0.5 <= t <= following]
        longest.append(max((later - earlier for earlier, later in pairwise(near)), default=0.0))
    return longest


def run(name: str, events: int, faults_min: int, every_s: float, *, encrypted: bool) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    title = f"{name} with keys" if encrypted else name
    faults, moments = 0, []
    try:
        with SCENARIOS[name](folder) as (url, fault):
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
    waits = stalls(load, moments)
    print(
        f"{title}: {load.events:,} events acknowledged in {took:.0f} s through {faults} faults,"
        f" {load.driven:,} under a lease, {load.planted} conversations begun plain,"
        f" {load.rotations} rotations, {sum(load.erased.values())} erasures: {outcome},"
        f" {len(load.errors)} errors; stalls: median {statistics.median(waits):.2f} s, longest"
        f" {max(waits):.2f} s",
        flush=True,
    )
    return outcome.is_clean and not load.errors


def main(
    events: Annotated[
        int, typer.Option(help="How many acknowledged events each scenario goes on to.")
    ] = 100_000,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Which; all of them if not given.")
    ] = None,
    faults: Annotated[int, typer.Option(help="How many faults each scenario goes on to.")] = 10,
    every_s: Annotated[
        float, typer.Option(help="Seconds of undisturbed work between two faults.")
    ] = 3.0,
    *,
    keys: Annotated[bool, typer.Option(help="Encrypt, rotate and erase too.")] = False,
) -> None:
    """Kill, promote, restart and cut, and count what was lost."""
    held = [run(name, events, faults, every_s, encrypted=keys) for name in scenario or SCENARIOS]
    if not all(held):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
