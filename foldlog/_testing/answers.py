"""Write a recorded reply as the answer of an API, or as the events of its stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from foldlog._testing.calls import join_replies
from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import Dialect, View

Part = dict[str, Any]


def answer_of(reply: Sequence[Event], dialect: Dialect, number: int) -> Part:
    """Return the answer of the API that accepts ``dialect``. The answer has the recorded call ids,
    model and usage.
    """
    first = reply[0]
    calls = [event for event in reply if isinstance(event, Action)]
    name = getattr(first, "response_id", None) or f"reply-{number}"
    about = {"id": name, "model": first.meta.get("model") or "recorded"}
    usage = {"prompt_tokens": 0, "completion_tokens": 0} | (first.meta.get("usage") or {})
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    written = _written(reply, calls, dialect)
    if dialect == "responses":
        return _response(about, usage, written)
    message: Part = written[0] if written else {"role": "assistant", "content": ""}
    if dialect.startswith("anthropic"):
        return {
            **about,
            "type": "message",
            **message,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": _counts(usage),
        }
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    about |= {"object": "chat.completion", "created": 0}
    return {**about, "choices": [choice], "usage": usage}


def stream_of(answer: Part, dialect: Dialect) -> Iterator[str]:
    """Yield the server-sent events of an answer. Each message, call or block comes in one piece."""
    if dialect == "responses":
        yield from _response_stream(answer)
    elif dialect.startswith("anthropic"):
        yield from _anthropic_stream(answer)
    else:
        yield from _chat_stream(answer)


def _written(reply: Sequence[Event], calls: Sequence[Action], dialect: Dialect) -> list[Part]:
    # A call is rendered only with its result.
    results = [Observation(tool=call.tool, call_id=call.call_id, content="-") for call in calls]
    view = View.from_events(join_replies((*reply, *results), 0))
    return [
        message
        for message in view.to_messages(dialect)
        if message.get("role") == "assistant"
        or message.get("type") in ("reasoning", "function_call", "custom_tool_call", "compaction")
    ]


def _counts(usage: Part) -> Part:
    return {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}


def _response(about: Part, usage: Part, items: Sequence[Part]) -> Part:
    output: list[Part] = []
    for number, item in enumerate(items):
        item_id = {"id": f"item-{about['id']}-{number}", "status": "completed"}
        if item.get("role") == "assistant":
            part = {"type": "output_text", "text": item["content"], "annotations": []}
            item = {"type": "message", "role": "assistant", "content": [part]}
        output.append({**item_id, **item})
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    return {
        **about,
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**_counts(usage), **details, "total_tokens": usage["total_tokens"]},
    }


def _chat_stream(answer: Part) -> Iterator[str]:
    about = {"id": answer["id"], "model": answer["model"], "created": 0}
    about["object"] = "chat.completion.chunk"
    choice = answer["choices"][0]
    delta = choice["message"]
    if calls := delta.get("tool_calls"):
        delta = {**delta, "tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]}
    first = {"index": 0, "delta": delta, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield _data({**about, "choices": [first]})
    yield _data({**about, "choices": [last]})
    yield _data({**about, "choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def _response_stream(answer: Part) -> Iterator[str]:
    begun = {**answer, "status": "in_progress", "output": []}
    numbers = iter(range(1_000_000))

    def event(kind: str, **fields: Any) -> str:
        return _event(kind, sequence_number=next(numbers), **fields)

    yield event("response.created", response=begun)
    for index, item in enumerate(answer["output"]):
        yield event("response.output_item.added", output_index=index, item=item)
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            at |= {"content_index": 0, "logprobs": []}
            text = item["content"][0]["text"]
            yield event("response.output_text.delta", **at, delta=text)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=answer)


def _anthropic_stream(answer: Part) -> Iterator[str]:
    stop = {name: answer[name] for name in ("stop_reason", "stop_sequence")}
    begun = {**answer, "content": [], "stop_reason": None}
    yield _event("message_start", message=begun)
    for index, block in enumerate(answer["content"]):
        start, deltas = _pieces(block)
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=stop, usage=answer["usage"])
    yield _event("message_stop")


def _pieces(block: Part) -> tuple[Part, list[Part]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        signature = {"type": "signature_delta", "signature": block.get("signature", "")}
        thinking = {"type": "thinking_delta", "thinking": block["thinking"]}
        return {**block, "thinking": "", "signature": ""}, [thinking, signature]
    if block["type"] == "tool_use":
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, [arguments]
    return block, []


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\n{_data({'type': kind, **fields})}"


def _data(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"
