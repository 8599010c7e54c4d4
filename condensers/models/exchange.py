"""Translate between our words and litellm's: a request, a reply, and their cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from condensers.base import Reply, ToolCall


class Bill:
    """The cost of a call so far, with retries and fallbacks. ``cost`` is None if the price of a reply is unknown."""

    def __init__(self) -> None:
        self.attempts = 0
        self.latency_s = 0.0
        self.usage: dict[str, int] = {}
        self.cost: float | None = 0.0

    def add(self, reply: Reply) -> Reply:
        """Return the reply with the cost of all attempts."""
        self.waste(reply.latency_s or 0.0)
        for name, count in reply.usage.items():
            self.usage[name] = self.usage.get(name, 0) + count
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost
        return replace(reply, usage=dict(self.usage), cost=self.cost, latency_s=self.latency_s, attempts=self.attempts)

    def waste(self, latency_s: float) -> None:
        self.attempts += 1
        self.latency_s += latency_s

    def report(self) -> dict[str, Any]:
        paid = {"usage": self.usage, "cost": self.cost} if self.usage else {}
        return {"attempts": self.attempts, "latency_s": self.latency_s, **paid}


def request_for(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | None,
    response_schema: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the arguments of litellm.completion for one call (see ``Summarizer.complete``)."""
    request: dict[str, Any] = {"messages": [dict(message) for message in messages]}
    if tools:
        request["tools"] = list(tools)
        request["_skip_mcp_handler"] = True  # otherwise litellm requires the package mcp for any call with tools
    if tool_choice is not None:
        request["tool_choice"] = {"type": "function", "function": {"name": tool_choice}}
    if response_schema is not None:
        schema = {"name": response_schema.get("title", "reply"), "schema": response_schema}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


def sendable(value: Any) -> Any:
    """Copy a JSON value so that it can be sent: halves of surrogate pairs, which some logs hold, become question
    marks.
    """
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def reply_of(response: Any, model: str, latency_s: float, conceal: Callable[[str], str]) -> Reply:
    """Return the reply in a response of litellm's, its texts as ``conceal`` leaves them.

    Raises LookupError, as litellm does, where the response holds no choice.
    """
    choice = response.choices[0]
    refusal = (choice.message.get("provider_specific_fields") or {}).get("refusal")
    calls = choice.message.tool_calls or ()
    counts = {name: count for name, count in response.usage.model_dump().items() if isinstance(count, int)}
    told = any(counts.values())  # if a server sends no counts, litellm counts and prices an empty reply
    return Reply(
        text=choice.message.content and conceal(choice.message.content),
        model=conceal(response.model or model),
        tool_calls=tuple(
            ToolCall(conceal(call.function.name or ""), conceal(call.function.arguments or ""), call.id)
            for call in calls
        ),
        response_id=response.id and conceal(response.id),
        finish_reason="content_filter" if refusal else choice.finish_reason,
        usage=counts if told else {},
        cost=response._hidden_params.get("response_cost") if told else None,
        latency_s=latency_s,
    )


def says_something(reply: Reply) -> bool:
    """Return whether this reply has any text or call."""
    return bool(reply.tool_calls or (reply.text and reply.text.strip()))


def is_final(reply: Reply) -> bool:
    """Return whether a retry would give the same reply: the model refused, or reached its limit."""
    return reply.finish_reason in {"content_filter", "length"}
