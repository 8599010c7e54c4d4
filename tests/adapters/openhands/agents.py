"""Agents of the OpenHands SDK with one tool, which does what its call says: also kill its own
process.
"""

import time
from contextlib import suppress

from openhands.sdk import LLM, Agent
from openhands.sdk.conversation.impl.local_conversation import LocalConversation
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import (
    Action,
    Observation,
    Tool,
    ToolDefinition,
    ToolExecutor,
    register_tool,
)


class WorkAction(Action):
    what: str = "nothing"


class WorkObservation(Observation):
    pass


TOOLS = {}
"""What is called for ``what`` an action does."""


class Work(ToolExecutor):
    def __call__(self, action, conversation=None):
        TOOLS.get(action.what, str)()
        if action.what == "wait":
            time.sleep(0.3)
        return WorkObservation.from_text(f"{action.what}: done")


class WorkTool(ToolDefinition[WorkAction, WorkObservation]):
    @classmethod
    def create(cls, conv_state=None, **parameters):
        types = {"action_type": WorkAction, "observation_type": WorkObservation}
        return [cls(description="Work.", executor=Work(), **types)]


with suppress(ValueError):  # it is registered already
    register_tool("work", WorkTool)


def served(url):
    """Return a model behind a server."""
    return LLM(
        model="openai/gpt-4o",
        api_key="key",
        base_url=url,
        usage_id="agent",
        num_retries=0,
        stream=False,
    )


def scripted(*replies):
    """Return a model that answers these: a text, or the name of a call and what the tool does."""
    messages = []
    for reply in replies:
        calls = None
        if isinstance(reply, tuple):
            calls = [
                MessageToolCall(
                    id=call_id, name="work", arguments=f'{{"what": "{what}"}}', origin="completion"
                )
                for call_id, what in [reply]
            ]
        text = "" if calls else reply
        messages.append(
            Message(role="assistant", content=[TextContent(text=text)], tool_calls=calls)
        )
    return TestLLM.from_messages(messages)


def agent(llm, condenser=None, tool="work"):
    return Agent(llm=llm, tools=[Tool(name=tool)], include_default_tools=[], condenser=condenser)


def conversation(store, conversation_id, llm, workspace, condenser=None, tool="work"):
    return LocalConversation(
        agent=agent(llm, condenser, tool),
        workspace=str(workspace),
        conversation_id=conversation_id,
        file_store=store,
        visualizer=None,
        stuck_detection=False,
        max_iteration_per_run=300,
    )
