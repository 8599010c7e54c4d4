"""Compare a thread of LangGraph in foldlog and in SqliteSaver. Run it in an environment with the
SDK:

    scripts/test --adapters langgraph                         # makes the environment
    .cache/adapters/langgraph-newest/bin/python -m benchmarks.adapters langgraph

Each step calls ``put`` with a checkpoint that has four more messages, then ``put_writes`` for a
task. A figure is the median of the rounds.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from benchmarks.adapters import ITEMS, ROUNDS, Compare, stored_bytes, timed
from foldlog.adapters.langgraph import FoldlogSaver

CHECKPOINTS = 5_000
THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Thread:
    """A thread, and the saver that stores it."""

    def __init__(self, saver: Any, thread: Any = THREAD) -> None:
        self.saver, self._thread = saver, thread
        self._config: Any = None
        self._versions: dict[str, Any] = {}
        self._messages: list[BaseMessage] = []

    def read(self) -> Any:
        saved = self.saver.get_tuple(self._thread)
        if saved is not None:
            self._config, self._versions = saved.config, saved.checkpoint["channel_versions"]
            self._messages = saved.checkpoint["channel_values"].get("messages", [])
        return saved

    def put(self, messages: list[BaseMessage], **others: Any) -> None:
        if self._config is None:
            self.read()
        self._messages = [*self._messages, *messages]
        values = {"messages": self._messages, "branch:to:agent": None, **others}
        new = {name: self.saver.get_next_version(self._versions.get(name), None) for name in values}
        self._versions = {**self._versions, **new}
        versions_seen = {
            "__input__": {},
            "agent": {"branch:to:agent": self._versions["branch:to:agent"]},
        }
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=1)),
            "channel_values": values,
        }
        checkpoint |= {"channel_versions": dict(self._versions), "versions_seen": versions_seen}
        self._config = self.saver.put(
            self._config or self._thread, checkpoint, {"source": "loop", "step": 1}, new
        )
        self.saver.put_writes(self._config, [("messages", messages)], str(uuid6()), "~agent")

    def close(self) -> None:
        if isinstance(self.saver, SqliteSaver):
            self.saver.conn.close()
        else:
            self.saver.close()


def ours(path: str) -> Thread:
    return Thread(FoldlogSaver(f"sqlite:///{path}"))


def theirs(path: str) -> Thread:
    return Thread(SqliteSaver(sqlite3.connect(path, check_same_thread=False)))


def message(number: int) -> BaseMessage:
    text, message_id = f"{number} " + "word " * 60, f"{number:08x}-0000-4000-8000-000000000000"
    match number % 3:
        case 0:
            call = {"name": "f", "args": {"text": text}, "id": f"c{number}"}
            return AIMessage("", id=message_id, tool_calls=[call])
        case 1:
            return ToolMessage(text, id=message_id, tool_call_id=f"c{number - 1}")
    return HumanMessage(text, id=message_id)


async def put(thread: Thread, messages: list[BaseMessage]) -> None:
    thread.put(messages)


async def read(thread: Thread) -> None:
    thread.read()


async def long_thread() -> None:
    """Print the CPU time to open a thread with many checkpoints, and the stored bytes."""
    with tempfile.TemporaryDirectory() as folder:
        sizes: list[int] = []
        took: tuple[list[float], list[float]] = ([], [])
        makes = (ours, theirs)
        paths = [str(Path(folder) / make.__name__) for make in makes]
        for make, path in zip(makes, paths, strict=True):
            thread = make(path)
            for number in range(CHECKPOINTS):
                thread.put([], counter=number)
            thread.close()
            sizes.append(stored_bytes(path))

        async def opened(which: int) -> None:
            thread = makes[which](paths[which])
            await read(thread)
            thread.close()

        for number in range(6 * ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                took[which].append((await timed(partial(opened, which)))[1])
        mine, other = map(statistics.median, took)
    print(
        f"{f'open a thread of {CHECKPOINTS:,} checkpoints':34} {mine:9.2f} ms {other:9.2f} ms   ",
        end="",
    )
    print(f"x {mine / other:.2f}")
    print(
        f"{f'bytes of {CHECKPOINTS:,} small checkpoints':34} {sizes[0]:9,} B  {sizes[1]:9,} B    ",
        end="",
    )
    print(f"x {sizes[0] / sizes[1]:.2f}")


class Graph:
    """A graph with one node. ``add`` runs the graph: the first message is the input, and the node
    answers with the other messages.
    """

    def __init__(self, saver: Any, messages: Any) -> None:
        self._saver = saver
        builder = StateGraph(TypedDict("State", {"messages": messages}))  # type: ignore[operator]
        builder.add_node("node", lambda state: {"messages": self._answer})
        builder.add_edge(START, "node")
        self._graph = builder.compile(checkpointer=saver)
        self._answer: list[BaseMessage] = []

    async def add(self, messages: list[BaseMessage]) -> None:
        self._answer = messages[1:]
        self._graph.invoke({"messages": messages[:1]}, THREAD, durability="sync")

    async def read(self) -> None:
        assert self._graph.get_state(THREAD).values["messages"]

    def close(self) -> None:
        Thread(self._saver).close()


async def graphs(turns: Compare) -> None:
    """Compare the cost of a graph that stores its messages in full at each step, and of graphs that
    store differences.
    """
    from langgraph.channels.delta import DeltaChannel
    from langgraph.graph.message import _messages_delta_reducer, add_messages

    kinds = {
        "langgraph": Annotated[list, add_messages],
        "langgraph-delta": Annotated[list, DeltaChannel(_messages_delta_reducer)],
        "langgraph-delta-50": Annotated[
            list, DeltaChannel(_messages_delta_reducer, snapshot_frequency=50)
        ],
    }
    for name, kind in kinds.items():
        sides = [
            lambda path, kind=kind: Graph(FoldlogSaver(f"sqlite:///{path}"), kind),
            lambda path, kind=kind: Graph(
                SqliteSaver(sqlite3.connect(path, check_same_thread=False)), kind
            ),
        ]
        measure = getattr(turns, "func")  # the figures of each kind have its name  # noqa: B009
        await measure(
            name,
            sides,
            message,
            lambda graph, some: graph.add(some),
            {"read": lambda graph: graph.read()},
        )


async def main(compare: Compare) -> None:
    if isinstance(compare, partial):
        await graphs(compare)
        return
    await long_thread()
    await compare((ours, theirs), message, put, {f"get a tuple of {ITEMS:,}": read})
