"""Compare the cost of a session in foldlog with the cost in the store that foldlog replaces. Run
this benchmark in an environment with the SDK:

    scripts/test --adapters openai_agents                     # makes the environment
    .cache/adapters/openai_agents-newest/bin/python -m benchmarks.adapters openai_agents

For another SDK, write its name in place of ``openai_agents``: each SDK has its own environment.
Without a name, the command prints what a turn and the opening of a conversation cost with each
adapter (``adapter_turns``). ``--publish`` also writes the table into docs/internals/PEERS.md.

The OpenAI Agents SDK, Google ADK and LangGraph have their own SQLite stores. The OpenHands SDK and
Strands write one file for each event or message, and the Agent Framework writes a file of lines.
For the Claude Agent SDK and pydantic-ai, the baseline is a hand-written store with tables of JSON.
``tails`` compares the reading of the end of a history, in foldlog without an adapter and in the
OpenAI Agents SDK. It runs in the environment of ``openai_agents``. In each round, foldlog and the
other store take turns. A figure is the median of the rounds. The first ratio compares the elapsed
times, and the second ratio the CPU times.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import foldlog

ITEMS, ROUNDS, STEPS = 10_000, 7, 1_000
Store = Any
Compare = Callable[..., Awaitable[None]]
"""A function with the parameters of ``compare`` that compares two stores."""


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


async def timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Return the elapsed time and the CPU time of ``work``, in ms."""
    begun, used = time.perf_counter(), time.process_time()
    await work()
    return 1_000 * (time.perf_counter() - begun), 1_000 * (time.process_time() - used)


def stored_bytes(path: str) -> int:
    if os.path.isdir(path):
        return sum(file.stat().st_size for file in Path(path).rglob("*"))
    return sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))


async def closed(store: Store) -> None:
    ended = store.close()
    if ended is not None:
        await ended


