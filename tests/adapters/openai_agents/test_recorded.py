"""An agent of the OpenAI Agents SDK is replayed."""

import asyncio

import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from foldlog.adapters.openai_agents import FoldlogSession
from tests.adapters.recorded import check_replay

set_tracing_disabled(True)


@function_tool
def pay(euros: int) -> str:
    return f"paid {euros}"


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("model", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_an_agent_is_replayed_without_a_model(model, is_streamed, tmp_path):
    async def run(url, histories, prompt):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
            payer = Agent("payer", instructions="You pay.", tools=[pay], model=model("m", client))
            options = FoldlogSession("s", histories).run_options()
            if is_streamed:
                streamed = Runner.run_streamed(payer, prompt, **options)
                assert [event async for event in streamed.stream_events()]
            else:
                await Runner.run(payer, prompt, **options)

    def agent(url, histories, prompt):
        asyncio.run(run(url, histories, prompt))
        return next(iter(histories))

    check_replay(agent, tmp_path / "run.jsonl", names_requests=True)
