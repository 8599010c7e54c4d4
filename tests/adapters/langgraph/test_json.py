"""LangChain reads an export, and a View shows the images of what it writes."""

from __future__ import annotations

import json

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict

from tests.adapters.contract import check_import

IMAGE = {"type": "image", "base64": "//77AA==", "mime_type": "image/png"}


def test_a_view_shows_a_call_that_langchain_could_not_read(histories):
    bad = {
        "name": "f",
        "args": '{"a": ',
        "id": "c2",
        "error": "not JSON",
        "type": "invalid_tool_call",
    }
    called = AIMessage(
        "I try", tool_calls=[{"name": "look", "args": {}, "id": "c1"}], invalid_tool_calls=[bad]
    )
    messages = [
        HumanMessage("see"),
        called,
        ToolMessage("far", tool_call_id="c1"),
        AIMessage([bad]),
    ]
    messages.append(AIMessage([bad], invalid_tool_calls=[bad]))
    check_import(
        histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 0
    )
    _, call, _, *said = histories["theirs"].view()
    assert call.thought == ({"type": "text", "text": "I try"}, bad)
    assert [message.content for message in said] == [(bad,), (bad,)]


def test_a_view_shows_the_images_of_messages_of_langchain(histories):
    called = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    messages = [HumanMessage(["see", IMAGE]), called, ToolMessage([IMAGE], tool_call_id="c1")]
    check_import(
        histories, "langchain", json.dumps([message_to_dict(message) for message in messages]), 2
    )