async def compare(
    make: tuple[Callable[[str], Store], Callable[[str], Store]],
    make_item: Callable[[int], Any],
    add: Callable[[Store, list[Any]], Awaitable[Any]],
    reads: dict[str, Callable[[Store], Awaitable[Any]]],
) -> None:
    """Print the figures of foldlog and of the other store."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("ours.db", "theirs.db")]
        sizes = []
        for path, side in zip(paths, make, strict=True):
            store = side(path)
            for start in range(0, 4 * STEPS, 4):
                await add(store, [make_item(start + n) for n in range(4)])
            await closed(store)
            sizes.append(stored_bytes(path))
            store = side(path)
            for start in range(4 * STEPS, ITEMS, 500):
                await add(store, [make_item(number) for number in range(start, start + 500)])
            await closed(store)
        figures: dict[str, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {}
        for number in range(ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                store = make[which](paths[which])
                await add(store, [make_item(ITEMS + 4 * number)])
                some = [make_item(ITEMS + 4 * number + n) for n in range(1, 5)]
                took = await timed(lambda store=store, some=some: add(store, some))  # type: ignore[misc]
                figures.setdefault("a step: 4 items, warm", ([], []))[which].append(took)
                await closed(store)
                for name, read in reads.items():

                    async def opened(read: Any = read, which: int = which) -> None:
                        store = make[which](paths[which])
                        await read(store)
                        await closed(store)

                    figures.setdefault(f"open and {name}", ([], []))[which].append(
                        await timed(opened)
                    )
    for name, (ours, theirs) in figures.items():
        (mine, cpu), (other, theirs_cpu) = (
            [*map(statistics.median, zip(*side, strict=True))] for side in (ours, theirs)
        )
        print(
            f"{name:34} {mine:9.2f} ms {other:9.2f} ms   x {mine / other:.2f}   x"
            f" {cpu / theirs_cpu:.2f}"
        )
    print(
        f"{'bytes after 1,000 steps of 4':34} {sizes[0]:9,} B  {sizes[1]:9,} B    x"
        f" {sizes[0] / sizes[1]:.2f}"
    )


async def openai_agents(compare: Compare) -> None:
    from agents import SQLiteSession

    from foldlog.adapters.openai_agents import FoldlogSession

    make = (
        lambda path: FoldlogSession("s", f"sqlite:///{path}"),
        lambda path: SQLiteSession("s", path),
    )
    reads = {
        f"get all {ITEMS:,}": lambda store: store.get_items(),
        "get the last 50": lambda store: store.get_items(50),
        "pop one": lambda store: store.pop_item(),
    }
    await compare(make, item, lambda store, items: store.add_items(items), reads)


class Tails:
    """A history of foldlog, with methods that read its end."""

    def __init__(self, path: str) -> None:
        self._histories = foldlog.open(path)
        self._history = self._histories["s"]

    async def add_items(self, items: list[Any]) -> None:
        self._history.append(
            [foldlog.Message(source="user", content=json.dumps(item)) for item in items]
        )

    async def get_items(self, count: int) -> Any:
        return self._history.tail(count)

    async def get_shown(self, count: int) -> Any:
        return self._history.view().tail(count)

    async def pop_item(self) -> Any:
        return self._history.pop()

    def close(self) -> None:
        self._histories.close()


async def tails(compare: Compare) -> None:
    from agents import SQLiteSession

    make = (Tails, lambda path: SQLiteSession("s", path))
    reads = {
        "get the last 50": lambda store: store.get_items(50),
        "get the last 50 of the View": lambda store: getattr(store, "get_shown", store.get_items)(
            50
        ),
        "take the newest back": lambda store: store.pop_item(),
    }
    await compare(make, item, lambda store, items: store.add_items(items), reads)


async def claude_agent(compare: Compare) -> None:
    from foldlog.adapters.claude_agent import FoldlogSessionStore

    key: Any = {"project_key": "p", "session_id": "s"}
    make = (lambda path: FoldlogSessionStore(f"sqlite:///{path}"), ByHand)
    reads = {f"load {ITEMS:,}": lambda store: store.load(key)}
    await compare(make, line, lambda store, lines: store.append(key, lines), reads)


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


async def openhands(compare: Compare) -> None:
    from openhands.sdk.io import LocalFileStore

    from foldlog.adapters.openhands import FoldlogFileStore

    make = (
        lambda path: Talk(FoldlogFileStore(f"sqlite:///{path}", "s")),
        lambda path: Talk(LocalFileStore(path)),
    )
    reads = {f"read {ITEMS:,}": lambda talk: talk.read()}
    await compare(make, event, lambda talk, events: talk.add(events), reads)


async def agent_framework(compare: Compare) -> None:
    from agent_framework import FileHistoryProvider, Message

    from foldlog.adapters.agent_framework import FoldlogHistoryProvider

    class File(FileHistoryProvider):  # type: ignore[misc]
        def close(self) -> None: ...

    make = (lambda path: FoldlogHistoryProvider(f"sqlite:///{path}"), File)
    reads = {f"get all {ITEMS:,}": lambda store: store.get_messages("s")}

    def one(number: int) -> Any:
        return Message("user", [f"{number} " + "word " * 60], message_id=f"m{number}")

    await compare(make, one, lambda store, messages: store.save_messages("s", messages), reads)


async def strands(compare: Compare) -> None:
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
    await compare(make, one, add, {f"list {ITEMS:,}": read})


async def langgraph(compare: Compare) -> None:
    await import_module("benchmarks.langgraph_saver").main(compare)


async def talks(module: str, compare: Compare) -> None:
    """Compare the two stores of a module ``benchmarks.<module>``."""
    sides = import_module(f"benchmarks.{module}")
    reads = {
        f"read {ITEMS:,}": lambda talk: talk.read(),
        "read the last 50": lambda talk: talk.read(50),
    }
    await compare((sides.ours, sides.theirs), sides.one, lambda talk, items: talk.add(items), reads)


SIDES = {
    "openai_agents": openai_agents,
    "tails": tails,
    "claude_agent": claude_agent,
    "openhands": openhands,
    "agent_framework": agent_framework,
    "strands": strands,
    "langgraph": langgraph,
    "google_adk": partial(talks, "adapter_google_adk"),
    "pydantic_ai": partial(talks, "adapter_pydantic_ai"),
}


if __name__ == "__main__":
    match sys.argv[1:]:
        case [] | ["--publish"]:
            import_module("benchmarks.adapter_turns").main("--publish" in sys.argv)
        case [name, "--turns"] if name in SIDES:
            asyncio.run(SIDES[name](partial(import_module("benchmarks.adapter_turns").turns, name)))
        case [name] if name in SIDES:
            print(f"{'':34} {'foldlog':>12} {'theirs':>12}")
            asyncio.run(SIDES[name](compare))
        case _:
            raise SystemExit(
                f"choose one of {', '.join(SIDES)}; or give no name, for the table of PEERS.md"
            )
