"""Measure in interleaved rounds. In a round, the peers get the same request, one after the other. A
figure is the median of the rounds.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import items
from benchmarks.peers.environments import ROOT, NotAvailable, Peer, Say, python_of
from benchmarks.peers.syncs import count
from benchmarks.peers.worker import SideFailed, Worker

APPENDS = 10
TURNS = 4
TURNS_S = 2.0
FILL_S = 900
ASK_S = 300
Figures = dict[str, Any]


def measure(
    peers: Sequence[Peer], events: int, rounds: int, say: Say, folder: Path
) -> dict[str, Figures]:
    """Measure the peers on a history of ``events`` items, with stores in an empty ``folder``. If a
    peer fails, its figures contain only the reason, as ``failed``.
    """
    say(f"{events:,} events: making the history")
    items_file = folder / "items.jsonl"
    items.write(items_file, events)
    failed: dict[str, Figures] = {}
    sides: dict[str, _Measured] = {}
    lengths: dict[Path, int] = {}

    def each(work: Callable[[_Measured], None]) -> None:
        for name in [name for name in sides if name not in failed]:
            try:
                work(sides[name])
            except (SideFailed, AssertionError) as error:
                failed[name] = _failure(error, say, name)

    try:
        for peer in peers:
            try:
                sides[peer.name] = _Measured(peer, python_of(peer, say), items_file, lengths)
            except (NotAvailable, SideFailed) as error:
                failed[peer.name] = _failure(error, say, peer.name)
        say(f"{events:,} events: recording them in each store")
        each(lambda side: side.fill(events))
        for what in (_Measured.open, _Measured.work):
            for number in range(rounds):
                say(f"{events:,} events, {what.__name__}, round {number + 1} of {rounds}")
                each(what)
        each(_Measured.sync)
    finally:
        for side in sides.values():
            side.worker.close()
    return {peer.name: failed.get(peer.name) or sides[peer.name].figures() for peer in peers}


def _failure(error: Exception, say: Say, name: str) -> Figures:
    say(f"{name}: {error}")
    return {"failed": str(error).replace(str(ROOT), ".").replace(str(Path.home()), "~")}


def _disk_bytes(folder: Path) -> int:
    """Return how many bytes the files occupy on the disk. The last block of each file counts as
    full, and folders do not count.
    """
    return sum(512 * file.stat().st_blocks for file in folder.rglob("*") if file.is_file())


class _Measured:
    """A peer with its store, and the figures of its rounds."""

    def __init__(
        self, peer: Peer, python: Path, items_file: Path, lengths: dict[Path, int]
    ) -> None:
        self.worker = Worker(peer, python)
        self._python = python
        self._items = items_file
        self._folder = items_file.parent / peer.folder
        self._lengths = lengths
        """The number of items in each store. Peers that share a store continue it in turn."""
        self._opens: list[float] = []
        self._memory: list[int] = []
        self._appends: list[float] = []
        self._turns: list[float] = []
        self._bytes_an_event = 0
        self._syncs = ""

    def fill(self, events: int) -> None:
        """Record the items, unless another peer has recorded them in the same store."""
        if not self._folder.exists():
            self._folder.mkdir()
            self._ask("fill", FILL_S, events=events)
            os.sync()
            self._lengths[self._folder] = events
        self._bytes_an_event = round(_disk_bytes(self._folder) / events)

    def open(self) -> None:
        answer = self._ask("open", ASK_S)
        self._check(answer)
        self._opens.append(answer["seconds"])
        self._memory.append(answer["bytes"])

    def work(self) -> None:
        """Continue the history, which grows by some twenty items in each round."""
        limits = {"appends": APPENDS, "turns": TURNS, "seconds": TURNS_S}
        answer = self._ask("work", ASK_S, start=self._lengths[self._folder], **limits)
        self._lengths[self._folder] = answer["stop"]
        self._check(answer)
        self._appends.append(statistics.median(answer["appends"]))
        self._turns.append(statistics.median(answer["turns"]))

    def sync(self) -> None:
        request = {**self._store(), "start": self._lengths[self._folder], "appends": APPENDS}
        self._syncs = count(self.worker.peer, self._python, request)
        self._lengths[self._folder] += APPENDS + 1

    def _ask(self, do: str, timeout_s: float, **request: Any) -> dict[str, Any]:
        return self.worker.ask(do, timeout_s, **self._store(), **request)

    def _store(self) -> dict[str, Any]:
        return {"path": str(self._folder / "history"), "items": str(self._items)}

    def _check(self, answer: dict[str, Any]) -> None:
        expected = items.expected(
            self._items, self._lengths[self._folder], self.worker.shows, answer["entries"]
        )
        if (answer["entries"], answer["answer"]) != expected:
            raise SideFailed(
                f"returned {answer['entries']} items that differ from the {expected[0]} recorded"
                " items"
            )

    def figures(self) -> Figures:
        rounds = {
            "open_ms": _milliseconds(self._opens),
            "append_ms": _milliseconds(self._appends),
            "turn_ms": _milliseconds(self._turns),
            "memory_bytes": self._memory,
        }
        return {
            "versions": self.worker.versions,
            "shows": self.worker.shows,
            "syncs": self._syncs,
            "bytes_an_event": self._bytes_an_event,
            "rounds": rounds,
            **{name: statistics.median_low(values) for name, values in rounds.items()},
        }


def _milliseconds(times: Sequence[float]) -> list[float]:
    return [float(f"{1_000 * seconds:.4g}") for seconds in times]
