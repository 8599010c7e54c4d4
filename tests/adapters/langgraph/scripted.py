"""An agent of LangGraph, and a model that plays a script and refuses a prompt that a server
would.
"""

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field

from tests.adapters import contract


def call(tool, *call_ids, **arguments):
    """Return a message that calls a tool, once for each id."""
    calls = [{"name": tool, "args": arguments, "id": call_id} for call_id in call_ids]
    return AIMessage(f"I call {tool}", tool_calls=calls)


def reply(answer):
    """Return the message of a reply of ``contract.Script``."""
    if isinstance(answer, str):
        return AIMessage(answer)
    calls = [{"name": tool, "args": arguments, "id": name} for tool, name, arguments in answer]
    return AIMessage("", tool_calls=calls)


def steps(count, tool="measure"):
    """Return a script of so many messages with calls before the last one; every second one has two
    parallel calls.
    """

    def script(messages, number):
        if number < count:
            return call(tool, *(f"c{len(messages)}-{number}-{n}" for n in range(1 + number % 2)))
        return AIMessage("finished")

    return script


def check(messages, messages_max=None):
    """Raise ``Refused`` for a malformed prompt."""
    calls = [[each["id"] for each in getattr(message, "tool_calls", ())] for message in messages]
    results = [
        [message.tool_call_id] if isinstance(message, ToolMessage) else [] for message in messages
    ]
    contract.check_prompt(zip(calls, results, strict=True), messages_max)


USAGE = {
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_token_details": {"cache_read": 4},
}


class ScriptedModel(BaseChatModel):
    """``script(messages, number)`` returns the answer to a call; ``prompts`` are what came."""

    script: Any
    messages_max: int | None = None
    prompts: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        check(messages, self.messages_max)
        self.prompts.append(list(messages))
        message = self.script(messages, len(self.prompts) - 1)
        message = message.model_copy(
            update={"usage_metadata": USAGE, "response_metadata": {"model_name": "scripted"}}
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


_EFFECTS = ("wrap_tool_call", "awrap_tool_call")


def agent(model, tools, saver, hook=None):
    """Return a graph that calls the model and its tools in turn."""

    def ask(state: MessagesState, config: RunnableConfig):
        messages = state["messages"] if hook is None else hook(state, config)["llm_input_messages"]
        return {"messages": [model.invoke(messages)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", ask)
    effects = {name: getattr(saver, name) for name in _EFFECTS if hasattr(saver, name)}
    builder.add_node("tools", ToolNode(tools, **effects))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)
