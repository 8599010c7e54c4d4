"""A long conversation with an agent of Microsoft's Agent Framework, condensed within its runs;
nothing is lost.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[agent-framework]' agent-framework-openai
export OPENAI_API_KEY=... OPENAI_MODEL=...
python examples/agent_framework_foldlog.py "What did we speak of?"
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agent_framework import Agent, AgentSession

import foldlog
from foldlog.adapters.agent_framework import FoldlogHistoryProvider

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")


async def main(prompt: str, client: Any = None) -> None:
    """Ask, then print the answer and the sizes of the log and of the View."""
    if client is None:
        from agent_framework.openai import OpenAIChatCompletionClient

        client = OpenAIChatCompletionClient()
    with foldlog.open(URL, condenser={"type": "digest", "max_size": 60}) as histories:
        provider = FoldlogHistoryProvider(histories, condense=True)
        agent = Agent(
            client,
            "Answer briefly.",
            context_providers=[provider],
            require_per_service_call_history_persistence=True,
        )
        answer = await agent.run(prompt, session=AgentSession(session_id="example"))
        history = histories[provider.conversation("example")]
        print(answer.text)
        print(f"{history.version()} events, {len(history.view())} of them are shown to the model")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
