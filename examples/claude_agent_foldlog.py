"""A session of Claude Code in foldlog. You can resume the session on any machine that has the
store.

python3 -m venv .venv && . .venv/bin/activate
pip install '.[claude-agent]'
python examples/claude_agent_foldlog.py "What is in this folder?"
python examples/claude_agent_foldlog.py "And in the one above?" SESSION
"""

from __future__ import annotations

import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, project_key_for_directory, query

from foldlog.adapters.claude_agent import FoldlogSessionStore

URL = os.environ.get("FOLDLOG_DB", "sqlite:///foldlog.db")


async def main(prompt: str, resume: str | None = None) -> None:
    """Ask, then print the answer, the size of the View, and the id to resume the session."""
    async with FoldlogSessionStore(URL) as store:
        options = ClaudeAgentOptions(session_store=store, resume=resume)
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, ResultMessage):
                key = {
                    "project_key": project_key_for_directory(os.getcwd()),
                    "session_id": message.session_id,
                }
                view = await store.histories[store.conversation(key)].view()
                print(message.result)
                print(f"{len(view)} events are shown; resume with: {message.session_id}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
