"""The SDK reads an export, and a View shows the files of what the SDK writes."""

from __future__ import annotations

import json

import pytest
from pydantic_ai import Conversation
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from foldlog.adapters.pydantic_ai import FoldlogConversationStore
from tests.adapters.contract import FILE, IMAGE, check_import


def told(content):
    return [
        (each.media_type, each.data) if isinstance(each, BinaryContent) else each
        for each in content
    ]


SHOWN = ["see", ("image/png", IMAGE), ("application/pdf", FILE)]


@pytest.mark.anyio
async def test_the_sdk_reads_an_export_of_what_it_saved_and_a_view_shows_its_images(histories):
    image = BinaryContent(data=IMAGE, media_type="image/png")
    calls = [ToolCallPart("look", {"at": 1}, name) for name in ("c1", "c2")]
    results = [
        ToolReturnPart("look", ["see", image, {"a": 1}], "c1"),
        ToolReturnPart("look", image, "c2"),
    ]
    messages = [
        ModelRequest([UserPromptPart(["see", image])]),
        ModelResponse(calls),
        ModelRequest(results),
    ]
    check_import(histories, "pydantic-ai", ModelMessagesTypeAdapter.dump_json(messages).decode(), 3)
    await FoldlogConversationStore(histories).save(
        Conversation(conversation_id="c", messages=messages)
    )
    saved = json.dumps([*histories["pydantic-ai/c"].export()])
    assert told(ModelMessagesTypeAdapter.validate_json(saved)[0].parts[0].content) == SHOWN[:2]
    assert told(ModelMessagesTypeAdapter.validate_json(saved)[2].parts[0].content) == [
        *SHOWN[:2],
        {"a": 1},
    ]
