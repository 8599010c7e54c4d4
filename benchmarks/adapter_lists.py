"""Measure what a list of 1,000 sessions costs, in foldlog and in the store that foldlog replaces.
Run this benchmark in an environment with the SDK, which ``benchmarks.adapters`` describes:

    .cache/adapters/google_adk-newest/bin/python -m benchmarks.adapter_lists google_adk

For the other SDKs, write ``claude_agent``, ``langgraph`` or ``pydantic_ai`` in place of
``google_adk``. Google ADK and LangGraph have their own SQLite stores. For the Claude Agent SDK and
pydantic-ai, the baseline is a hand-written table with a row of JSON for each session. A figure is
the median CPU time of the rounds. The rows that begin with ``open and`` also measure the opening of
the store, in a process that has opened it before.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.adapters import ROUNDS, closed

SESSIONS = 1_000
Sides = tuple[Callable[[str], Any], Callable[[str], Any]]
Work = Callable[[Any], Awaitable[Any]]


async def measure(
    sides: Sides, add: Callable[[Any, int], Awaitable[Any]], lists: dict[str, Work]
) -> None:
    """Print the figures of foldlog and of the other store."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("ours.db", "theirs.db")]
        figures: dict[str, tuple[list[float], list[float]]] = {}

        async def timed(name: str, which: int, listing: Work, *stores: Any) -> None:
            begun = time.process_time()
            store = stores[0] if stores else sides[which](paths[which])
            await listing(store)
            took = 1_000 * (time.process_time() - begun)
            figures.setdefault(name, ([], []))[which].append(took)
            if not stores:
                await closed(store)

        for which in (0, 1):
            store = sides[which](paths[which])
            for number in range(SESSIONS):
                await add(store, number)
            await closed(store)
        for number in range(ROUNDS + 1):
            for which in (0, 1) if number % 2 else (1, 0):
                for name, listing in lists.items():
                    await timed(f"open and {name}", which, listing)
                store = sides[which](paths[which])
                for name, listing in lists.items():
                    await listing(store)
                    await timed(name, which, listing, store)
                await closed(store)
    for name, (ours, theirs) in figures.items():
        mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
        print(
            f"{name:34} {mine:9.2f} ms {other:9.2f} ms   x {mine / other:.2f}   (the first"
            f" {ours[0]:.0f} ms)"
        )


async def google_adk() -> None:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    from benchmarks.adapter_google_adk import one
    from foldlog.adapters.google_adk import FoldlogSessionService

    async def add(service: Any, number: int) -> None:
        names = {"app_name": "a", "user_id": f"u{number % 5}", "session_id": f"s{number}"}
        session = await service.create_session(**names, state={"a": number, "user:k": number})
        for nth in (0, 1, 2):
            await service.append_event(session, one(nth))

    sides = (lambda path: FoldlogSessionService(f"sqlite:///{path}"), SqliteSessionService)
    await measure(
        sides, add, {"list 1,000 sessions": lambda service: service.list_sessions(app_name="a")}
    )


async def langgraph() -> None:
    from benchmarks.langgraph_saver import Thread, message, ours, theirs

    async def add(thread: Thread, number: int) -> None:
        other = Thread(
            thread.saver, {"configurable": {"thread_id": f"t{number}", "checkpoint_ns": ""}}
        )
        for step in range(3):
            other.put([message(step)])

    async def listed(thread: Thread) -> None:
        assert len(list(thread.saver.list(None, limit=20))) == 20

    await measure((ours, theirs), add, {"list 20 of 1,000 threads": listed})


class Summaries:
    """A hand-written store of Claude Agent SDK sessions: a table of lines, and a table of the SDK's
    summaries.
    """

    def __init__(self, path: str) -> None:
        from benchmarks.adapters import ByHand

        self._lines = ByHand(path)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS summaries (session TEXT PRIMARY KEY, body TEXT)"
        )

    async def append(self, key: Any, entries: list[Any]) -> None:
        from claude_agent_sdk import fold_session_summary

        await self._lines.append(key, entries)
        summary = json.dumps(fold_session_summary(None, key, entries))
        self._connection.execute(
            "INSERT OR REPLACE INTO summaries VALUES (?, ?)", (key["session_id"], summary)
        )

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        return [
            json.loads(body) for (body,) in self._connection.execute("SELECT body FROM summaries")
        ]

    async def close(self) -> None:
        self._connection.close()
        await self._lines.close()


async def claude_agent() -> None:
    from benchmarks.adapters import line
    from foldlog.adapters.claude_agent import FoldlogSessionStore

    async def add(store: Any, number: int) -> None:
        key = {"project_key": "p", "session_id": f"{number:08x}-0000-4000-8000-000000000000"}
        await store.append(key, [line(nth) for nth in range(12)])

    sides = (lambda path: FoldlogSessionStore(f"sqlite:///{path}"), Summaries)
    await measure(
        sides, add, {"list 1,000 summaries": lambda store: store.list_session_summaries("p")}
    )


async def pydantic_ai() -> None:
    from pydantic_ai.conversation import Conversation

    from benchmarks.adapter_pydantic_ai import TablesByHand, one
    from foldlog.adapters.pydantic_ai import FoldlogConversationStore

    async def add(store: Any, number: int) -> None:
        await store.save(
            Conversation(conversation_id=f"c{number}", messages=[one(nth) for nth in range(4)])
        )

    sides = (lambda path: FoldlogConversationStore(f"sqlite:///{path}"), TablesByHand)
    lists = {
        "list 1,000 conversations": lambda store: store.list_conversations(),
        "list 20 of 1,000": lambda store: store.list_conversations(limit=20),
    }
    await measure(sides, add, lists)


SIDES = {side.__name__: side for side in (claude_agent, google_adk, langgraph, pydantic_ai)}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SIDES:
        raise SystemExit(f"say which: {', '.join(SIDES)}")
    print(f"{'':34} {'foldlog':>12} {'theirs':>12}")
    asyncio.run(SIDES[sys.argv[1]]())
