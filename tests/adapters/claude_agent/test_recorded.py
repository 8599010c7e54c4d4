"""An agent of the Claude Agent SDK is replayed."""

import asyncio

from claude_agent_sdk import query

from foldlog.adapters.claude_agent import FoldlogSessionStore
from tests.adapters.claude_agent.agent import options
from tests.adapters.recorded import check_replay

BASH = {"name": "Bash", "arguments": '{"command": "echo paid", "description": "pay"}'}


def test_an_agent_is_replayed_without_a_model(tmp_path):
    async def run(url, histories, prompt, home):
        async with FoldlogSessionStore(histories) as store:
            async for _ in query(
                prompt=prompt, options=options(store, url, str(home), str(tmp_path / "work"))
            ):
                pass

    def agent(url, histories, prompt):
        home = tmp_path / f"home{len(list(tmp_path.iterdir()))}"
        home.mkdir()
        asyncio.run(run(url, histories, prompt, home))
        return next(iter(histories))

    (tmp_path / "work").mkdir()
    check_replay(agent, tmp_path / "run.jsonl", ignore=["system"], call=BASH)
