"""LangGraph's ``SqliteSaver``, called as the loop of a graph calls it with ``durability="sync"``.

The state has two channels: ``messages`` and ``summary``. Each item is a superstep: ``put_writes``
records the result of the node, and ``put`` records the new state. A condensation removes messages
from the state, and replaces the summary. A read is ``get_tuple``, which LangGraph calls at the
start of each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.peers.side import Item, Store, arguments_of, serve

_HEAD = 4


class Savers:
    packages = ("langgraph-checkpoint-sqlite", "langgraph-checkpoint", "langgraph")
    shows = "view"

    def prepare(self) -> None: ...

    def open(self, path: str) -> Store:
        return Thread(path)


class Thread:
    def __init__(self, path: str) -> None:
        self._stack = ExitStack()
        self._saver = self._stack.enter_context(SqliteSaver.from_conn_string(f"{path}.db"))
        self._config: Any = {"configurable": {"thread_id": "c1", "checkpoint_ns": ""}}
        self._values: dict[str, Any] = {"messages": [], "summary": ""}
        self._versions: dict[str, str] = {}
        self._loaded = False

    def add(self, items: Sequence[Item]) -> None:
        self._load()
        for item in items:
            message = _message(item)
            self._values = {**self._values, "messages": [*self._values["messages"], message]}
            self._superstep([("messages", [message])])

    def condense(self, item: Item) -> None:
        self._load()
        forgotten_ids = {str(n) for n in item["forgotten"]}
        remaining = [
            message for message in self._values["messages"] if message.id not in forgotten_ids
        ]
        self._values = {"messages": remaining, "summary": item["text"]}
        self._superstep([("messages", remaining), ("summary", item["text"])])

    def _load(self) -> None:
        """Read the state of the thread, as a graph does before its first superstep."""
        if not self._loaded:
            self.read()

    def _superstep(self, writes: list[tuple[str, Any]]) -> None:
        checkpoint = empty_checkpoint()
        if "checkpoint_id" in self._config["configurable"]:
            self._saver.put_writes(self._config, writes, task_id=checkpoint["id"])
        changed = {
            channel: self._saver.get_next_version(self._versions.get(channel), None)  # type: ignore[arg-type]
            for channel, _ in writes
        }
        self._versions = {**self._versions, **changed}
        checkpoint["channel_values"] = dict(self._values)
        checkpoint["channel_versions"] = dict(self._versions)
        self._config = self._saver.put(
            self._config, checkpoint, {"source": "loop", "step": 0}, dict(changed)
        )

    def read(self) -> dict[str, Any]:
        checkpoint: CheckpointTuple | None = self._saver.get_tuple(
            {"configurable": {"thread_id": "c1", "checkpoint_ns": ""}}
        )
        if checkpoint is not None:
            self._config = checkpoint.config
            self._values = checkpoint.checkpoint["channel_values"]
            self._versions = dict(checkpoint.checkpoint["channel_versions"])  # type: ignore[arg-type]
        self._loaded = True
        return self._values

    def fill(self, items: Sequence[Item]) -> None:
        for item in items:
            if item["kind"] == "condensation":
                self.condense(item)
            else:
                self.add([item])

    def said(self, answer: dict[str, Any]) -> Iterable[Sequence[str]]:
        entries = [_said(message) for message in answer["messages"]]
        if answer["summary"]:
            entries.insert(_HEAD, ("summary", answer["summary"]))
        return entries

    def close(self) -> None:
        self._stack.close()


def _message(item: Item) -> AnyMessage:
    name = str(item["n"])
    match item["kind"]:
        case "system":
            return SystemMessage(item["text"], id=name)
        case "user":
            return HumanMessage(item["text"], id=name)
        case "call":
            call = {
                "id": item["call_id"],
                "name": "terminal",
                "args": json.loads(item["arguments"]),
            }
            return AIMessage("", tool_calls=[call], id=name)
    return ToolMessage(item["text"], tool_call_id=item["call_id"], id=name)


def _said(message: AnyMessage) -> Sequence[str]:
    match message:
        case AIMessage():
            (call,) = message.tool_calls
            return ("call", str(call["id"]), arguments_of(call["args"]))
        case ToolMessage():
            return ("result", message.tool_call_id, str(message.content))
        case SystemMessage():
            return ("system", str(message.content))
    return ("user", str(message.content))


if __name__ == "__main__":
    serve(Savers())
