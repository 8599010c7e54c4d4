"""Measure in interleaved rounds. In a round, the peers get the same request, one after the other. A
figure is the median of the rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import items
from benchmarks.peers.environments import CACHE, ROOT, NotAvailable, Peer, Sayer, python_of
from benchmarks.peers.syncs import count
from benchmarks.peers.worker import SideFailed, Worker

APPENDS, TURNS, TURNS_S = 10, 4, 2.0
FILL_S, ASK_S = 900, 300
Figures = dict[str, Any]


def measure(
    peers: Sequence[Peer], events: int, rounds: int, say: Sayer, cache: Path = CACHE
) -> dict[str, Figures]:
    """Measure the peers on a history of ``events`` items. If a peer fails, its figures contain only
    the reason, as ``failed``.
    """
    items_file = _items(cache, events, say)
    failed: dict[str, Figures] = {}
    workers: dict[str, Worker] = {}
    pythons: dict[str, Path] = {}
    try:
        for peer in peers:
            try:
                pythons[peer.name] = python_of(peer, say)
                workers[peer.name] = Worker(peer, pythons[peer.name])
                _fill(workers[peer.name], cache, items_file, events, say)
            except (NotAvailable, SideFailed) as error:
                failed[peer.name] = _failure(error, say, peer)
        measured = {peer.name: _Rounds(peer, events) for peer in peers if peer.name not in failed}
        for what in ("open", "work"):
            for number in range(rounds):
                say(f"{events:,} events, {what}, round {number + 1} of {rounds}")
                for name in [name for name in measured if name not in failed]:
                    try:
                        getattr(measured[name], what)(workers[name], cache, items_file)
                    except SideFailed as error:
                        failed[name] = _failure(error, say, workers[name].peer)
        for name in [name for name in measured if name not in failed]:
            try:
                measured[name].sync(workers[name], pythons[name], cache, items_file)
            except (SideFailed, AssertionError) as error:
                failed[name] = _failure(error, say, workers[name].peer)
    finally:
        for worker in workers.values():
            worker.close()
    return {
        peer.name: failed.get(peer.name) or measured[peer.name].figures(workers[peer.name], cache)
        for peer in peers
    }


def prepare(peers: Sequence[Peer], events: int, say: Sayer, cache: Path = CACHE) -> None:
    """Make the environments and the stores before ``measure``, to split a long run in two."""
    items_file = _items(cache, events, say)
    for peer in peers:
        try:
            worker = Worker(peer, python_of(peer, say))
        except (NotAvailable, SideFailed) as error:
            _failure(error, say, peer)
            continue
        try:
            _fill(worker, cache, items_file, events, say)
        except SideFailed as error:
            _failure(error, say, peer)
        finally:
            worker.close()


def _failure(error: Exception, say: Sayer, peer: Peer) -> Figures:
    say(f"{peer.name}: {error}")
    return {"failed": str(error).replace(str(ROOT), ".").replace(str(Path.home()), "~")}


def _items(cache: Path, events: int, say: Sayer) -> Path:
    items_file = cache / "items" / f"{events}.jsonl"
    if not items_file.exists():
        say(f"{events:,} events: making the history")
        items_file.parent.mkdir(parents=True, exist_ok=True)
        items.write(items_file, events)
    return items_file


def _store(peer: Peer, cache: Path, events: int) -> Path:
    return cache / "stores" / str(events) / peer.folder


def _length(folder: Path) -> int:
    return int((folder / "length").read_text()) if (folder / "length").exists() else 0


def _fill(worker: Worker, cache: Path, items_file: Path, events: int, say: Sayer) -> None:
    """Make the store, unless a complete store exists. The existing store must have the same
    versions of packages, and be at most 2 % longer than ``events``.
    """
    folder = _store(worker.peer, cache, events)
    stamp, versions = folder / "versions", json.dumps(worker.versions, sort_keys=True)
    if (
        stamp.exists()
        and stamp.read_text() == versions
        and events <= _length(folder) <= 1.02 * events
    ):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"{events:,} events: {worker.peer.name} records them")
    worker.ask("fill", FILL_S, path=str(folder / "history"), items=str(items_file), events=events)
    os.sync()
    (folder / "bytes").write_text(str(_disk_bytes(folder)))
    (folder / "length").write_text(str(events))
    stamp.write_text(versions)


def _disk_bytes(folder: Path) -> int:
    """Return how many bytes the files occupy on the disk. The last block of each file counts as
    full, and folders do not count.
    """
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())


class _Rounds:
    """The rounds of one peer."""

    def __init__(self, peer: Peer, events: int) -> None:
        self._peer, self._events = peer, events
        self._opens: list[float] = []
        self._memory: list[int] = []
        self._appends: list[float] = []
        self._turns: list[float] = []
        self._syncs = ""

    def open(self, worker: Worker, cache: Path, items_file: Path) -> None:
        folder = _store(self._peer, cache, self._events)
        answer = worker.ask("open", ASK_S, path=str(folder / "history"))
        self._check(worker, items_file, answer, _length(folder))
        self._opens.append(answer["seconds"])
        self._memory.append(answer["bytes"])

    def work(self, worker: Worker, cache: Path, items_file: Path) -> None:
        """Continue the history, which grows by some twenty items in each round. Peers that share a
        store continue it in turn.
        """
        folder = _store(self._peer, cache, self._events)
        start = _length(folder)
        (folder / "length").unlink()  # a store that is written to is not the one that was filled
        limits = {"start": start, "appends": APPENDS, "turns": TURNS, "seconds": TURNS_S}
        answer = worker.ask(
            "work", ASK_S, path=str(folder / "history"), items=str(items_file), **limits
        )
        (folder / "length").write_text(str(answer["stop"]))
        self._check(worker, items_file, answer, answer["stop"])
        self._appends.append(statistics.median(answer["appends"]))
        self._turns.append(statistics.median(answer["turns"]))

    def sync(self, worker: Worker, python: Path, cache: Path, items_file: Path) -> None:
        folder = _store(self._peer, cache, self._events)
        start = _length(folder)
        (folder / "length").unlink()
        request = {
            "path": str(folder / "history"),
            "items": str(items_file),
            "start": start,
            "appends": APPENDS,
        }
        self._syncs = count(worker.peer, python, request)
        (folder / "length").write_text(str(start + APPENDS + 1))

    def _check(self, worker: Worker, items_file: Path, answer: dict[str, Any], stop: int) -> None:
        if worker.shows.startswith("newest"):
            expected = items.expected_end(items_file, stop, answer["entries"])
        else:
            expected = items.expected(items_file, stop, worker.shows)
        if (answer["entries"], answer["answer"]) != expected:
            raise SideFailed(
                f"returned {answer['entries']} items that differ from the {expected[0]} recorded"
                " items"
            )

    def figures(self, worker: Worker, cache: Path) -> Figures:
        folder = _store(self._peer, cache, self._events)
        rounds = {"open_ms": self._opens, "append_ms": self._appends, "turn_ms": self._turns}
        return summed_up(
            {
                "versions": worker.versions,
                "shows": worker.shows,
                "syncs": self._syncs,
                "bytes_an_event": round(int((folder / "bytes").read_text()) / self._events),
                "rounds": {
                    **{
                        name: [float(f"{1_000 * seconds:.4g}") for seconds in times]
                        for name, times in rounds.items()
                    },
                    "memory_bytes": self._memory,
                },
            }
        )


def summed_up(figures: Figures) -> Figures:
    """Return the figures, and add the median of each list of rounds."""
    return {
        **figures,
        **{name: statistics.median_low(some) for name, some in figures["rounds"].items()},
    }


def together(before: dict[str, Figures], after: dict[str, Figures]) -> dict[str, Figures]:
    """Return figures from the rounds of two runs together. If a peer failed in one of the runs,
    return the failure in place of its figures.
    """
    answers = {**before, **after}
    for name in before.keys() & after.keys():
        if "failed" in before[name] or "failed" in after[name]:
            answers[name] = before[name] if "failed" in before[name] else after[name]
        elif before[name]["versions"] == after[name]["versions"]:
            rounds = {
                figure: [*values, *after[name]["rounds"][figure]]
                for figure, values in before[name]["rounds"].items()
            }
            answers[name] = summed_up({**after[name], "rounds": rounds})
    return answers
