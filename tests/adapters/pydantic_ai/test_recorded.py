"""An agent of Pydantic AI is replayed."""

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps
from tests.adapters.recorded import check_replay


def test_an_agent_is_replayed_without_a_model(tmp_path):
    async def run(url, histories, prompt):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            async with FoldlogConversationStore(histories) as store:
                steps = FoldlogSteps(store)
                payer = Agent(model, instructions="You pay.", capabilities=[steps])
                payer.tool_plain(pay)
                await payer.run(prompt, conversation=Conversation(conversation_id="c"))

    def agent(url, histories, prompt):
        asyncio.run(run(url, histories, prompt))
        return next(iter(histories))

    check_replay(agent, tmp_path / "run.jsonl", names_requests=True)


def pay(euros: int) -> str:
    return f"paid {euros}"
