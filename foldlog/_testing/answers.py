"""Write a recorded reply as the answer of an API, or as the events of its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foldlog._testing.calls import join_replies
from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import Dialect, View

Part = dict[str, Any]

_DELTAS = {
    "text": (("text_delta", "text", "text"),),
    "thinking": (
        ("thinking_delta", "thinking", "thinking"),
        ("signature_delta", "signature", "signature"),
    ),
    "tool_use": (("input_json_delta", "input", "partial_json"),),
}
"""For each type of a block: the types of its deltas, the fields that these hold, and their names in
the deltas.
"""
_CUT_OFF = ("length", "max_tokens", "incomplete")
"""The reasons that APIs give for a reply that was cut off."""
_ENDS: Mapping[str, Mapping[str, str]] = {
    "openai": {
        **dict.fromkeys(_CUT_OFF, "length"),
        **dict.fromkeys(("content_filter", "refusal"), "content_filter"),
    },
    "anthropic": {
        **dict.fromkeys(_CUT_OFF, "max_tokens"),
        **dict.fromkeys(("content_filter", "refusal"), "refusal"),
        "pause_turn": "pause_turn",
        "stop_sequence": "stop_sequence",
    },
    "responses": dict.fromkeys((*_CUT_OFF, "content_filter"), "incomplete"),
}
"""For each API: why a reply ended early, by the reason that is recorded of this or another API."""


def answer_of(reply: Sequence[Event], dialect: Dialect, number: int) -> Part:
    """Return the answer of the API that accepts ``dialect``. The answer has the recorded call ids,
    model and usage, and ends as the recorded reply ended.
    """
    first = reply[0]
    calls = [event for event in reply if isinstance(event, Action)]
    name = getattr(first, "response_id", None) or f"reply-{number}"
    about = {"id": name, "model": first.meta.get("model") or "recorded"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, **(first.meta.get("usage") or {})}
    total = usage["prompt_tokens"] + usage["completion_tokens"]
    recorded_end = str(first.meta.get("finish_reason"))
    written = _written(reply, calls, dialect)
    if dialect == "responses":
        status = _ENDS["responses"].get(recorded_end, "completed")
        cause = "content_filter" if recorded_end == "content_filter" else "max_output_tokens"
        return {
            **about,
            "object": "response",
            "created_at": 0,
            "status": status,
            "incomplete_details": {"reason": cause} if status == "incomplete" else None,
            "output": [_item(item, f"{name}-{at}") for at, item in enumerate(written)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "output_tokens": usage["completion_tokens"],
                "total_tokens": total,
                "input_tokens_details": {"cached_tokens": usage.get("cached_tokens", 0)},
                "output_tokens_details": {"reasoning_tokens": usage.get("reasoning_tokens", 0)},
            },
        }
    message: Part = written[0] if written else {"role": "assistant", "content": ""}
    if dialect.startswith("anthropic"):
        reason = _ENDS["anthropic"].get(recorded_end, "tool_use" if calls else "end_turn")
        stop = {"stop_reason": reason, "stop_sequence": None}
        return {
            **about,
            "type": "message",
            **message,
            **stop,
            "usage": _usage_of_anthropic(usage),
        }
    reason = _ENDS["openai"].get(recorded_end, "tool_calls" if calls else "stop")
    return {
        **about,
        "object": "chat.completion",
        "created": 0,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {**usage, "total_tokens": total, **_details_of_openai(usage)},
    }


def _details_of_openai(usage: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the details of usage where OpenAI's chat completions have them."""
    places = {
        "cached_tokens": "prompt_tokens_details",
        "reasoning_tokens": "completion_tokens_details",
    }
    return {place: {name: usage[name]} for name, place in places.items() if name in usage}


def _usage_of_anthropic(usage: Mapping[str, int]) -> dict[str, int]:
    """Return usage as Anthropic reports it, whose input tokens do not include cached tokens."""
    cached = {
        name: usage[ours]
        for name, ours in (
            ("cache_read_input_tokens", "cached_tokens"),
            ("cache_creation_input_tokens", "cache_write_tokens"),
        )
        if ours in usage
    }
    return {
        "input_tokens": usage["prompt_tokens"] - sum(cached.values()),
        "output_tokens": usage["completion_tokens"],
        **cached,
    }


def _written(reply: Sequence[Event], calls: Sequence[Action], dialect: Dialect) -> list[Part]:
    """Return the messages, or the items of OpenAI's Responses, that a reply is rendered to."""
    # A call is rendered only with its result.
    results = [Observation(tool=call.tool, call_id=call.call_id, content="-") for call in calls]
    view = View.from_events(join_replies((*reply, *results), 0))
    messages = [
        message
        for message in view.to_messages(dialect)
        if message.get("role", "assistant") == "assistant"
        and not message.get("type", "").endswith("_output")
    ]
    # A prompt never has arguments that are no JSON, but a model may write such arguments.
    texts = {call.call_id: call.arguments for call in calls if isinstance(call.arguments, str)}
    if texts:
        for written in messages:
            for call in written.get("tool_calls", ()):
                function = call["function"]
                function["arguments"] = texts.get(call["id"], function["arguments"])
            if written.get("type") == "function_call":
                written["arguments"] = texts.get(written["call_id"], written["arguments"])
    return messages


def _item(item: Part, item_id: str) -> Part:
    """Return an item of a response of OpenAI's Responses."""
    if item.get("role") == "assistant":
        part = {"type": "output_text", "text": item["content"], "annotations": []}
        item = {"type": "message", "role": "assistant", "content": [part]}
    return {"id": item_id, "status": "completed", **item}


def stream_of(answer: Part, dialect: Dialect) -> Iterator[str]:
    """Yield the server-sent events of an answer. Each message, call or block comes in one piece."""
    if dialect == "responses":
        events = _response_events(answer)
    elif dialect.startswith("anthropic"):
        events = _anthropic_events(answer)
    else:
        yield f"data: {json.dumps(_chunk(answer))}\n\ndata: [DONE]\n\n"
        return
    for number, event in enumerate(events):
        data = json.dumps({"sequence_number": number, **event})
        yield f"event: {event['type']}\ndata: {data}\n\n"


def _chunk(answer: Part) -> Part:
    choice = dict(answer["choices"][0])
    delta = dict(choice.pop("message"))
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(delta["tool_calls"])]
    return {**answer, "object": "chat.completion.chunk", "choices": [{**choice, "delta": delta}]}


def _response_events(answer: Part) -> Iterator[Part]:
    begun = {**answer, "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(answer["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        texts = item["content"] if item["type"] == "message" else ()
        empty = {"content": [{**part, "text": ""} for part in texts]} if texts else {}
        yield {"type": "response.output_item.added", **at, "item": {**item, **empty}}
        for part in texts:
            delta = {"content_index": 0, "logprobs": [], "delta": part["text"]}
            yield {"type": "response.output_text.delta", **at, **delta}
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": f"response.{answer['status']}", "response": answer}


def _anthropic_events(answer: Part) -> Iterator[Part]:
    begun = {**answer, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(answer["content"]):
        deltas = [row for row in _DELTAS.get(block["type"], ()) if row[1] in block]
        start = {**block, **{name: type(block[name])() for _, name, _ in deltas}}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for kind, name, field in deltas:
            value = block[name]
            text = value if isinstance(value, str) else json.dumps(value)
            delta = {"type": kind, field: text}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {name: answer[name] for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": stop, "usage": answer["usage"]}
    yield {"type": "message_stop"}
