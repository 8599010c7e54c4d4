"""An agent of Google's Agent Development Kit with its sessions in foldlog. Run it again to continue
the session.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[google-adk]'
GOOGLE_API_KEY=... python examples/google_adk_foldlog.py "How far is the moon?"
foldlog view adk/example/you/moon --db foldlog.db
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.genai import types

from foldlog.adapters.google_adk import FoldlogSessionService


async def main(prompt: str, model: Any = "gemini-flash-latest") -> None:
    """Ask, then print the answer and the size of the View."""
    async with FoldlogSessionService(
        os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")
    ) as service:
        agent = LlmAgent(name="assistant", model=model, instruction="Answer briefly.")
        runner = Runner(agent=agent, app_name="example", session_service=service)
        names = {"user_id": "you", "session_id": "moon"}
        if await service.get_session(app_name="example", **names) is None:
            await service.create_session(app_name="example", **names)
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        async for event in runner.run_async(new_message=message, **names):
            if event.is_final_response():
                print(event.content.parts[0].text)
        history = service.histories.sync[service.conversation("example", "you", "moon")]
        session = await service.get_session(app_name="example", **names)
        print(f"{len(session.events)} events, {len(history.view())} of them are shown to the model")


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "hello"))
