"""A server of OpenAI's chat completions."""

from __future__ import annotations

import json

from tests.adapters import contract
from tests.adapters.model_server import ModelServer

USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 4},
    "total_tokens": 12,
}


def said(text):
    return {"role": "assistant", "content": text}


def call(call_id, tool="work", **arguments):
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def reply(given):
    """The message of a reply of ``contract.Script``."""
    if isinstance(given, str):
        return said(given)
    calls = [call(name, what=tool, **arguments) for tool, name, arguments in given]
    return {**calls[0], "tool_calls": [each["tool_calls"][0] for each in calls]}


def told(messages):
    """What messages say: roles, words, and ids of calls and of the answers to them."""

    def words(content):
        return (
            content if isinstance(content, str) else "".join(part["text"] for part in content or ())
        )

    return [
        (
            message["role"],
            message.get("tool_call_id") or words(message.get("content")),
            [call["id"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    ]


def problem_of(messages, messages_max=None):
    """Return what is wrong with a prompt, or None."""
    if [message["role"] == "system" for message in messages] != [True] + [False] * (
        len(messages) - 1
    ):
        return "the first message is not the system's, or another one is"
    calls = [[each["id"] for each in message.get("tool_calls") or ()] for message in messages]
    results = [
        [message["tool_call_id"]] if message["role"] == "tool" else [] for message in messages
    ]
    return contract.problem_of(zip(calls, results, strict=True), messages_max)


class ChatServer(ModelServer):
    """``script(messages, number)`` returns the message to answer."""

    def __init__(self, script, messages_max=None):
        super().__init__()
        self.script, self.messages_max = script, messages_max
        self.url += "/v1"

    def problem_of(self, prompt):
        return problem_of(prompt["messages"], self.messages_max)

    def reply_to(self, prompt, number):
        message = self.script(prompt["messages"], number)
        stops = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": stops}
        about = {
            "id": f"r{number}",
            "object": "chat.completion",
            "created": 0,
            "model": prompt["model"],
        }
        return {**about, "choices": [choice], "usage": USAGE}
