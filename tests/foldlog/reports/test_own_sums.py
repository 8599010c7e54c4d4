"""The figures of real histories beside a sum of their files, which was written from the public pages
of the formats and reads nothing with foldlog.
"""

import json
from collections import Counter

import pytest

import foldlog
from tests.beside import SAMPLES, needs_samples
from tests.figures import FiguresOfStore, Prices

CLAUDE = sorted((SAMPLES / "claude_code").glob("*.jsonl"))
CODEX = sorted((SAMPLES / "codex_rollout").glob("*.jsonl"))
SWE = sorted((SAMPLES / "swe_agent_traj").glob("*.traj"))


def lines_of(path):
    for line in path.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def sum_of_claude(path):
    """Add up the last usage of each reply, and the calls of tools by the ids of their lines."""
    usage = {}
    tools = {}
    failed = {}
    for line in lines_of(path):
        message = line.get("message")
        if line.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            continue
        content = message.get("content")
        blocks = (
            [block for block in content if isinstance(block, dict)] if type(content) is list else []
        )
        for block in blocks:
            if block.get("type") == "tool_use":
                tools[line.get("uuid"), block["id"]] = block["name"]
            if block.get("type") == "tool_result" and block.get("is_error"):
                text = json.dumps(block.get("content"))
                if "doesn't want to proceed with this tool use" not in text:
                    failed[line.get("uuid"), block["tool_use_id"]] = True
        spent = message.get("usage")
        if line["type"] == "assistant" and spent and message.get("model") != "<synthetic>":
            reply = (message.get("id"), line.get("requestId"))
            usage[reply if message.get("id") else line.get("uuid")] = spent
    prompt = sum(
        each.get("input_tokens", 0)
        + (each.get("cache_read_input_tokens") or 0)
        + (each.get("cache_creation_input_tokens") or 0)
        for each in usage.values()
    )
    completion = sum(usage_of_reply.get("output_tokens", 0) for usage_of_reply in usage.values())
    return prompt, completion, Counter(tools.values()), len(failed)


def sum_of_codex(path):
    """Add up the tokens of the last call in each record of tokens that raises the total."""
    prompt = completion = 0
    total = None
    tools = Counter()
    for line in lines_of(path):
        payload = line.get("payload") or {}
        if payload.get("type") in ("function_call", "custom_tool_call") and (
            line["type"] == "response_item"
        ):
            tools[payload["name"]] += 1
        info = payload.get("info") if payload.get("type") == "token_count" else None
        if info and info["total_token_usage"] != total:
            total = info["total_token_usage"]
            last = info["last_token_usage"]
            prompt += last["input_tokens"]
            completion += last["total_tokens"] - last["input_tokens"]  # some count reasoning beside
    return prompt, completion, tools, None


def figures_of(path, is_made):
    with foldlog.open("memory:") as histories:
        imported = histories.import_(path, findings=str)
        if is_made:
            for history in imported:
                history.view()
        figures = FiguresOfStore(histories.store, None, Prices())
        figures.refresh()
        return figures.totals()


def check(path, own, is_made):
    stats = figures_of(path, is_made)
    prompt, completion, tools, errors = own
    assert (stats.spent.prompt_tokens or 0, stats.spent.completion_tokens or 0) == (
        prompt,
        completion,
    )
    assert {name: tool.calls for name, tool in stats.tools.items() if tool.calls} == dict(tools)
    if errors is not None:
        assert stats.errors == errors


@needs_samples
@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("path", CLAUDE, ids=lambda path: path.stem)
def test_figures_equal_the_sums_of_claude_code(path, is_made):
    check(path, sum_of_claude(path), is_made)


@needs_samples
@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("path", CODEX, ids=lambda path: path.stem[-20:])
def test_figures_equal_the_sums_of_codex(path, is_made):
    check(path, sum_of_codex(path), is_made)


@needs_samples
@pytest.mark.parametrize("path", SWE, ids=lambda path: path.stem[-20:])
def test_figures_equal_the_sums_of_swe_agent(path):
    expected = (json.loads(path.read_text()).get("info") or {}).get("model_stats") or {}
    stats = figures_of(path, is_made=True)
    assert (stats.spent.cost or 0) == pytest.approx(expected.get("instance_cost", 0))
    assert (stats.spent.prompt_tokens or 0) == expected.get("tokens_sent", 0)
