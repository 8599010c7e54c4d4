"""``python -m benchmarks.peers``: measure foldlog and the stores of other runtimes, print a table,
and write JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.frame import provenance, refuse_load
from benchmarks.peers import plot, report
from benchmarks.peers.environments import CACHE, HERE, PEERS, Peer, Sayer
from benchmarks.peers.measuring import measure, prepare, together

USUAL = (1_000, 10_000)


@click.command()
@click.option("--events", multiple=True, type=int, help="Length of the history.")
@click.option(
    "--all/--quick",
    "everyone",
    default=True,
    help="Measure every peer, or only foldlog and 'sqlite3 by hand'.",
)
@click.option("--peer", "names", multiple=True, help="Only peers whose names contain this text.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, help="Interleaved rounds.")
@click.option("--more", is_flag=True, help="Add the rounds to the saved rounds.")
@click.option("--prepare", "only_prepare", is_flag=True, help="Only make environments and stores.")
@click.option("--cache", type=Path, default=CACHE, help="Folder for stores and results.")
@click.option(
    "--publish",
    is_flag=True,
    help="Write the saved results into docs/internals/peers.json, SPEED.md and the README. Refused"
    " if a run began above a load average of 1.",
)
@click.option("--keep", is_flag=True, help="Keep the stores: they are several gigabytes.")
def main(
    events: Sequence[int],
    everyone: bool,
    names: Sequence[str],
    rounds: int,
    more: bool,
    only_prepare: bool,
    cache: Path,
    publish: bool,
    keep: bool,
) -> None:
    """Measure foldlog and the stores of other runtimes: append, open, a turn, growth, bytes,
    memory.

    Each length is measured and saved separately. You can split a long run: first --prepare, then
    --rounds 1 --keep, then --rounds 1 --more --keep as often as you want.
    """
    say, chosen = Sayer(), _chosen(everyone, names)
    results = cache / "results"
    results.mkdir(parents=True, exist_ok=True)
    for length in events or ([] if publish else USUAL):
        if only_prepare:
            prepare(chosen, length, say, cache)
            continue
        before = os.getloadavg()[0]
        figures = measure(chosen, length, rounds, say, cache)
        run = _provenance(length, rounds, before)
        saved = _saved(results).get(str(length))
        if more and saved is not None:
            figures = together(saved["peers"], figures)
            run = {
                **run,
                "rounds": saved["rounds"] + rounds,
                "load": f"{saved['load']}, {run['load']}",
            }
        (results / f"{length}.json").write_text(
            json.dumps({**run, "peers": figures}, indent=1, ensure_ascii=False)
        )
        if not keep:
            shutil.rmtree(cache / "stores" / str(length), ignore_errors=True)
    runs = _saved(results)
    if publish:
        for run in runs.values():
            refuse_load(max(float(load.split(" to ")[0]) for load in run["load"].split(", ")))
        report.publish(runs)
        plot.main()
    elif only_prepare:
        return
    lengths = {str(length) for length in events or USUAL}
    selected = (
        runs if publish else {length: run for length, run in runs.items() if length in lengths}
    )
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(report.table(selected))
    for line in report.notes(selected):
        console.print(line, highlight=False, soft_wrap=True)
    if report.failures(selected):
        raise SystemExit(1)


def _chosen(everyone: bool, names: Sequence[str]) -> list[Peer]:
    chosen = [
        peer
        for peer in (PEERS if everyone else HERE)
        if not names or any(name in peer.name for name in names)
    ]
    if not chosen:
        raise click.UsageError(
            f"no peer has {', '.join(names)} in its name: choose from {', '.join(peer.name for peer in PEERS)}"
        )
    return chosen


def _provenance(length: int, rounds: int, before: float) -> dict[str, Any]:
    measured_with = provenance(())
    file_systems = subprocess.run(
        ["df", "--output=fstype", "."], capture_output=True, text=True, check=False
    )
    system = " ".join(file_systems.stdout.split()[1:])
    machine = measured_with["machine"]
    assert isinstance(machine, dict)
    return {
        "events": length,
        "rounds": rounds,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": measured_with["commit"],
        "machine": {**machine, "system": f"{machine['system']}, {system}"},
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "load": f"{before:.1f} to {os.getloadavg()[0]:.1f}",
    }


def _saved(results: Path) -> report.Runs:
    files = sorted(results.glob("*.json"), key=lambda path: int(path.stem))
    return {path.stem: json.loads(path.read_text()) for path in files}


if __name__ == "__main__":
    main()
