"""How much does an exact token check cost a step, against counting the whole prompt anew?

A step brings two new messages, a call and its result, to a conversation of a hundred. The baseline is what an agent
does without a cache: ``litellm.token_counter`` over all messages. Both give the same number, which is checked first.

    python -m benchmarks.tokens
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import json.decoder
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from condensers.llm import LLM, LLMConfig

MESSAGES = 100
STEPS = 15
ROUNDS = 7
TARGET = 15.0
MODELS = ("gpt-4o-mini", "claude-sonnet-4-5")
TEXT = "".join(inspect.getsource(module) for module in (argparse, ast, dataclasses, inspect, json.decoder, statistics))
"""What messages are cut from: source code, as a coding agent reads it."""

Prompt = list[dict[str, Any]]


def conversation(seed: int) -> Prompt:
    """A coding agent's prompt: 8 KB of system prompt, calls of 0.4 to 1 KB, results log-normal, 1 KB, p95 12."""
    at = random.Random(seed)

    def text(size: float) -> str:
        start = at.randrange(len(TEXT) - int(size))
        return TEXT[start : start + int(size)]

    prompt: Prompt = [{"role": "system", "content": text(8_000)}, {"role": "user", "content": text(600)}]
    while len(prompt) < MESSAGES + 2 * STEPS:
        name = f"call_{len(prompt)}"
        called = {"name": "run", "arguments": json.dumps({"command": text(at.uniform(400, 1_000))})}
        call = {"id": name, "type": "function", "function": called}
        result = text(min(60_000, at.lognormvariate(6.9, 1.5)))
        prompt.append({"role": "assistant", "content": text(80), "tool_calls": [call]})
        prompt.append({"role": "tool", "tool_call_id": name, "content": result})
    return prompt


def seconds_a_step(count: Callable[[Prompt], int], prompt: Prompt) -> tuple[float, list[int]]:
    """The mean time of a step's check as the prompt grows by two messages a step, and the counts."""
    begun = time.perf_counter()
    counts = [count(prompt[: MESSAGES + 2 * step]) for step in range(1, STEPS + 1)]
    return (time.perf_counter() - begun) / STEPS, counts


def fresh(prompt: Prompt) -> Prompt:
    """The same messages as other objects, as after a cold open: no cached hash of a text is of use."""
    return json.loads(json.dumps(prompt))


def ratios(model: str) -> list[float]:
    """How many times faster the cached check is, a round each, the two interleaved and their counts compared."""
    import litellm

    found = []
    for seed in range(ROUNDS):
        prompt = conversation(seed)
        llm = LLM(LLMConfig(model=model))
        llm.count_tokens(fresh(prompt[:MESSAGES]))
        whole, expected = seconds_a_step(lambda part: litellm.token_counter(model=model, messages=part), prompt)
        cached, counts = seconds_a_step(llm.count_tokens, fresh(prompt))
        if counts != expected:
            raise SystemExit(f"{model}: the cached counts {counts} are not litellm's {expected}")
        found.append(whole / cached)
        print(f"  {model}: recounting {whole * 1e3:6.2f} ms, cached {cached * 1e3:6.3f} ms, {whole / cached:5.1f} x")
    return found


def main() -> None:
    print(f"exact token check, a step of 2 new messages on {MESSAGES}, {ROUNDS} rounds of {STEPS} steps")
    LLM(LLMConfig(model=MODELS[0])).count_tokens([{"role": "user", "content": "loads litellm and its tokenizer"}])
    for model in MODELS:
        median = statistics.median(ratios(model))
        verdict = "met" if median >= TARGET else "MISSED"
        print(f"{model}: {median:.1f} x faster than recounting (target {TARGET:.0f} x: {verdict})")


if __name__ == "__main__":
    main()
