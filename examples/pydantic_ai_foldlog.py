"""An agent of pydantic-ai that saves its messages in foldlog. Run it again to continue the
conversation.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[pydantic-ai]' 'pydantic-ai-slim[openai]'
OPENAI_API_KEY=... python examples/pydantic_ai_foldlog.py "How far is the moon?"
foldlog view pydantic-ai/moon --db foldlog.db
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation

from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps


async def main(prompt: str, model: Any = "openai:gpt-5-mini") -> None:
    """Ask, then print the answer, the number of messages and the size of the View."""
    async with FoldlogConversationStore(
        os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")
    ) as store:
        agent = Agent(model, capabilities=[FoldlogSteps(store)])
        conversation = await store.load("moon") or Conversation(conversation_id="moon")
        result = await agent.run(prompt, conversation=conversation)
        print(result.output)
        messages = (await store.load("moon")).messages
        view = await store.histories[store.conversation("moon")].view()
        print(f"{len(messages)} messages, {len(view)} events are shown to the model")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "hello"))
