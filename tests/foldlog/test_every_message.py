"""Messages as the clients of each provider write them: no way in loses a text, or a result of a call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foldlog import Action, from_openai
from foldlog.formats import encode
from foldlog.projections.messages import DIALECTS
from tests.projections.chat_rules import PROBLEMS

ASKED = {"role": "user", "content": "How deep is the water?"}


def chat(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "said-1", "tool_calls": list(calls), **more}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": '{"at": "said-2"}'}, **more}


CHATS = {
    "chat": [
        chat(function("f", id="k1", type="function"), function("g", id="k2", type="function")),
        {"role": "tool", "tool_call_id": "k2", "content": "said-3"},
        {"role": "tool", "tool_call_id": "k1", "content": [{"type": "text", "text": "said-4"}]},
    ],
    "functions": [
        {"role": "assistant", "content": "said-1", "function_call": function("f")["function"]},
        {"role": "function", "name": "f", "content": "said-3"},
        {"role": "assistant", "content": None, "function_call": function("f")["function"]},
        {"role": "function", "name": "f", "content": "said-4"},
    ],
    "ollama": [
        chat({"function": {"name": "f", "arguments": {"at": "said-2"}}}, function("g"), function("f")),
        {"role": "tool", "tool_name": "g", "content": "said-3"},
        {"role": "tool", "tool_name": "f", "content": "said-4"},
        {"role": "tool", "tool_name": "f", "content": "said-5"},
    ],
    "no names": [
        chat(function("f"), function("g"), function("f")),
        {"role": "tool", "content": "said-3"},
        {"role": "tool", "content": "said-4"},
        {"role": "tool", "content": "said-5"},
    ],
}


def results(messages: list[Any]) -> int:
    return sum(message.get("role") in ("tool", "function") for message in messages)


def append_each(history: Any, messages: list[Any]) -> None:
    for message in messages:
        history.append(message)


def append_reply(history: Any, messages: list[Any]) -> None:
    """Append the replies as such, and the result of each call as a program does that runs the tools."""
    for message in messages:
        if message["role"] == "assistant":
            history.append_reply(message)
        elif results([message]):
            names = message.get("name"), message.get("tool_name"), message.get("tool_call_id")
            calls = history.open_calls()
            call = next((each for each in calls if each.tool in names or each.call_id in names), calls[0])
            history.append_tool_result(call.call_id, message["content"])
        else:
            history.append(message)


WAYS = {
    "append": append_each,
    "append of a list": lambda history, messages: history.append(messages),
    "append of events": lambda history, messages: history.append(from_openai(messages)),
    "append_reply": append_reply,
    "append_records": lambda history, messages: history.append_records(messages, format="openai-chat"),
    "records by and by": lambda history, messages: [
        history.append_records([message], format="openai-chat") for message in messages
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("messages", CHATS.values(), ids=CHATS)
def test_each_call_of_a_chat_is_paired(history, messages, way):
    WAYS[way](history, [ASKED, *messages])
    events = list(history.events())
    assert history.open_calls() == ()
    said = {each for each in ("said-1", "said-2", "said-3", "said-4", "said-5") if each in json.dumps(messages)}
    for dialect in DIALECTS:
        told = history.view().to_messages(dialect)
        assert (PROBLEMS[dialect](told), {each for each in said if each not in json.dumps(told)}) == ([], set())
    assert all(isinstance(event.response_id, str) for event in events if isinstance(event, Action))
    written = list(encode(events, "openai-chat"))
    if "record" in way:
        assert written == [ASKED, *messages]
        return
    calls = [call["id"] for message in written for call in message.get("tool_calls", ())]
    assert sorted(calls) == sorted(message["tool_call_id"] for message in written if message["role"] == "tool")
    assert len(calls) == results(messages)
