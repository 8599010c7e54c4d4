"""Measure what a turn of an agent and the opening of its conversation cost, in foldlog and in the
store that foldlog replaces.

The benchmark records a conversation of 400 items in turns of four, as the SDK does. It then
measures 40 more turns, and opens and reads the conversation 15 times. The two stores take turns. A
figure is the median CPU time in ms, so a busy machine does not change it. With LangGraph, a turn
also runs the graph.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import foldlog
from benchmarks.adapters import closed, item, stored_bytes, timed

ROOT = Path(__file__).parents[1]
ITEMS, PER_TURN, TURNS, OPENINGS = 400, 4, 40, 15
OWN = {
    "openai_agents": ("OpenAI Agents SDK", "`SQLiteSession`"),
    "claude_agent": ("Claude Agent SDK", "a table of JSON by hand"),
    "openhands": ("OpenHands SDK", "`LocalFileStore`"),
    "langgraph": ("LangGraph", "`SqliteSaver`, full state"),
    "langgraph-delta": ("LangGraph, `DeltaChannel`", "`SqliteSaver`"),
    "langgraph-delta-50": (
        "LangGraph, `DeltaChannel`, a snapshot every 50 updates",
        "`SqliteSaver`",
    ),
    "google_adk": ("Google ADK", "`SqliteSessionService`"),
    "pydantic_ai": ("pydantic-ai", "two tables by hand"),
    "agent_framework": ("Agent Framework", "`FileHistoryProvider`"),
    "strands": ("Strands", "`FileSessionManager`"),
}
PAGE, BEGIN, END = (
    ROOT / "docs/internals/PEERS.md",
    "<!-- adapters: python -m benchmarks.adapters --publish -->",
    "<!-- end -->",
)


class Figures(NamedTuple):
    """The figures of an adapter, in pairs: the figure of foldlog, then the figure of the other
    store. ``turn`` and ``opening`` are in ms, ``size`` is in bytes for each item.
    """

    name: str
    turn: tuple[float, float]
    opening: tuple[float, float]
    size: tuple[float, float]

    def row(self) -> str:
        sdk, own = OWN[self.name]
        cells = [sdk, own]
        for ours, theirs in (self.turn, self.opening):
            cells.append(f"{ours:.1f} / {theirs:.1f} = **{ours / theirs:.2f}**")
        cells.append(f"{self.size[0]:,.0f} / {self.size[1]:,.0f}")
        return f"| {' | '.join(cells)} |"


async def turns(
    name: str,
    make: tuple[Callable[[str], Any], Callable[[str], Any]],
    make_item: Callable[[int], Any],
    add: Callable[[Any, list[Any]], Awaitable[Any]],
    reads: dict[str, Callable[[Any], Awaitable[Any]]],
) -> None:
    """Print the figures of foldlog and of the other store as a line of JSON."""
    read = next(iter(reads.values()))
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / side) for side in ("ours.db", "theirs.db")]
        stores = [side(path) for side, path in zip(make, paths, strict=True)]

        async def turn(which: int, number: int) -> None:
            await add(
                stores[which], [make_item(PER_TURN * number + index) for index in range(PER_TURN)]
            )

        took: list[list[float]] = [[], []]
        for number in range(ITEMS // PER_TURN + TURNS):
            for which in (0, 1) if number % 2 else (1, 0):
                cpu = (await timed(partial(turn, which, number)))[1]
                took[which].append(cpu)
        for store in stores:
            await closed(store)
        sizes = [stored_bytes(path) / (ITEMS + PER_TURN * TURNS) for path in paths]

        async def opened(which: int) -> None:
            store = make[which](paths[which])
            await read(store)
            await closed(store)

        openings: list[list[float]] = [[], []]
        for number in range(OPENINGS):
            for which in (0, 1) if number % 2 else (1, 0):
                openings[which].append((await timed(partial(opened, which)))[1])
    turn_ms = [statistics.median(times[-TURNS:]) for times in took]
    print(json.dumps([name, turn_ms, [*map(statistics.median, openings)], sizes]))


def measured(name: str) -> list[Figures]:
    """Measure one adapter in its environment, and return the figures."""
    python = ROOT / f".cache/adapters/{name}-newest/bin/python"
    if not python.exists():
        raise SystemExit(f"there is no {python}; make it with: scripts/test --adapters {name}")
    command = [str(python), "-m", "benchmarks.adapters", name, "--turns"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    lines = [line for line in printed.splitlines() if line.startswith("[")]
    return [Figures(*figures) for figures in map(json.loads, lines)]


def limits() -> str:
    """Return sentences that say what the same items cost without an adapter. No adapter can cost
    less.
    """
    batches = [
        [item(PER_TURN * n + index) for index in range(PER_TURN)]
        for n in range((ITEMS // PER_TURN) + TURNS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = f"{folder}/theirs.db", f"{folder}/ours.db"
        connection = sqlite3.connect(theirs, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE items (n INTEGER PRIMARY KEY, body TEXT)")
        histories = foldlog.open(ours)

        def insert(items: list[Any]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO items (body) VALUES (?)", [(json.dumps(item),) for item in items]
            )
            connection.execute("COMMIT")

        def append(items: list[Any]) -> None:
            histories["plain"].append(
                [foldlog.Message(source="user", content=json.dumps(item)) for item in items]
            )

        def append_records(items: list[Any]) -> None:
            histories["c"].append_records(items, format="openai-responses")

        writes = (insert, append, append_records)
        turns = [
            statistics.median(cpu_ms(partial(write, items)) for items in batches)
            for write in writes
        ]
        connection.close()
        histories.close()

        def select() -> None:
            opened = sqlite3.connect(theirs)
            for (body,) in opened.execute("SELECT body FROM items ORDER BY n"):
                json.loads(body)
            opened.close()

        def read() -> None:
            opened = foldlog.open(ours)
            for _ in opened["c"]._all_records().records():  # as the adapters do
                pass
            opened.close()

        openings = [
            statistics.median(cpu_ms(work) for _ in range(OPENINGS)) for work in (select, read)
        ]
    return (
        f"Without an adapter, a durable transaction that inserts {PER_TURN} rows takes {turns[0]:.2f}"
        f" ms. One `history.append` of {PER_TURN} events takes {turns[1]:.2f} ms, and one"
        f" `history.append_records` of {PER_TURN} items takes {turns[2]:.2f} ms. Opening a file and"
        f" selecting {ITEMS + PER_TURN * TURNS} rows takes {openings[0]:.1f} ms. Opening a store and"
        f" reading {ITEMS + PER_TURN * TURNS} records takes {openings[1]:.1f} ms."
    )


def cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU time of a call in ms."""
    begun = time.process_time()
    work()
    return 1_000 * (time.process_time() - begun)


def main(publish: bool) -> None:
    """Print the figures of all adapters. With ``publish``, also write them into
    docs/internals/PEERS.md.
    """
    rows = [
        "| SDK | its own store | a turn | open and read 560 items | bytes an item |",
        "|---|---|---:|---:|---:|",
    ]
    print("\n".join(rows))
    for name in dict.fromkeys(key.partition("-")[0] for key in OWN):
        for figures in measured(name):
            rows.append(figures.row())
            print(rows[-1], flush=True)
    rows += ("", limits())
    print("\n".join(rows[-2:]))
    if publish:
        text = PAGE.read_text()
        pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        assert pattern.search(text), f"{PAGE} has no place for the figures"
        table = "\n".join((BEGIN, "", *rows, "", END))
        PAGE.write_text(pattern.sub(lambda match: table, text))


if __name__ == "__main__":
    main("--publish" in sys.argv)
