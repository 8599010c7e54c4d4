"""This module asks a model and checks its reply, so that an unusable reply never replaces
events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.base import CompletionOptions, Report, Summarizer
from foldlog.condensers.errors import Failure, InvalidCondenser, ModelCallFailed
from foldlog.condensers.models.failures import failure_of, problem_of
from foldlog.condensers.prompts import Prompt
from foldlog.condensers.reply import Reply, ToolCall
from foldlog.eventstore.usage import usage_of

T = TypeVar("T")

_LENGTH_MAX = 1_000_000
"""The largest number of characters of a reply. A longer reply could be too large for an event."""


def ask(llm: Summarizer | None, messages: Sequence[JsonMap], options: CompletionOptions) -> Reply:
    """Return the model's reply. Raises ``ModelCallFailed`` if the call fails, or if the reply is
    not usable: see ``check_reply``. Raises ``InvalidCondenser`` if ``llm`` is None.
    """
    if llm is None:
        raise InvalidCondenser(
            "the condenser names no model; give the condenser a model as llm, or pass the agent's"
            " model to its step"
        )
    try:
        return check_reply(llm.complete(messages, **options))
    except (ModelCallFailed, InvalidCondenser):
        raise
    except Exception as error:  # An ``llm`` of the application may raise any error of its client.
        failure = failure_of(error)
        problem = problem_of(f"{type(error).__name__}: {error}")
        raise ModelCallFailed(
            llm.model, failure, problem, {"error": type(error).__name__}
        ) from error


def check_reply(reply: Reply) -> Reply:
    """Return the reply. Raise ``ModelCallFailed`` if it is too long, cut off, filtered or empty."""
    length = len(reply.text or "") + sum(len(call.arguments) for call in reply.tool_calls)
    if length > _LENGTH_MAX:
        raise useless(
            reply, f"the reply has {length:,} characters, which is too long for any context"
        )
    if reply.finish_reason == "length":
        error = useless(reply, "the reply was cut off at the model's output limit")
        error.partial = reply if (reply.text or "").strip() or reply.tool_calls else None
        raise error
    if reply.finish_reason == "content_filter":
        raise useless(reply, "the model refused, or a content filter withheld the reply", "refused")
    if not reply.tool_calls and not (reply.text and reply.text.strip()):
        raise useless(reply, "the reply has no text")
    return reply


def read_json(reply: Reply, text: str, shape: type[T], what: str) -> T:
    """Return the value of a JSON text. Raises ``ModelCallFailed`` if the text is not JSON of the
    type ``shape``. ``what`` names the text in the error.
    """
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise useless(reply, f"{what} cannot be used: {error}") from error


def useless(reply: Reply, problem: str, failure: Failure = "bad_reply") -> ModelCallFailed:
    return ModelCallFailed(reply.model, failure, problem, report_on(reply))


def made_by(reply: Reply, prompt: Prompt) -> JsonObject:
    """Return the metadata of a condensation that say which reply and which prompt made its text."""
    return {
        "model": reply.model,
        "response_id": reply.response_id,
        "cost": reply.cost,
        "latency_s": reply.latency_s,
        "prompt": prompt.name,
        "prompt_sha256": prompt.sha256,
    }


def report_on(reply: Reply) -> Report:
    """Return the report on a reply, without its text: the condensation stores the text as its
    summary.
    """
    return {
        "response": {
            "id": reply.response_id,
            "model": reply.model,
            "finish_reason": reply.finish_reason,
        },
        "metrics": {
            "usage": dict(reply.usage),
            "cost": reply.cost,
            "latency_s": reply.latency_s,
            "attempts": reply.attempts,
        },
    }


# --- the requests and responses of litellm ---


def request_for(
    messages: Sequence[JsonMap],
    tools: Sequence[JsonMap],
    tool_choice: str | None,
    response_schema: JsonMap | None,
) -> JsonObject:
    """Return the arguments of a completion. ``tool_choice`` is the name of a tool, ``none`` or
    None.
    """
    request: JsonObject = {"messages": [dict(message) for message in messages]}
    if tools:
        request["tools"] = list(tools)
        # Without this setting, litellm requires the package mcp for any call with tools.
        request["_skip_mcp_handler"] = True
    if tool_choice == "none":
        request["tool_choice"] = tool_choice
    elif tool_choice is not None:
        request["tool_choice"] = {"type": "function", "function": {"name": tool_choice}}
    if response_schema is not None:
        schema = {"name": response_schema.get("title", "reply"), "schema": response_schema}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    return request


def sendable(value: Any) -> Any:
    # Some logs contain halves of surrogate pairs, which become question marks.
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def reply_of(response: Any, model: str, latency_s: float, conceal: Callable[[str], str]) -> Reply:
    """Convert litellm's response into a ``Reply``. The reply has no text if the response has no
    choice, or if its content has an unknown format.
    """
    message = response.choices[0].message if response.choices else {}
    content = message.get("content")
    calls = message.get("tool_calls") or ()
    if isinstance(content, list):
        content = "".join(
            part["text"]
            for part in content
            if isinstance(part, dict) and part.get("type") == "text"
        )
    # Older versions of litellm put a refusal among the fields of the provider.
    refusal = message.get("refusal") or (message.get("provider_specific_fields") or {}).get(
        "refusal"
    )
    counts = usage_of(response.usage.model_dump())
    finish_reason = None
    if refusal:
        finish_reason = "content_filter"
    elif response.choices:
        finish_reason = response.choices[0].finish_reason
    # If the total is 0, litellm computed the price of an empty reply.
    total = counts.get("prompt_tokens", 0) + counts.get("completion_tokens", 0)
    return Reply(
        text=conceal(content) if isinstance(content, str) else None,
        model=conceal(response.model or model),
        tool_calls=tuple(
            ToolCall(
                conceal(call.function.name or ""), conceal(call.function.arguments or ""), call.id
            )
            for call in calls
        ),
        response_id=response.id and conceal(response.id),
        finish_reason=finish_reason,
        usage={**counts, "total_tokens": total} if total else {},
        cost=response._hidden_params.get("response_cost") if total else None,
        latency_s=latency_s,
    )
