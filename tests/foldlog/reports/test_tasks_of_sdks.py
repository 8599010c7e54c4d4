"""In files that agent SDKs wrote of a task, the tree and each sum equal what the model served."""

import gzip
import re

import pytest

from tests.golden.tasks.make import CALLS, HERE, MEASURES, SERVED

FILES = sorted(HERE.glob("*.gz"))
CALLERS = {agent: caller for caller, agents in CALLS.items() for agent in agents}
WITHOUT_CALL = ("openai_agents.json.gz", "openinference.json.gz")
"""The span of a tool does not name its call: nothing says which call began an agent, or failed."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_sdk_task_has_tree_and_sums_served(foldlog, tmp_path, path):
    copy = tmp_path / "task.json"
    copy.write_bytes(gzip.decompress(path.read_bytes()))
    assert foldlog(f"import {copy}").status == 0
    titles = {
        row["conversation"]: re.findall(r"\w+", row["title"])[0]
        for row in foldlog("list --json").document["conversations"]
    }
    (top,) = (name for name, agent in titles.items() if agent == "lead")

    task = foldlog(f"stats {top} --json").document["task"]

    names_calls = path.name not in WITHOUT_CALL
    for agent in task["agents"]:
        name = titles[agent["conversation"]]
        assert (agent["parent"] and titles[agent["parent"]]) == CALLERS.get(name)
        assert agent["call"] == (f"call_{name}" if names_calls and name in CALLERS else None)
        assert spent(agent) == SERVED[name]
        assert (agent["errors"] or 0) == int(names_calls and name == "scout")
    assert len(task["agents"]) == len(SERVED)
    assert spent(task) == tuple(map(sum, zip(*SERVED.values(), strict=True)))
    assert (task["errors"] or 0) == int(names_calls)
    assert not (task["first_error"] or "").startswith("[")  # it is a text, without its block
    tools = foldlog("stats --json").document["tools"]
    assert tools["measure"]["calls"] == len(MEASURES)


def spent(figures):
    return tuple(figures["spent"][name] for name in ("calls", "prompt_tokens", "completion_tokens"))
