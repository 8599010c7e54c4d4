"""Ask the model behind a condenser and check its reply: an unusable reply never replaces events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from condensers.base import Reply, Report, Summarizer
from condensers.errors import Failure, ModelCallFailed
from condensers.prompts import Prompt

_LENGTH_MAX = 1_000_000
"""The most characters of a reply. A longer one could be too large for an event."""


def ask(llm: Summarizer, messages: Sequence[Mapping[str, Any]], **how: Any) -> Reply:
    """Return a whole reply to ``messages``; ``how`` are the other arguments of ``Summarizer.complete``.

    Raises ``ModelCallFailed`` if there is no reply, or the reply is truncated or filtered.
    """
    reply = llm.complete(messages, **how)
    length = len(reply.text or "") + sum(len(call.arguments) for call in reply.tool_calls)
    if length > _LENGTH_MAX:
        raise useless(reply, f"the reply has {length:,} characters; no context has room for it")
    if reply.finish_reason == "length":
        raise useless(reply, "the reply was cut off at the model's output limit")
    if reply.finish_reason == "content_filter":
        raise useless(reply, "the model refused, or a content filter withheld the reply", "refused")
    return reply


def usable_text(reply: Reply) -> str:
    """Return the reply's text, unchanged. Raises ``ModelCallFailed`` if it has no words."""
    if not reply.text or not any(map(str.isalnum, reply.text)):
        raise useless(reply, "the reply has no text")
    return reply.text


def read_json(reply: Reply, text: str, what: str) -> Any:
    """Return the JSON of a reply. Raises ``ModelCallFailed``, with ``what`` as its name, if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise useless(reply, f"{what} JSON: {error}") from error


def useless(reply: Reply, problem: str, failure: Failure = "bad_reply") -> ModelCallFailed:
    """Return the error for a reply that was paid for and cannot be used."""
    report = {**report_on(reply), "failure": failure, "problem": problem}
    return ModelCallFailed(reply.model, failure, problem, report)


def made_by(reply: Reply, prompt: Prompt) -> dict[str, Any]:
    """Return the metadata of a condensation about the model's reply and the prompt."""
    return {
        "model": reply.model,
        "response_id": reply.response_id,
        "cost": reply.cost,
        "latency_s": reply.latency_s,
        "prompt": prompt.name,
        "prompt_sha256": prompt.sha256,
    }


def report_on(reply: Reply) -> Report:
    """Return the report on a reply, without its text, which is the summary if it is usable."""
    return {
        "response": {"id": reply.response_id, "model": reply.model, "finish_reason": reply.finish_reason},
        "metrics": {
            "usage": dict(reply.usage),
            "cost": reply.cost,
            "latency_s": reply.latency_s,
            "attempts": reply.attempts,
        },
    }
