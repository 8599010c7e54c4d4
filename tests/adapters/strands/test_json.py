"""The SDK reads an export, and a View shows the files of what the SDK writes."""

from __future__ import annotations

import json

from strands.types.session import SessionMessage

from tests.adapters.contract import FILE, IMAGE, check_import
from tests.adapters.strands.scripted import call

FILES = [
    {"image": {"format": "png", "source": {"bytes": IMAGE}}},
    {"document": {"name": "file", "format": "pdf", "source": {"bytes": FILE}}},
]


def result(name, content, status="success"):
    return {"toolResult": {"toolUseId": name, "status": status, "content": content}}


def test_a_view_shows_the_images_of_messages_of_the_sdk(histories):
    contents = [
        FILES,
        [call("look", {"at": 1}, "c1")],
        [result("c1", [{"text": "see"}, *FILES, {"json": {"a": 1}}])],
    ]
    messages = [
        {"role": "assistant" if place == 1 else "user", "content": each}
        for place, each in enumerate(contents)
    ]
    written = [
        SessionMessage.from_message(each, place).to_dict() for place, each in enumerate(messages)
    ]
    check_import(histories, "strands", json.dumps(written), 2)
