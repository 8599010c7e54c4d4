"""LangChain reads an export, and a View shows the images of what it writes."""

from __future__ import annotations

import json

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict, messages_from_dict

from tests.adapters.contract import check_import, exported

IMAGE = {"type": "image", "base64": "//77AA==", "mime_type": "image/png"}


def test_langchain_reads_an_export(histories):
    asked, called, answered, failed = messages_from_dict(json.loads(exported(histories, "langchain")))
    assert [part["type"] for part in asked.content] == ["text", "image_url", "file"]
    assert called.content[0] == {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    assert [(call["name"], call["args"], call["id"]) for call in called.tool_calls] == [
        ("look", {"at": 1}, "c1"),
        ("look", {"at": 1}, "c2"),
    ]
    assert (answered.content, answered.status) == (asked.content, "success")
    assert (failed.content, failed.status) == ("no", "error")


def test_a_view_shows_a_call_that_langchain_could_not_read(histories):
    bad = {"name": "f", "args": '{"a": ', "id": "c2", "error": "not JSON", "type": "invalid_tool_call"}
    called = AIMessage("I try", tool_calls=[{"name": "look", "args": {}, "id": "c1"}], invalid_tool_calls=[bad])
    messages = [HumanMessage("see"), called, ToolMessage("far", tool_call_id="c1"), AIMessage([bad])]
    messages.append(AIMessage([bad], invalid_tool_calls=[bad]))
    check_import(histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 0)
    _, call, _, *said = histories["theirs"].view()
    assert call.thought == ({"type": "text", "text": "I try"}, bad)
    assert [message.content for message in said] == [(bad,), (bad,)]


def test_a_view_shows_the_images_of_messages_of_langchain(histories):
    called = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    messages = [HumanMessage(["see", IMAGE]), called, ToolMessage([IMAGE], tool_call_id="c1")]
    check_import(histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 2)
