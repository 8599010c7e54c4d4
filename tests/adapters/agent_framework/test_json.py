"""The SDK reads an export, and a View shows the files of what the SDK writes."""

from __future__ import annotations

import json

from agent_framework import Content, Message

from tests.adapters.agent_framework.scripted import call, said
from tests.adapters.contract import FILE, IMAGE, check_import

FILES = [
    Content.from_data(IMAGE, media_type="image/png"),
    Content.from_data(FILE, media_type="application/pdf"),
]


def uris(contents):
    return [content.uri for content in contents if content.type == "data"]


def test_a_view_shows_the_images_of_messages_of_the_sdk(histories):
    result = Content.from_function_result(call_id="c1", result=[said("see"), *FILES])
    messages = [
        Message("user", FILES),
        Message("assistant", [call("look", "{}", "c1")]),
        Message("tool", [result]),
    ]
    check_import(
        histories, "agent-framework", json.dumps([message.to_dict() for message in messages]), 2
    )
