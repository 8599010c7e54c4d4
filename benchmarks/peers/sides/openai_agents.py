"""OpenAI Agents SDK: this side calls ``add_items`` and ``get_items`` of ``SQLiteSession``, as
``Runner`` does.

``--newest 60`` reads the newest 60 items only, by ``SessionSettings(limit=60)``. A session records
no condensation.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from agents import SQLiteSession
from agents.memory import SessionSettings

from benchmarks.peers.side import Item, Store, arguments_of, serve


class Sessions:
    packages = ("openai-agents",)

    def __init__(self, newest: int | None) -> None:
        self.shows = "log" if newest is None else "newest"
        self._newest = newest
        self._runner: asyncio.Runner | None = None

    def prepare(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.get_loop()

    def open(self, path: str) -> Store:
        assert self._runner is not None
        settings = None if self._newest is None else SessionSettings(limit=self._newest)
        return Session(self._runner, SQLiteSession("c1", f"{path}.db", session_settings=settings))


class Session:
    def __init__(self, runner: asyncio.Runner, session: SQLiteSession) -> None:
        self._run = runner.run
        self._runner = runner
        self._session = session

    def add(self, items: Sequence[Item]) -> None:
        self._run(self._session.add_items([_item(item) for item in items]))

    def condense(self, item: Item) -> None: ...

    def read(self) -> list[Any]:
        return self._run(self._session.get_items())

    def fill(self, items: Sequence[Item]) -> None:
        self._run(
            self._session.add_items(
                [_item(item) for item in items if item["kind"] != "condensation"]
            )
        )

    def said(self, answer: list[Any]) -> Iterable[Sequence[str]]:
        for item in answer:
            match item.get("type"):
                case "function_call":
                    yield ("call", item["call_id"], arguments_of(json.loads(item["arguments"])))
                case "function_call_output":
                    yield ("result", item["call_id"], item["output"])
                case _:
                    yield (item["role"], item["content"])

    def close(self) -> None:
        self._session.close()
        self._runner.close()


def _item(item: Item) -> Any:
    match item["kind"]:
        case "call":
            called = {
                "call_id": item["call_id"],
                "name": "terminal",
                "arguments": item["arguments"],
            }
            return {"type": "function_call", **called}
        case "result":
            return {
                "type": "function_call_output",
                "call_id": item["call_id"],
                "output": item["text"],
            }
    return {"role": item["kind"], "content": item["text"]}


if __name__ == "__main__":
    serve(Sessions(int(sys.argv[2]) if sys.argv[1:2] == ["--newest"] else None))
