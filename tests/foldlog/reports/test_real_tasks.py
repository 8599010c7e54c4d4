"""Real sessions with sub-agents, counted by an independent script: each sum and tree is equal."""

import pytest

from tests.beside import SAMPLES, needs_samples
from tests.foldlog.records import read_lines

SESSIONS = sorted((SAMPLES.parent / "sub_agents" / "claude_code").glob("*.jsonl"))


def replies_in(path):
    """Return the tokens of each reply. Claude Code writes a reply on several lines, with growing
    usage.
    """
    replies = {}
    for line in read_lines(path):
        message = line.get("message") or {}
        if line["type"] == "assistant" and (usage := message.get("usage")):
            prompt = sum(
                usage.get(f"{kind}input_tokens", 0)
                for kind in ("", "cache_read_", "cache_creation_")
            )
            tokens = (prompt, usage["output_tokens"])
            replies[message["id"]] = max(replies.get(message["id"], (0, 0)), tokens)
    return {name: tokens for name, tokens in replies.items() if any(tokens)}


def errors_in(path):
    contents = [(line.get("message") or {}).get("content") for line in read_lines(path)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return sum(part.get("type") == "tool_result" and bool(part.get("is_error")) for part in parts)


def spent(replies):
    prompts, answers = zip(*replies.values(), strict=True)
    return {"calls": len(replies), "prompt_tokens": sum(prompts), "completion_tokens": sum(answers)}


@pytest.mark.long
@needs_samples
@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem[:8])
def test_task_has_the_sums_of_its_files(foldlog, session):
    folder = session.with_suffix("") / "subagents"
    agents = {f"{session.stem}/{path.stem}": path for path in sorted(folder.iterdir())}
    files = {session.stem: session, **agents}
    assert foldlog(f"import {session} {folder}").status == 0

    task = foldlog(f"stats {session.stem} --json").document["task"]

    counted = {name: replies_in(path) for name, path in files.items()}
    shown = {agent["conversation"]: agent for agent in task["agents"]}
    assert {name: agent["parent"] for name, agent in shown.items()} == {
        name: None if name == session.stem else session.stem for name in files
    }
    for name, replies in counted.items():
        assert spent(replies).items() <= shown[name]["spent"].items()
        assert shown[name]["errors"] == errors_in(files[name])
    every_reply = {key: tokens for replies in counted.values() for key, tokens in replies.items()}
    assert spent(every_reply).items() <= task["spent"].items()
