"""The stores of LangGraph that ``benchmarks.adapters`` compares: foldlog's saver, and SqliteSaver. A
graph stores its messages in full at each step, or their differences.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

from foldlog.adapters.langgraph import FoldlogSaver

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def message(number: int) -> BaseMessage:
    text = f"{number} " + "word " * 60
    message_id = f"{number:08x}-0000-4000-8000-000000000000"
    match number % 3:
        case 0:
            call = {"name": "f", "args": {"text": text}, "id": f"c{number}"}
            return AIMessage("", id=message_id, tool_calls=[call])
        case 1:
            return ToolMessage(text, id=message_id, tool_call_id=f"c{number - 1}")
    return HumanMessage(text, id=message_id)


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
        closing = self._saver.conn if isinstance(self._saver, SqliteSaver) else self._saver
        closing.close()


def sides() -> dict[str, tuple[Callable[[str], Graph], Callable[[str], Graph]]]:
    """Return the two stores for each kind of graph."""
    delta_50 = DeltaChannel(_messages_delta_reducer, snapshot_frequency=50)
    kinds: dict[str, Any] = {
        "langgraph": Annotated[list, add_messages],
        "langgraph-delta": Annotated[list, DeltaChannel(_messages_delta_reducer)],
        "langgraph-delta-50": Annotated[list, delta_50],
    }
    return {name: (partial(_ours, kind), partial(_theirs, kind)) for name, kind in kinds.items()}


def _ours(kind: Any, path: str) -> Graph:
    return Graph(FoldlogSaver(f"sqlite:///{path}"), kind)


def _theirs(kind: Any, path: str) -> Graph:
    return Graph(SqliteSaver(sqlite3.connect(path, check_same_thread=False)), kind)
