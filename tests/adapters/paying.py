"""An agent of each runtime with a tool that pays, which is killed in it, and started again.

    python -m tests.adapters.paying RUNTIME STORE BANK [kill]

The bank is a file with a line for each payment. The tool first opens the store by itself and writes
whether its call is there; with ``kill`` it kills its process when it has paid. The last line that
is printed is what the model was sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import foldlog

STORE, BANK, KILL = sys.argv[2], sys.argv[3], sys.argv[4:] == ["kill"]
CALL = f"call-{os.getpid()}"
SENT: list[Any] = []
"""What the model was sent, call by call. It calls the tool once, and then it is content."""


def write_down(line: str) -> None:
    with open(BANK, "a", encoding="utf-8") as bank:
        bank.write(f"{line}\n")


@foldlog.effect()
def pay(to: str) -> str:
    """Pay somebody.

    Args:
        to: who is paid
    """
    with foldlog.open(STORE) as histories:
        found = [each for name in histories for each in histories[name].effects() if each.attempts]
    write_down(f"on disk: {[(each.call.tool, each.state, each.attempts) for each in found]}")
    write_down(f"paid {to}")
    if KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {to}"


async def openai_agents() -> None:
    from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from foldlog.adapters.openai_agents import FoldlogSession

    set_tracing_disabled(True)

    class Scripted(Model):
        async def get_response(self, *args: Any, **given: Any) -> Any:
            SENT.append(given["input"])
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output: Any = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            if len(SENT) == 1:
                output = ResponseFunctionToolCall(
                    type="function_call",
                    call_id=CALL,
                    name="pay",
                    arguments='{"to": "ann"}',
                    id="f",
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=f"r{len(SENT)}")

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    session = FoldlogSession("s", STORE)
    agent = Agent(name="a", model=Scripted(), tools=[function_tool(pay)])
    await Runner.run(session.with_effects(agent), "pay ann", session=session)


async def pydantic_ai() -> None:
    from pydantic_ai import Agent, Conversation
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps

    def answer(messages: Any, info: Any) -> Any:
        SENT.append(repr(messages))
        calls = len(SENT) == 1 and "pay" not in SENT[0].replace("pay ann", "")
        return ModelResponse(
            [ToolCallPart("pay", {"to": "ann"}, CALL)] if calls else [TextPart("done")]
        )

    store = FoldlogConversationStore(STORE)
    agent = Agent(FunctionModel(answer), capabilities=[FoldlogSteps(store)])
    agent.tool_plain(pay)
    stored = await store.load("c")
    await agent.run(
        None if stored else "pay ann", conversation=stored or Conversation(conversation_id="c")
    )


async def langgraph() -> None:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from foldlog.adapters.langgraph import FoldlogSaver

    def ask(state: Any) -> Any:
        SENT.append(repr(state["messages"]))
        call = {"name": "pay", "args": {"to": "ann"}, "id": CALL}
        return {
            "messages": [
                AIMessage("", tool_calls=[call])
                if len(SENT) == 1 and not left
                else AIMessage("done")
            ]
        }

    saver = FoldlogSaver(STORE)
    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node(
        "tools",
        ToolNode([pay], wrap_tool_call=saver.wrap_tool_call, awrap_tool_call=saver.awrap_tool_call),
    )
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    app, config = graph.compile(checkpointer=saver), {"configurable": {"thread_id": "t"}}
    left = app.get_state(config).next
    given = None if left else {"messages": [HumanMessage("pay ann")]}
    await asyncio.to_thread(
        lambda: app.invoke(given, config, durability="sync" if "sync" in sys.argv[1] else "exit")
    )


async def google_adk() -> None:
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import Runner
    from google.genai import types

    from foldlog.adapters.google_adk import FoldlogSessionService

    class Scripted(BaseLlm):
        async def generate_content_async(self, request: Any, stream: bool = False) -> Any:
            SENT.append(repr(request.contents))
            part = types.Part(text="done")
            if len(SENT) == 1:
                part = types.Part(
                    function_call=types.FunctionCall(id=CALL, name="pay", args={"to": "ann"})
                )
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    service = FoldlogSessionService(STORE)
    names = {"app_name": "app", "user_id": "u", "session_id": "s"}
    if await service.get_session(**names) is None:
        await service.create_session(**names)
    agent = LlmAgent(
        name="a",
        model=Scripted(model="m"),
        tools=[pay],
        before_tool_callback=service.before_tool_callback,
    )
    runner = Runner(app_name="app", agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text="pay ann")])
    async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
        pass


async def agent_framework() -> None:
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatResponse,
        Content,
        FunctionInvocationLayer,
        Message,
        tool,
    )

    from foldlog.adapters.agent_framework import FoldlogHistoryProvider

    class Scripted(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
        def _inner_get_response(
            self, *, messages: Any, stream: bool, options: Any, **more: Any
        ) -> Any:
            async def answer() -> Any:
                SENT.append([message.to_dict() for message in messages])
                content: Any = "done"
                if len(SENT) == 1:
                    content = Content.from_function_call(CALL, "pay", arguments='{"to": "ann"}')
                return ChatResponse(messages=[Message("assistant", [content])])

            return answer()

    provider = FoldlogHistoryProvider(STORE)
    tools = [tool(approval_mode="never_require")(pay)]
    agent = Agent(
        Scripted(), tools=tools, context_providers=[provider], middleware=[provider.effects]
    )
    await agent.run("pay ann", session=agent.create_session(session_id="s"))


async def strands() -> None:
    from strands import Agent, tool
    from strands.models.model import Model
    from strands.session.repository_session_manager import RepositorySessionManager

    from foldlog.adapters.strands import FoldlogSessionRepository

    class Scripted(Model):
        def update_config(self, **config: Any) -> None: ...

        def get_config(self) -> dict[str, Any]:
            return {}

        async def structured_output(self, *args: Any, **kwargs: Any) -> Any:
            yield {}

        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            SENT.append(repr(messages))
            start, delta, stop = {}, {"text": "done"}, "end_turn"
            if len(SENT) == 1:
                start = {"toolUse": {"toolUseId": CALL, "name": "pay"}}
                delta, stop = {"toolUse": {"input": '{"to": "ann"}'}}, "tool_use"
            yield {"messageStart": {"role": "assistant"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": stop}}

    repository = FoldlogSessionRepository(STORE)
    agent = Agent(
        model=Scripted(),
        tools=[tool(pay)],
        agent_id="a",
        hooks=[repository],
        session_manager=RepositorySessionManager("s", repository),
        callback_handler=None,
    )
    await agent.invoke_async("pay ann")


async def openhands() -> None:
    from uuid import UUID

    from openhands.sdk import Agent
    from openhands.sdk.conversation.impl.local_conversation import LocalConversation
    from openhands.sdk.llm import Message, MessageToolCall, TextContent
    from openhands.sdk.testing import TestLLM
    from openhands.sdk.tool import Tool, register_tool

    from foldlog.adapters.openhands import FoldlogFileStore
    from tests.adapters.openhands import paying

    identity = UUID("6b0d6b5f-1f0e-4d55-9d0e-3a3f0a0f1c11")
    store = FoldlogFileStore(STORE, identity)
    paying.STORE[:], paying.BANK[:] = [store], [pay.__wrapped__]  # type: ignore[attr-defined]
    register_tool("pay", paying.PayTool)
    call = MessageToolCall(id=CALL, name="pay", arguments='{"to": "ann"}', origin="completion")
    texts = [TextContent(text="done")]
    llm = TestLLM.from_messages(
        [
            Message(role="assistant", content=[], tool_calls=[call]),
            Message(role="assistant", content=texts),
        ]
    )
    talk = LocalConversation(
        agent=Agent(llm=llm, tools=[Tool(name="pay")], include_default_tools=[]),
        workspace=os.path.dirname(BANK),
        conversation_id=identity,
        file_store=store,
        visualizer=None,
        stuck_detection=False,
    )
    talk.send_message("pay ann")
    talk.run()
    SENT.append([event.model_dump_json() for event in talk.state.events])


async def claude_agent() -> None:
    from claude_agent_sdk import create_sdk_mcp_server, query, tool

    from foldlog.adapters.claude_agent import FoldlogSessionStore
    from tests.adapters.claude_agent.agent import options
    from tests.adapters.claude_agent.anthropic_server import AnthropicServer, blocks_of

    @tool("pay", "Pay somebody.", {"to": str})
    @foldlog.effect()
    async def paying(given: Any) -> dict[str, Any]:
        await asyncio.sleep(3)  # the SDK hands lines over some time after they were written
        return {"content": [{"type": "text", "text": pay.__wrapped__(given["to"])}]}  # type: ignore[attr-defined]

    def play(prompt: Any) -> list[dict[str, Any]]:
        SENT.append(prompt["messages"])
        text = {"type": "text", "text": "done"}
        if not prompt.get("tools") or any(
            CALL in str(block) for each in SENT[-1] for block in blocks_of(each)
        ):
            return [text]
        return [{"type": "tool_use", "id": CALL, "name": "mcp__bank__pay", "input": {"to": "ann"}}]

    server, folder = AnthropicServer(play), os.path.dirname(BANK)
    home = f"{folder}/home-{os.getpid()}"
    os.mkdir(home)
    session = "6b0d6b5f-1f0e-4d55-9d0e-3a3f0a0f1c11"
    async with FoldlogSessionStore(STORE) as store:
        bank = create_sdk_mcp_server("bank", tools=[store.with_effects(paying)])
        started = any(True for _ in store.histories.sync)
        begun = {"resume": session} if started else {"session_id": session}
        more = {"mcp_servers": {"bank": bank}, "hooks": store.effect_hooks(), **begun}
        async for _ in query(
            prompt="pay ann", options=options(store, server.url, home, folder, **more)
        ):
            pass
    server.close()


RUNTIMES: dict[str, Callable[[], Awaitable[None]]] = {
    "openai_agents": openai_agents,
    "pydantic_ai": pydantic_ai,
    "langgraph-sync": langgraph,
    "langgraph-exit": langgraph,
    "google_adk": google_adk,
    "agent_framework": agent_framework,
    "strands": strands,
    "openhands": openhands,
    "claude_agent": claude_agent,
}

if __name__ == "__main__":
    asyncio.run(RUNTIMES[sys.argv[1]]())
    print(json.dumps(SENT[-1], default=repr))  # noqa: T201 - what its caller reads
