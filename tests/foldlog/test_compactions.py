"""Compactions that a provider makes: kept, shown, and sent back as its API has it."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

import foldlog
from foldlog.eventstore import CondensationAction, Message, SystemMessage
from foldlog.formats import decode, encode
from foldlog.projections import View

BLOCK = {
    "type": "compaction",
    "content": "It is 9 km.",
    "encrypted_content": "opaque",
    "signature": "s",
}
EDITS = {
    "applied_edits": [
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50},
        {
            "type": "clear_thinking_20251015",
            "cleared_thinking_turns": 3,
            "cleared_input_tokens": 70,
        },
    ]
}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
REPLY = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "18 km", "annotations": []}],
}


def message(*blocks, **more):
    usage = {"input_tokens": 5, "output_tokens": 2}
    about = {
        "type": "message",
        "id": "m",
        "model": "a-model",
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    return {**about, "role": "assistant", "content": [*blocks], "usage": usage, **more}


def response(*items):
    about = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "a-model",
        "status": "completed",
    }
    return {
        **about,
        "output": [*items],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


@pytest.fixture
def history():
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append(SystemMessage(content="Be brief."))
        history.append(
            [{"role": "user", "content": "how far?"}, {"role": "assistant", "content": "9 km"}]
        )
        history.append({"role": "user", "content": "and back?"})
        yield history


def sent(history, dialect):
    """The messages, checked by the types of the provider's own client where it is installed."""
    messages = history.view().to_messages(dialect)
    if dialect == "anthropic":
        beta = pytest.importorskip(
            "anthropic.types.beta", reason="needs the types of Anthropic's client"
        )
        TypeAdapter(list[beta.BetaMessageParam]).validate_python(messages, strict=True)
    else:
        openai = pytest.importorskip(
            "openai.types.responses", reason="needs the types of OpenAI's client"
        )
        TypeAdapter(list[openai.ResponseInputItemParam]).validate_python(messages)
    return messages


SAID = {"type": "text", "text": "18 km"}


def test_a_block_of_anthropic_stands_for_all_before_it_and_goes_back_as_it_came(history):
    recorded = history.append_reply(message(BLOCK, SAID, context_management=EDITS))
    assert [type(each.event) for each in recorded] == [CondensationAction, Message]
    assert recorded[1].event.meta["message"] == {"context_management": EDITS}
    history.append({"role": "user", "content": "sure?"})
    opening, compacted, asked = sent(history, "anthropic")
    assert opening["role"] == "user"
    assert compacted == {"role": "assistant", "content": [BLOCK, SAID]}
    assert asked["content"] == [{"type": "text", "text": "sure?"}]
    assert history.view().system_prompt == "Be brief."
    assert [each["content"] for each in history.view().to_messages("openai")] == [
        *("Be brief.", "It is 9 km.\n\n18 km", "sure?")
    ]
    assert "condensation 4 forgot it" in str(history.why(1))


def test_the_objects_of_the_clients_are_read_as_their_maps(history):
    beta = pytest.importorskip(
        "anthropic.types.beta", reason="needs the types of Anthropic's client"
    )
    history.append_reply(
        beta.BetaMessage.model_validate(message(BLOCK, SAID, context_management=EDITS))
    )
    assert sent(history, "anthropic")[1]["content"][0] == BLOCK
    openai = pytest.importorskip(
        "openai.types.responses", reason="needs the types of OpenAI's client"
    )
    history.append_reply(openai.Response.model_validate(response(ITEM, REPLY)))
    assert sent(history, "responses")[1] == ITEM


def test_a_block_without_content_is_a_compaction_that_failed_and_changes_nothing(history):
    failed = {"type": "compaction", "content": None}
    (recorded,) = history.append_reply(message(failed, SAID))
    assert isinstance(recorded.event, Message)
    assert len(history.view()) == 5


def test_a_reply_of_a_compaction_alone_is_one(history):
    history.append_reply(message(BLOCK, stop_reason="compaction"))
    assert sent(history, "anthropic")[1]["content"] == [BLOCK]


def test_a_call_behind_a_compaction_stays_with_its_result(history):
    use = {"type": "tool_use", "id": "k", "name": "measure", "input": {}}
    *_, call = history.append_reply(message(BLOCK, SAID, use, stop_reason="tool_use"))
    history.append_tool_result("k", "9")
    _, called, answered = sent(history, "anthropic")
    assert [each["type"] for each in called["content"]] == ["compaction", "text", "tool_use"]
    assert answered["content"][0]["tool_use_id"] == "k"
    assert call.event.call_id == "k"


def test_an_item_of_openai_stands_for_all_before_it_and_goes_back_as_it_came(history):
    recorded = history.append_reply(response({**ITEM, "created_by": "server"}, REPLY))
    assert [type(each.event) for each in recorded] == [CondensationAction, Message, Message]
    history.append({"role": "user", "content": "sure?"})
    system, item, said, asked = sent(history, "responses")
    assert (system["content"], item, said["content"]) == ("Be brief.", ITEM, "18 km")
    assert asked["content"] == [{"type": "input_text", "text": "sure?"}]
    assert "gAAA" not in str(history.view().to_messages("openai"))


def test_a_compaction_that_the_program_asked_for_keeps_the_messages_of_the_user(history):
    user = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "how far?"}],
    }
    usage = {"input_tokens": 7, "output_tokens": 1}
    compacted = {
        "id": "r",
        "object": "response.compaction",
        "created_at": 1,
        "output": [user, ITEM],
        "usage": usage,
    }
    recorded = history.append_reply(compacted)
    assert [type(each.event) for each in recorded] == [CondensationAction, Message]
    assert recorded[1].event.meta["usage"]["prompt_tokens"] == 7
    system, asked, item = sent(history, "responses")
    assert (system["role"], item) == ("system", ITEM)
    assert [each["text"] for each in asked["content"]] == ["how far?", "and back?"]


def test_what_is_appended_with_a_compaction_is_forgotten_too(history):
    history.append([{"role": "user", "content": "one more"}, message(BLOCK, SAID)])
    assert [event.id for event in history.view()] == [0, 6]


ASKED = {"role": "user", "content": "how far?"}
BLOCKS = [
    ASKED,
    {"role": "assistant", "content": [BLOCK, SAID]},
    {"role": "user", "content": "sure?"},
]


def test_an_import_reads_them_as_a_reply_is_read():
    events = list(decode(BLOCKS, "anthropic-messages"))
    assert [type(each) for each in events] == [Message, CondensationAction, Message, Message]
    assert View.from_events(events).to_messages("anthropic")[1:] == [
        BLOCKS[1],
        {"role": "user", "content": [{"type": "text", "text": "sure?"}]},
    ]
    said = {"role": "assistant", "content": "9 km"}
    items = [{"role": "developer", "content": "Be brief."}, ASKED, said, ITEM, REPLY]
    events = list(decode(items, "openai-responses"))
    assert [event.id for event in View.from_events(events)] == [0, 1, 4, 5]
    assert View.from_events(events).to_messages("responses")[2] == ITEM
    _, *again = decode([ASKED, ITEM], "openai-responses")
    assert [type(each) for each in again] == [Message]  # nothing is gone


def test_a_block_is_written_as_it_came(history):
    history.append_reply(message(BLOCK, SAID))
    *_, written = encode(history.events(), "anthropic-messages")
    assert written == {"role": "assistant", "content": [BLOCK, SAID]}
