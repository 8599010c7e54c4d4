"""A long conversation with a graph of LangGraph. foldlog condenses the prompt when the model is
called, and the state keeps every message.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[langgraph]' langgraph langchain-openai
OPENAI_API_KEY=... python examples/langgraph_foldlog.py "What did we speak of?"
"""

from __future__ import annotations

import os
import sys
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

import foldlog
from foldlog.adapters.langgraph import FoldlogSaver

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")


def main(prompt: str, model: Any) -> None:
    """Ask, then print the answer, the number of checkpoints and the size of the View."""
    with foldlog.open(URL, condenser={"type": "digest", "max_size": 60}) as histories:
        saver = FoldlogSaver(histories, condense=True)

        def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            prompt = saver.pre_model_hook(state, config)["llm_input_messages"]
            return {"messages": [model.invoke(prompt)]}

        graph = (
            StateGraph(MessagesState)
            .add_node(answer)
            .add_edge(START, "answer")
            .compile(checkpointer=saver)
        )
        config: RunnableConfig = {"configurable": {"thread_id": "example"}}
        result = graph.invoke({"messages": [("user", prompt)]}, config, durability="sync")
        print(result["messages"][-1].content)
        history = saver.history(config)
        print(
            f"{len(list(graph.get_state_history(config)))} checkpoints, {len(history.view())}"
            " messages for the model"
        )


if __name__ == "__main__":
    from langchain_openai import ChatOpenAI

    main(sys.argv[1], ChatOpenAI())
