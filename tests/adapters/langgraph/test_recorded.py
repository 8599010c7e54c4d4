"""A graph of LangGraph is replayed."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from foldlog.adapters.langgraph import FoldlogSaver
from tests.adapters.recorded import check_replay

TOOL = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}


def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def test_a_graph_is_replayed_without_a_model(tmp_path):
    def agent(url, histories, prompt):
        def ask(state):
            body = {"messages": convert_to_openai_messages(state["messages"]), "tools": [TOOL]}
            asked = Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
            try:
                with urlopen(asked) as answer:
                    message = json.load(answer)["choices"][0]["message"]
            except HTTPError as refused:
                with refused:
                    raise ValueError(refused.read().decode()) from None
            return {"messages": convert_to_messages([message])}

        graph = StateGraph(MessagesState).add_node(ask).add_node("tools", ToolNode([pay]))
        graph.add_edge(START, "ask").add_edge("tools", "ask")
        graph.add_conditional_edges("ask", tools_condition)
        saver = FoldlogSaver(histories)
        config = {"configurable": {"thread_id": "t"}}
        compiled = graph.compile(checkpointer=saver)
        compiled.invoke({"messages": [("user", prompt)]}, config, durability="sync")
        return saver.history(config).id

    check_replay(agent, tmp_path / "run.jsonl")
