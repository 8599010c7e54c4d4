"""An agent as its users write it, in a process of its own: ``python -m
tests.adapters.claude_agent.agent ARGUMENTS``.

Arguments: the store's URL, the server's URL, an empty folder for the session's files, its working
folder, the prompt, and the session to resume, if any. It prints the session's id and the result as
JSON.
"""

import asyncio
import json
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from foldlog.adapters.claude_agent import FoldlogSessionStore


def environment(server, home):
    """Return what an agent of a test needs: the server, and its files."""
    quiet = (
        "DISABLE_TELEMETRY",
        "DISABLE_AUTOUPDATER",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "IS_SANDBOX",
    )
    return {
        **dict.fromkeys(quiet, "1"),
        "ANTHROPIC_BASE_URL": server,
        "ANTHROPIC_API_KEY": "of the stub",
        "HOME": home,
        "CLAUDE_CONFIG_DIR": f"{home}/config",
    }


def options(store, server, home, folder, **others):
    return ClaudeAgentOptions(
        session_store=store,
        session_store_flush="eager",
        cwd=folder,
        permission_mode="bypassPermissions",
        env={**environment(server, home), "AGENT": str(os.getpid())},
        **others,
    )


async def run(url, server, home, folder, prompt, resume=None):
    async with FoldlogSessionStore(url) as store:
        async for message in query(
            prompt=prompt, options=options(store, server, home, folder, resume=resume)
        ):
            if isinstance(message, ResultMessage):
                summary = {
                    "session": message.session_id,
                    "result": message.result,
                    "is_error": message.is_error,
                }
                print(json.dumps(summary), flush=True)  # noqa: T201 - what its caller reads


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
