"""``python -m benchmarks.peers``: measure foldlog and the stores of other runtimes, and print a
table.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.frame import provenance, refuse_load
from benchmarks.peers import plot, report
from benchmarks.peers.environments import CACHE, HERE, PEERS, Peer
from benchmarks.peers.measuring import measure

USUAL = (1_000, 10_000)
LONGEST = 100_000
PUBLISHED = (*USUAL, LONGEST)


@click.command()
@click.option("--events", multiple=True, type=int, default=USUAL, help="Length of the history.")
@click.option(
    "--all/--quick",
    "everyone",
    default=True,
    help="Measure every peer, or only foldlog and 'sqlite3 by hand'.",
)
@click.option("--peer", "names", multiple=True, help="Only peers whose names contain this text.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    help="Interleaved rounds: at most 3 of 100,000 events.",
)
@click.option("--folder", type=Path, default=CACHE, help="Folder for the stores.")
@click.option(
    "--publish",
    is_flag=True,
    help="Measure every peer at 1,000, 10,000 and 100,000 events, and put the figures into"
    " docs/internals/peers.json, SPEED.md and the README. Refused above a load average of 1.",
)
def main(
    events: Sequence[int],
    everyone: bool,
    names: Sequence[str],
    rounds: int,
    folder: Path,
    publish: bool,
) -> None:
    """Measure foldlog and the stores of other runtimes: append, open, a turn, growth, bytes,
    memory. The exit status is 1 if a peer fails.
    """
    if publish:
        refuse_load(os.getloadavg()[0])
        events = PUBLISHED
        everyone = True
        names = ()
    chosen = _chosen(everyone, names)
    folder.mkdir(parents=True, exist_ok=True)
    runs: report.Runs = {}
    for length in events:
        before = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="stores-", dir=folder) as stores:
            # Google ADK opens 100,000 events in 20 s
            length_rounds = rounds if length < LONGEST else min(rounds, 3)
            figures = measure(chosen, length, length_rounds, _say, Path(stores))
        runs[str(length)] = {
            **provenance(["python", "-m", "benchmarks.peers"]),
            "rounds": length_rounds,
            "load": f"{before:.1f} to {os.getloadavg()[0]:.1f}",
            "peers": figures,
        }
    if publish:
        report.publish(runs)
        plot.main()
    print(report.markdown(runs))
    if report.failures(runs):
        raise SystemExit(1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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


if __name__ == "__main__":
    main()
