"""Measure what a turn of an agent and the opening of its conversation cost, in foldlog and in the
store that foldlog replaces: ``python -m benchmarks.adapters [--publish]``.

Each SDK has an environment of its own, which ``scripts/test --adapters`` makes. The OpenAI Agents
SDK, Google ADK and LangGraph have their own SQLite stores. The OpenHands SDK and Strands write one
file for each event or message, and the Agent Framework writes a file of lines. For the Claude Agent
SDK, the baseline is a hand-written store with a table of JSON. The other adapters are not compared:
pydantic-ai, for example, has only a store in memory.

The benchmark records a conversation of 400 items in turns of four, as the SDK does. It then
measures 40 more turns, and opens and reads the conversation 15 times. The two stores take turns. A
figure is the median CPU time in ms. With LangGraph, a turn also runs the graph.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.frame import refuse_load
from benchmarks.pages import with_part

ROOT = Path(__file__).parents[1]
ITEMS = 400
PER_TURN = 4
TURNS = 40
OPENINGS = 15
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
    "agent_framework": ("Agent Framework", "`FileHistoryProvider`"),
    "strands": ("Strands", "`FileSessionManager`"),
}
PAGE = ROOT / "docs/internals/SPEED.md"


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
    read: Callable[[Any], Awaitable[Any]],
) -> None:
    """Print the figures of foldlog and of the other store as a line of JSON."""
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
                took[which].append(await cpu_ms(turn(which, number)))
        for store in stores:
            await close_store(store)
        sizes = [stored_bytes(path) / (ITEMS + PER_TURN * TURNS) for path in paths]

        async def opened(which: int) -> None:
            store = make[which](paths[which])
            await read(store)
            await close_store(store)

        openings: list[list[float]] = [[], []]
        for number in range(OPENINGS):
            for which in (0, 1) if number % 2 else (1, 0):
                openings[which].append(await cpu_ms(opened(which)))
    turn_ms = [statistics.median(times[-TURNS:]) for times in took]
    print(json.dumps([name, turn_ms, [*map(statistics.median, openings)], sizes]))


async def cpu_ms(work: Awaitable[None]) -> float:
    begun = time.process_time()
    await work
    return 1_000 * (time.process_time() - begun)


def item(number: int) -> dict[str, Any]:
    """Return an item of a run: a call, the output of a call, or a message, each of a few hundred
    bytes.
    """
    text = f"{number} " + "word " * 60
    match number % 3:
        case 0:
            return {
                "arguments": json.dumps({"text": text}),
                "call_id": f"c{number}",
                "name": "f",
                "type": "function_call",
            }
        case 1:
            return {"call_id": f"c{number - 1}", "output": text, "type": "function_call_output"}
    return {"role": "user", "content": text}


def line(number: int) -> dict[str, Any]:
    """Return line ``number`` of a Claude Code session. Each line names the previous line as its
    parent.
    """
    message = {"role": "user", "content": f"{number} " + "word " * 60}
    envelope = {
        "isSidechain": False,
        "userType": "external",
        "cwd": "/work",
        "sessionId": "s",
        "version": "2.1.0",
    }
    ids = {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "parentUuid": None}
    if number:
        ids["parentUuid"] = f"{number - 1:08x}-0000-4000-8000-000000000000"
    return {
        **ids,
        **envelope,
        "type": "user",
        "message": message,
        "timestamp": "2026-11-20T10:00:00.000Z",
    }


class ByHand:
    """A hand-written store of Claude's sessions: one table of JSON. Like the SDKs' own stores, it
    uses threads, so that the event loop never waits for the disk.
    """

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(
            "CREATE TABLE IF NOT EXISTS lines (n INTEGER PRIMARY KEY, session TEXT, uuid TEXT, body"
            " TEXT);CREATE UNIQUE INDEX IF NOT EXISTS by_uuid ON lines (session, uuid)"
        )

    async def append(self, key: Any, entries: list[Any]) -> None:
        await asyncio.to_thread(self._append, key, entries)

    def _append(self, key: Any, entries: list[Any]) -> None:
        rows = [(key["session_id"], entry.get("uuid"), json.dumps(entry)) for entry in entries]
        self._connection.execute("BEGIN")
        self._connection.executemany(
            "INSERT OR IGNORE INTO lines (session, uuid, body) VALUES (?, ?, ?)", rows
        )
        self._connection.execute("COMMIT")

    async def load(self, key: Any) -> list[Any]:
        return await asyncio.to_thread(self._load, key)

    def _load(self, key: Any) -> list[Any]:
        rows = self._connection.execute(
            "SELECT body FROM lines WHERE session = ? ORDER BY n", (key["session_id"],)
        )
        return [json.loads(body) for (body,) in rows]

    async def close(self) -> None:
        self._connection.close()


def stored_bytes(path: str) -> int:
    if os.path.isdir(path):
        return sum(file.stat().st_size for file in Path(path).rglob("*"))
    return sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))


async def close_store(store: Any) -> None:
    ended = store.close()
    if ended is not None:
        await ended


async def openai_agents() -> None:
    from agents import SQLiteSession

    from foldlog.adapters.openai_agents import FoldlogSession

    make = (
        lambda path: FoldlogSession("s", f"sqlite:///{path}"),
        lambda path: SQLiteSession("s", path),
    )
    await turns(
        "openai_agents",
        make,
        item,
        lambda store, items: store.add_items(items),
        lambda store: store.get_items(),
    )


async def claude_agent() -> None:
    from foldlog.adapters.claude_agent import FoldlogSessionStore

    key: Any = {"project_key": "p", "session_id": "s"}
    make = (lambda path: FoldlogSessionStore(f"sqlite:///{path}"), ByHand)
    await turns(
        "claude_agent",
        make,
        line,
        lambda store, lines: store.append(key, lines),
        lambda store: store.load(key),
    )


class Talk:
    """Use a store as a conversation of the OpenHands SDK does: append to a log of events, and write
    a state that grows.
    """

    def __init__(self, store: Any) -> None:
        from openhands.sdk.conversation.event_store import EventLog

        self.store = store
        self.log = EventLog(store)
        self.state: dict[str, Any] = {"agent": {"prompt": "word " * 1_000}, "usages": []}
        if store.exists("base_state.json"):
            self.state = json.loads(store.read("base_state.json"))

    async def add(self, events: list[Any]) -> None:
        for event in events:
            self.log.append(event.model_copy(update={"parent_id": self.state.get("leaf_event_id")}))
            self.state["leaf_event_id"] = event.id
        self.state["usages"].append(
            {"model": "m", "prompt_tokens": len(self.log), "cost": 0.01, "latency": 1.5}
        )
        self.store.write("base_state.json", json.dumps(self.state))

    async def read(self) -> list[Any]:
        return list(self.log)

    def close(self) -> None:
        getattr(self.store, "close", lambda: None)()


def event(number: int) -> Any:
    """Return an event of the OpenHands SDK: a message of a few hundred bytes."""
    from openhands.sdk.event import MessageEvent
    from openhands.sdk.llm import Message, TextContent

    message = Message(role="user", content=[TextContent(text=f"{number} " + "word " * 60)])
    return MessageEvent(source="user", llm_message=message)


async def openhands() -> None:
    from openhands.sdk.io import LocalFileStore

    from foldlog.adapters.openhands import FoldlogFileStore

    make = (
        lambda path: Talk(FoldlogFileStore(f"sqlite:///{path}", "s")),
        lambda path: Talk(LocalFileStore(path)),
    )
    await turns("openhands", make, event, _add, _read)


async def agent_framework() -> None:
    from agent_framework import FileHistoryProvider, Message

    from foldlog.adapters.agent_framework import FoldlogHistoryProvider

    class File(FileHistoryProvider):  # type: ignore[misc]
        def close(self) -> None: ...

    make = (lambda path: FoldlogHistoryProvider(f"sqlite:///{path}"), File)

    def one(number: int) -> Any:
        return Message("user", [f"{number} " + "word " * 60], message_id=f"m{number}")

    await turns(
        "agent_framework",
        make,
        one,
        lambda store, messages: store.save_messages("s", messages),
        lambda store: store.get_messages("s"),
    )


async def strands() -> None:
    from strands.session.file_session_manager import FileSessionManager
    from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

    from foldlog.adapters.strands import FoldlogSessionRepository

    class Files(FileSessionManager):  # type: ignore[misc]
        def __init__(self, path: str) -> None:
            super().__init__("s", storage_dir=path)

        def close(self) -> None: ...

    def one(number: int) -> Any:
        message: Any = {"role": "user", "content": [{"text": f"{number} " + "word " * 60}]}
        return SessionMessage.from_message(message, number)

    async def add(store: Any, messages: list[Any]) -> None:
        if store.read_agent("s", "a") is None:
            if store.read_session("s") is None:
                store.create_session(Session(session_id="s", session_type=SessionType.AGENT))
            store.create_agent("s", SessionAgent("a", {}, {}))
        for message in messages:
            store.create_message("s", "a", message)
            store.update_agent("s", SessionAgent("a", {}, {}))  # as the session manager does

    async def read(store: Any) -> Any:
        return store.list_messages("s", "a")

    make = (lambda path: FoldlogSessionRepository(f"sqlite:///{path}"), Files)
    await turns("strands", make, one, add, read)


async def langgraph() -> None:
    for name, sides in import_module("benchmarks.adapter_langgraph").sides().items():
        await turns(name, sides, import_module("benchmarks.adapter_langgraph").message, _add, _read)


async def compare_talks(name: str) -> None:
    """Compare the two stores of a module ``benchmarks.adapter_<name>``."""
    module = import_module(f"benchmarks.adapter_{name}")
    await turns(name, (module.ours, module.theirs), module.one, _add, _read)


async def _add(talk: Any, items: list[Any]) -> None:
    await talk.add(items)


async def _read(talk: Any) -> Any:
    return await talk.read()


SIDES = {
    "openai_agents": openai_agents,
    "claude_agent": claude_agent,
    "openhands": openhands,
    "langgraph": langgraph,
    "google_adk": partial(compare_talks, "google_adk"),
    "agent_framework": agent_framework,
    "strands": strands,
}


def measure_adapter(name: str) -> list[Figures]:
    """Measure one adapter in its environment, and return the figures."""
    python = ROOT / f".cache/adapters/{name}-newest/bin/python"
    if not python.exists():
        raise SystemExit(f"there is no {python}; make it with: scripts/test --adapters {name}")
    command = [str(python), "-m", "benchmarks.adapters", "--here", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    lines = [line for line in printed.splitlines() if line.startswith("[")]
    return [Figures(*figures) for figures in map(json.loads, lines)]


@click.command()
@click.option(
    "--publish",
    is_flag=True,
    help="Write the figures into docs/internals/SPEED.md. Refused above a load average of 1.",
)
@click.option("--here", type=click.Choice([*SIDES]), hidden=True)
def main(publish: bool, here: str | None) -> None:
    """Measure each adapter beside the store of its SDK."""
    if here:
        asyncio.run(SIDES[here]())
        return
    if publish:
        refuse_load(os.getloadavg()[0])
    rows = [
        "| SDK | its own store | a turn | open and read 560 items | bytes an item |",
        "|---|---|---:|---:|---:|",
    ]
    print("\n".join(rows))
    for name in SIDES:
        for figures in measure_adapter(name):
            rows.append(figures.row())
            print(rows[-1], flush=True)
    if publish:
        command = "python -m benchmarks.adapters --publish"
        PAGE.write_text(with_part(PAGE.read_text(), command, "\n".join(rows)))


if __name__ == "__main__":
    main()
