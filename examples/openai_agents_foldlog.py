"""A long conversation with an agent of the OpenAI Agents SDK, condensed within its runs; nothing is
lost.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[openai-agents]'
OPENAI_API_KEY=... python examples/openai_agents_foldlog.py "What did we speak of?"
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from agents import Agent, RunConfig, Runner

import foldlog
from foldlog.adapters.openai_agents import FoldlogSession

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")


async def main(prompt: str, model: Any = None) -> None:
    """Ask, then print the answer and the sizes of the log and of the View."""
    with foldlog.open(URL, condenser={"type": "digest", "max_size": 60}) as histories:
        session = FoldlogSession("example", histories, condense=True)
        agent = Agent(name="assistant", instructions="Answer briefly.", model=model)
        config = RunConfig(call_model_input_filter=session.input_filter)
        result = await Runner.run(agent, prompt, session=session, run_config=config)
        history = histories["openai-agents/example"]
        print(result.final_output)
        print(f"{history.version()} events, {len(history.view())} of them are shown to the model")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
