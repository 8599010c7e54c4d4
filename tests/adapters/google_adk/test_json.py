"""The SDK reads an export, and a View shows the files of what the SDK writes."""

from __future__ import annotations

import json

import pytest
from google.adk.events.event import Event
from google.genai import types

from foldlog.adapters.google_adk import FoldlogSessionService
from tests.adapters.contract import IMAGE, check_import
from tests.adapters.google_adk.scripted import call


def told(parts):
    return [
        (part.inline_data.mime_type, part.inline_data.data) for part in parts if part.inline_data
    ]


@pytest.mark.anyio
async def test_the_sdk_reads_an_export_of_what_it_saved_and_a_view_shows_its_images(histories):
    shown = types.Part.from_bytes(data=IMAGE, mime_type="image/png")
    of_result = types.FunctionResponsePart.from_bytes(data=IMAGE, mime_type="image/png")
    thought = types.Part(text="hm", thought=True, thought_signature=IMAGE)
    answered = types.FunctionResponse(
        id="c1", name="look", response={"result": "see"}, parts=[of_result]
    )
    parts = [[shown], [thought, call("look", "c1")], [types.Part(function_response=answered)]]
    events = [
        Event(author="user", invocation_id="i", content=types.Content(role="user", parts=each))
        for each in parts
    ]
    written = ",".join(event.model_dump_json(exclude_none=True) for event in events)
    check_import(histories, "google-adk", f"[{written}]", 2)
    service = FoldlogSessionService(histories)
    session = await service.create_session(app_name="a", user_id="u", session_id="s")
    for event in events:
        await service.append_event(session, event)
    saved = histories[service.conversation("a", "u", "s")]
    assert [Event.model_validate_json(json.dumps(each)) for each in saved.export()] == events
