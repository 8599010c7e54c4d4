"""A server of Anthropic's Messages API, for Claude Code."""

from __future__ import annotations

import json

from tests.adapters import contract
from tests.adapters.model_server import ModelServer


def blocks_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def problem_of(prompt):
    """Return what is wrong with a prompt, or None."""
    messages = prompt["messages"]
    if not messages or messages[0]["role"] != "user":
        return "the first message is not a user's"

    def ids(message, kind, name):
        return [block[name] for block in blocks_of(message) if block["type"] == kind]

    told = [
        (ids(each, "tool_use", "id"), ids(each, "tool_result", "tool_use_id")) for each in messages
    ]
    return contract.problem_of(told)


class AnthropicServer(ModelServer):
    """``script(prompt)`` returns the blocks of a response."""

    def __init__(self, script):
        super().__init__()
        self.script = script

    def answer_to(self, path, body):
        if "/v1/messages" not in path or "count_tokens" in path:
            return 200, {"input_tokens": 10}
        return super().answer_to(path, body)

    def problem_of(self, prompt):
        return problem_of(prompt)

    def reply_to(self, prompt, number):
        blocks = self.script(prompt)
        if prompt.get("stream"):
            return b"".join(_events(number, prompt, blocks))
        return _message(number, prompt, blocks)


def _message(number, prompt, blocks):
    stops = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    usage = {"input_tokens": 10, "output_tokens": 5}
    about = {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": prompt["model"],
    }
    return {**about, "content": blocks, "stop_reason": stops, "stop_sequence": None, "usage": usage}


def _events(number, prompt, blocks):
    message = _message(number, prompt, blocks)
    start = {**message, "content": [], "stop_reason": None}
    yield _event("message_start", message=start)
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            yield _event(
                "content_block_start", index=index, content_block={"type": "text", "text": ""}
            )
            yield _event(
                "content_block_delta",
                index=index,
                delta={"type": "text_delta", "text": block["text"]},
            )
        else:
            yield _event("content_block_start", index=index, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage=message["usage"])
    yield _event("message_stop")


def _event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
