"""The law of every format: an export gives the records back, whatever they hold, also from what a store keeps."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldlog
from foldlog._formats.registry import format_named
from foldlog.eventstore import Annotation, codec
from foldlog.formats import Encoder, decode, encode
from tests.how_many import examples

numbers = (
    st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([0, 0.0, -0.0, 1, 1.0, 2**64, -(2**70), 10**300, math.inf, 1e-320])
)
texts = st.text(max_size=8) | st.sampled_from(["", "a\x00b", "\ud800", "é", "🂡", "run", "message", "e0", "c0"])
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
source_ids = st.sampled_from([0, 1, 2, 3, 1.0, True, "0", "e0", "e1", "e2", None, [1]])
call_ids = st.sampled_from(["c0", "c1", "", None, 7, {"a": 1}])
times = st.sampled_from(
    [
        *(
            "2025-08-31T15:23:21.581223",
            "2025-11-27T14:19:12.914Z",
            "2025-11-27T14:19:12Z",
            "2025-11-27T14:19:12+02:00",
        ),
        *("2025-11-27T14:19:12.914123456Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon", "", 12),
    ]
)


def objects(fields):
    """Objects with some of these fields, each of its own shape or of any, and with others beside."""
    shaped = {key: strategy | values for key, strategy in fields.items()}
    return st.builds(
        lambda known, other: {**other, **known},
        st.fixed_dictionaries({}, optional=shaped),
        st.dictionaries(texts, values, max_size=2),
    )


images = st.lists(texts, max_size=2)
responses = objects({"id": st.sampled_from(["r0", "r1"]), "choices": values})
envelope = {
    "id": source_ids,
    "timestamp": times,
    "source": st.sampled_from(["user", "agent", "environment", "hook"]),
    "cause": source_ids,
    "message": texts,
    "tool_call_metadata": objects({"tool_call_id": call_ids, "function_name": texts, "model_response": responses}),
    "timeout": numbers,
}
args = objects(
    {
        "content": texts,
        "thought": texts,
        "final_thought": texts,
        "command": texts,
        "hidden": st.booleans(),
        "wait_for_response": st.booleans(),
        "image_urls": images,
        "images_urls": images,
        "tools": st.lists(values, max_size=2),
        "forgotten_event_ids": st.lists(st.integers(-3, 9), max_size=4),
        "forgotten_events_start_id": st.integers(-3, 9),
        "forgotten_events_end_id": st.integers(-3, 9),
        "summary": texts,
        "summary_offset": st.integers(-3, 9),
    }
)
actions = st.sampled_from(
    [
        *("message", "system", "finish", "run", "condensation", "condensation_request", "null"),
        *("change_agent_state", "delegate", "zzz"),
    ]
)
observations = st.sampled_from(["run", "condense", "null", "agent_state_changed", "error", "delegate", "zzz", "system"])


def with_name(key, names, body):
    return st.builds(lambda name, fields: {**fields, key: name}, names, body)


v0_objects = with_name("action", actions, objects({**envelope, "args": args}) | args) | with_name(
    "observation", observations, objects({**envelope, "content": texts, "extras": args}) | args
)
v0_records = v0_objects | st.lists(v0_objects, min_size=1, max_size=3)

blocks = st.lists(
    objects({"type": st.sampled_from(["text", "image"]), "text": texts, "image_urls": images, "cache_prompt": scalars}),
    max_size=3,
)
v1_ids = st.sampled_from(["e0", "e1", "e2", "e0-summary"])
calls = objects(
    {
        "id": call_ids,
        "name": texts,
        "arguments": texts,
        "origin": texts,
        "function": objects({"name": texts, "arguments": texts}),
    }
)
v1_records = with_name(
    "kind",
    st.sampled_from(
        [
            *("SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "UserRejectObservation"),
            *(
                "AgentErrorEvent",
                "CondensationSummaryEvent",
                "Condensation",
                "CondensationRequest",
                "PauseEvent",
                "Zzz",
            ),
        ]
    ),
    objects(
        {
            "id": v1_ids,
            "parent_id": v1_ids | st.just("__root__"),
            "timestamp": times,
            "source": st.sampled_from(["user", "agent", "environment", "hook"]),
            "system_prompt": objects({"type": st.just("text"), "text": texts}),
            "dynamic_context": objects({"type": st.just("text"), "text": texts}),
            "tools": st.lists(values, max_size=2),
            "llm_message": objects({"role": st.sampled_from(["user", "assistant"]), "content": blocks}),
            "extended_content": blocks,
            "thought": blocks,
            "thinking_blocks": blocks,
            "tool_name": texts,
            "tool_call_id": call_ids,
            "tool_call": calls,
            "llm_response_id": texts,
            "action": objects({"kind": texts}),
            "action_id": v1_ids,
            "observation": objects({"content": blocks | texts, "output": texts, "is_error": st.booleans()}),
            "error": texts,
            "rejection_reason": texts,
            "forgotten_event_ids": st.lists(v1_ids, max_size=4),
            "summary": texts,
            "summary_offset": st.integers(-2, 5),
        }
    ),
)
chat_records = with_name(
    "role",
    st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "exit"]),
    objects(
        {
            "content": texts | st.lists(objects({"type": st.just("text"), "text": texts}), max_size=2),
            "name": texts,
            "tool_call_id": call_ids,
            "tool_calls": st.lists(calls, max_size=3),
            "function_call": objects({"name": texts, "arguments": texts}),
            "thinking_blocks": blocks,
            "id": source_ids,
            "timestamp": times,
        }
    ),
)
swe_agent_records = with_name(
    "role",
    st.sampled_from(["system", "user", "assistant", "tool", "exit"]),
    objects(
        {
            "content": texts | st.lists(objects({"type": st.just("text"), "text": texts}), max_size=2),
            "agent": st.sampled_from(["main", "primary"]),
            "message_type": st.sampled_from(["system_prompt", "observation", "action", "demonstration"]),
            "is_demo": st.booleans(),
            "thought": texts,
            "action": texts,
            "tool_calls": st.lists(calls, max_size=3),
            "tool_call_ids": st.lists(call_ids, max_size=3),
            "tool_call_id": call_ids,
            "name": texts,
            "timestamp": times,
        }
    ),
)
lines = st.sampled_from(["u0", "u1", "u2", "u3"])
tools = st.sampled_from(["Read", "Bash", "Edit", "Write", "Grep", "Glob", "Task", "TodoWrite", "WebFetch", "x"])
results = st.sampled_from(["     1→a\n    2→b", "1\t", "Found 1 file\na", "9" * 5_000 + "→"]) | texts
text_blocks = st.fixed_dictionaries({"type": st.just("text"), "text": texts | st.just(" \n")})
claude_blocks = st.lists(
    text_blocks
    | st.fixed_dictionaries({"type": st.sampled_from(["thinking", "redacted_thinking"]), "thinking": texts})
    | st.fixed_dictionaries(
        {
            "type": st.just("tool_use"),
            "id": call_ids,
            "name": tools,
            "input": objects({"file_path": texts, "old_string": texts, "output_mode": st.just("content")}) | values,
        }
    )
    | st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": call_ids},
        optional={"content": results | st.lists(text_blocks | scalars, max_size=2) | values, "is_error": scalars},
    )
    | st.fixed_dictionaries(
        {
            "type": st.just("image"),
            "source": objects(
                {"type": st.sampled_from(["base64", "url"]), "media_type": texts, "data": texts, "url": texts}
            ),
        }
    )
    | objects(
        {"type": st.sampled_from(["text", "tool_use", "tool_result", "document"]), "text": texts, "id": call_ids}
    ),
    max_size=4,
)
claude_messages = st.fixed_dictionaries(
    {"content": claude_blocks},
    optional={"id": st.sampled_from(["m0", "m1"]), "role": texts, "usage": values},
)
structured_results = objects({"stdout": texts, "file": objects({"content": texts}), "content": texts})
kept_messages = objects(
    {
        "trigger": st.sampled_from(["auto", "manual"]),
        "preTokens": numbers,
        "preservedMessages": objects({"anchorUuid": lines, "uuids": st.lists(lines, max_size=3), "allUuids": values}),
        "preservedSegment": objects({"headUuid": lines, "tailUuid": lines, "anchorUuid": lines}),
    }
)
claude_fields = objects(
    {
        "uuid": lines,
        "parentUuid": lines | st.none(),
        "logicalParentUuid": lines | st.none(),
        "timestamp": times,
        "sessionId": texts,
        "isSidechain": st.booleans(),
        "isMeta": st.booleans(),
        "isCompactSummary": st.booleans(),
        "isApiErrorMessage": st.booleans(),
        "subtype": st.sampled_from(["compact_boundary", "local_command"]),
        "compactMetadata": kept_messages,
        "requestId": texts,
        "toolUseResult": structured_results | texts,
        "sourceToolAssistantUUID": lines,
        "content": texts,
    }
)
claude_attachments = st.builds(
    lambda fields, attachment, rendered, role: {
        **fields,
        "type": "attachment",
        "attachment": attachment,
        "rendered": rendered,
        "renderedRole": role,
    },
    claude_fields,
    objects(
        {
            "type": st.just("prompt_snapshot"),
            "systemPrompt": st.lists(texts, max_size=2),
            "tools": st.lists(
                st.fixed_dictionaries({"name": texts, "description": texts, "schema": values}) | values, max_size=2
            ),
        }
    ),
    st.lists(objects({"content": texts | claude_blocks}), max_size=2) | values,
    st.sampled_from(["system", "user"]),
)
claude_records = (
    claude_attachments
    | with_name(
        "type",
        st.sampled_from(["user", "assistant"]),
        st.builds(lambda fields, message: {**fields, "message": message}, claude_fields, claude_messages),
    )
    | with_name(
        "type",
        st.sampled_from(["user", "assistant", "system", "progress", "summary", "zzz"]),
        st.builds(lambda fields, message: {**fields, "message": message}, claude_fields, values) | claude_fields,
    )
)
codex_parts = st.lists(
    objects(
        {
            "type": st.sampled_from(["input_text", "output_text", "input_image", "summary_text", "input_file"]),
            "text": texts
            | st.sampled_from(["<environment_context>x</environment_context>", "# AGENTS.md instructions"]),
            "image_url": texts,
        }
    ),
    max_size=3,
)
codex_fields = {
    "id": source_ids,
    "role": st.sampled_from(["user", "assistant", "developer", "system"]),
    "content": codex_parts | texts,
    "summary": codex_parts,
    "encrypted_content": texts,
    "call_id": call_ids,
    "name": texts,
    "arguments": texts,
    "input": texts,
    "action": objects({"type": st.just("exec"), "command": st.lists(texts, max_size=2)}),
    "output": texts
    | codex_parts
    | objects({"content": texts, "success": st.booleans()})
    | st.sampled_from(['{"output":"","metadata":{"exit_code":1}}', "{", "Exit code: 1\nOutput:\nx", "execution error"]),
    "text": texts,
    "message": texts,
    "images": images,
    "info": values,
    "num_turns": st.integers(-1, 3),
    "instructions": texts,
    "base_instructions": objects({"text": texts}),
    "user_instructions": texts,
    "developer_instructions": texts,
}
codex_items = with_name(
    "type",
    st.sampled_from(
        [
            *("message", "message", "reasoning", "function_call", "custom_tool_call", "local_shell_call"),
            *("function_call_output", "custom_tool_call_output", "web_search_call", "ghost_snapshot", "session_meta"),
        ]
    )
    | scalars,
    objects(codex_fields),
)
codex_messages = with_name(
    "type",
    st.sampled_from(
        [
            "user_message",
            "agent_message",
            "agent_reasoning",
            "token_count",
            "thread_rolled_back",
            "turn_aborted",
            "reasoning",
        ]
    ),
    objects(codex_fields),
)
codex_compactions = objects({"message": texts, "replacement_history": st.lists(codex_items | values, max_size=4)})
codex_payloads = {
    "response_item": codex_items | values,
    "event_msg": codex_messages | values,
    "compacted": codex_compactions | values,
    "session_meta": objects(codex_fields),
    "turn_context": objects(codex_fields),
    "world_state": values,
}
codex_records = st.sampled_from(list(codex_payloads)).flatmap(
    lambda line: with_name("type", st.just(line), objects({"timestamp": times, "payload": codex_payloads[line]}))
)
response_parts = st.lists(
    objects(
        {
            "type": st.sampled_from(["input_text", "output_text", "input_image", "refusal", "input_file", "text"]),
            "text": texts,
            "image_url": texts,
            "annotations": values,
        }
    ),
    max_size=3,
)
response_fields = {
    "id": source_ids,
    "content": response_parts | texts,
    "role": st.sampled_from(["user", "assistant", "developer", "system", "critic"]),
    "summary": response_parts,
    "status": st.sampled_from(["completed", "in_progress"]),
    "call_id": call_ids,
    "name": texts,
    "arguments": texts,
    "input": texts,
    "action": values,
    "output": texts | response_parts | values,
    "approval_request_id": call_ids,
}
response_items = with_name(
    "type",
    st.sampled_from(
        [
            *("message", "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "zzz"),
            *("custom_tool_call_output", "local_shell_call", "shell_call_output", "mcp_approval_request"),
            *("mcp_approval_response", "web_search_call", "computer_call", "item_reference"),
        ]
    ),
    objects(response_fields),
) | with_name("role", st.sampled_from(["user", "assistant", "system", "x"]), objects(response_fields))
pydantic_ai_parts = with_name(
    "part_kind",
    st.sampled_from(
        [
            *("user-prompt", "system-prompt", "text", "thinking", "tool-call", "tool-return", "retry-prompt"),
            *("request", "response", "zzz"),
        ]
    ),
    objects(
        {
            "content": texts
            | values
            | st.lists(
                texts
                | objects(
                    {
                        "kind": st.sampled_from(["image-url", "binary", "text", "zzz"]),
                        "url": texts,
                        "media_type": st.just("image/png"),
                        "data": objects({"$bytes": texts}),
                        "content": texts,
                    }
                ),
                max_size=3,
            ),
            "tool_name": texts,
            "tool_call_id": call_ids,
            "args": values | texts,
            "timestamp": times,
            "outcome": st.sampled_from(["success", "failed"]),
        }
    ),
)
pydantic_ai_messages = with_name(
    "kind",
    st.sampled_from(["request", "response"]),
    objects({"timestamp": times, "entry_id": source_ids, "parent_id": source_ids, "instructions": texts}),
).flatmap(lambda message: with_name("parts", st.lists(pydantic_ai_parts, max_size=3), st.just(message)))
langchain_calls = st.lists(
    objects({"name": texts, "args": st.dictionaries(texts, values, max_size=2), "id": call_ids, "type": texts}),
    max_size=3,
)
langchain_parts = st.lists(
    objects(
        {
            "type": st.sampled_from(["text", "image_url", "thinking", "tool_use", "input_audio"]),
            "text": texts,
            "image_url": objects({"url": texts}),
            "thinking": texts,
        }
    )
    | texts,
    max_size=3,
)
langchain_data = {
    "content": langchain_parts | texts,
    "additional_kwargs": st.dictionaries(texts, values, max_size=1),
    "response_metadata": st.dictionaries(texts, values, max_size=1),
    "type": st.sampled_from(["human", "ai", "tool"]),
    "name": texts,
    "id": source_ids,
    "role": st.sampled_from(["user", "assistant", "critic"]),
    "tool_calls": langchain_calls,
    "invalid_tool_calls": langchain_calls,
    "usage_metadata": values,
    "tool_call_id": call_ids,
    "artifact": values,
    "status": st.sampled_from(["success", "error"]),
}
langchain_messages = st.builds(
    lambda kind, data, other: {**other, "type": kind, "data": data},
    st.sampled_from(
        [
            *("human", "ai", "ai", "tool", "system", "chat", "function", "remove", "zzz"),
            *("AIMessageChunk", "ToolMessageChunk", "MessageChunk"),
        ]
    ),
    objects(langchain_data),
    st.dictionaries(st.sampled_from(["typed", "x"]), values, max_size=1),
)
google_adk_parts = objects(
    {
        "text": texts,
        "thought": st.booleans(),
        "function_call": objects({"id": call_ids, "name": texts, "args": objects({})}),
        "function_response": objects({"id": call_ids, "name": texts, "response": objects({"error": values})}),
        "inline_data": objects({"data": objects({"$bytes": texts}), "mime_type": st.just("image/png")}),
    }
)
google_adk_events = with_name(
    "author",
    st.sampled_from(["user", "agent", ""]),
    objects({"timestamp": st.floats(0, 1e10), "id": source_ids, "actions": objects({"state_delta": objects({})})}),
).flatmap(
    lambda event: st.builds(
        lambda content: {**event, "invocation_id": "i", **content},
        st.fixed_dictionaries(
            {},
            optional={
                "content": st.builds(
                    lambda parts, role: {"parts": parts, "role": role},
                    st.lists(google_adk_parts, max_size=3) | st.none(),
                    texts,
                )
            },
        ),
    )
)
FORMATS = {
    "openhands-v0": v0_records,
    "openhands-v1": v1_records,
    "openai-chat": chat_records,
    "openai-responses": response_items,
    "langchain": langchain_messages,
    "swe-agent": swe_agent_records,
    "claude-code": claude_records,
    "codex": codex_records,
    "pydantic-ai": pydantic_ai_messages,
    "google-adk": google_adk_events,
}


def text(records):
    """Compared as text, 1 and 1.0 and true are three things, as they are in JSON, and keys have an order."""
    return json.dumps(records)


def stored(events):
    """The events as they come back out of a store."""
    for event in events:
        encoded = codec.encode(event)
        yield codec.decode(encoded.kind, encoded.schema, encoded.body, event.id)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_records_come_back_as_they_were(format, data):
    """Decoding gives them the ids that count up from 0, changes no record, and does the same each time."""
    before = text(data.draw(st.lists(FORMATS[format], max_size=6)))
    records = json.loads(before)
    events = list(decode(records, format))
    assert text(records) == before
    assert list(decode(records, format)) == events or "nan" in repr(events)
    assert [event.id for event in events] == list(range(len(events)))
    assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
    assert all(event.origin.format == format for event in events)
    assert text(list(encode(stored(events), format))) == before


@given(st.lists(v0_records, max_size=6))
def test_v0_records_taken_as_history_come_back_too(records):
    events = decode(records, "openhands-v0", as_history=True)
    assert text(list(encode(stored(events), "openhands-v0"))) == text(records)


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
def test_anything_that_is_no_event_is_a_finding_and_the_rest_is_read(format, data):
    good = data.draw(st.lists(FORMATS[format], max_size=3))
    bad = data.draw(st.lists(values.filter(lambda value: not isinstance(value, dict)), min_size=1, max_size=3))
    findings = []
    events = list(decode([*bad, *good], format, findings=findings.append))
    found = [str(finding).split(":")[0] for finding in findings]
    assert found[: len(bad)] == [f"record {n}" for n in range(len(bad))]
    assert f"record {len(bad) - 1}" not in found[len(bad) :]
    assert text(list(encode(events, format))) == text(good)


@pytest.mark.parametrize("format", [name for name in FORMATS if format_named(name).live])
@examples(60)
@given(data=st.data())
def test_records_that_are_appended_one_by_one_come_back_as_they_were(format, data):
    """Decoders begin anew at any record, and events of ours come in between."""
    records = json.loads(text(data.draw(st.lists(FORMATS[format], max_size=8))))
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        for record in records:
            history.append_records([record], format=format)
            match data.draw(st.sampled_from(["go on", "restart", "add", "go on"])):
                case "restart":
                    del histories._recording
                case "add":
                    history.append(Annotation(name="ours"))
        events = list(history.events()) if records else []
        encoder = Encoder(format)
        back = [record for event in events if event.origin for record in encoder.records(event)]
        assert text([*back, *encoder.end()]) == text(records)
        assert all(event.cause is None or 0 <= event.cause < event.id for event in events)
