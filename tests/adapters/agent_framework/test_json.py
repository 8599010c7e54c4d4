"""The SDK reads an export, and a View shows the files of what the SDK writes."""

from __future__ import annotations

import json

from agent_framework import Content, Message

from tests.adapters.agent_framework.scripted import call, said
from tests.adapters.contract import FILE, IMAGE, check_import, exported

FILES = [Content.from_data(IMAGE, media_type="image/png"), Content.from_data(FILE, media_type="application/pdf")]


def uris(contents):
    return [content.uri for content in contents if content.type == "data"]


def test_the_sdk_reads_an_export(histories):
    records = json.loads(exported(histories, "agent-framework"))
    asked, called, answered = (Message.from_dict(each).contents for each in records)
    assert asked[0].text == "see"
    assert uris(asked) == uris(FILES)
    assert (called[0].type, called[0].text, called[0].protected_data) == ("text_reasoning", "hm", "c2ln")
    assert [each.call_id for each in called[2:]] == ["c1", "c2"]
    assert uris(answered[0].items) == uris(FILES)
    assert [(each.result, bool(each.exception)) for each in answered] == [("see", False), ("no", True)]


def test_a_view_shows_the_images_of_messages_of_the_sdk(histories):
    result = Content.from_function_result(call_id="c1", result=[said("see"), *FILES])
    messages = [Message("user", FILES), Message("assistant", [call("look", "{}", "c1")]), Message("tool", [result])]
    check_import(histories, "agent-framework", json.dumps([message.to_dict() for message in messages]), 2)
