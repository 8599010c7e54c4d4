"""A long conversation with a Strands agent; what its conversation manager removes stays in the log.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[strands]' boto3
python examples/strands_foldlog.py "What did we speak of?"    # with credentials for Amazon Bedrock
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session.repository_session_manager import RepositorySessionManager

import foldlog
from foldlog.adapters.strands import FoldlogSessionRepository

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")


async def main(prompt: str, model: Any = None) -> None:
    """Ask, then print the answer and the sizes of the log and of the View."""
    with foldlog.open(URL) as histories:
        repository = FoldlogSessionRepository(histories)
        agent = Agent(
            model=model,
            system_prompt="Answer briefly.",
            agent_id="assistant",
            session_manager=RepositorySessionManager("example", repository),
            conversation_manager=SlidingWindowConversationManager(window_size=60),
        )
        await agent.invoke_async(prompt)
        history = histories[repository.conversation("example", "assistant")]
        print(f"\n{history.version()} events, {len(history.view())} of them are shown to the model")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
