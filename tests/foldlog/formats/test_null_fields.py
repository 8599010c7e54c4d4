"""A field that is null is read like a missing field: some programs write all names of a value, with
null for those that they do not use.
"""

from __future__ import annotations

from typing import Any

import pytest

import foldlog
from foldlog.eventstore import Event, Observation
from foldlog.formats import decode
from foldlog.formats.openhands_v1 import metrics_in
from foldlog.formats.otlp_genai.exports import _messages
from foldlog.formats.record import reports_error
from tests.foldlog.formats.reading import GOLDEN_READS
from tests.foldlog.records import read_lines

NAMES = [
    ("cursor", "args", "input"),
    ("cursor", "toolName", "name"),
    ("cursor", "result", "content"),
    ("anthropic-messages", "modelId", "id"),
    ("inspect-eval", "own_usage", "model_usage"),
    ("strands", "text", "json"),
    ("atif", "model_name", "step_id"),
]
"""The names of a value in a format: the program's other name, and a name that golden rows have. A
step of ATIF without a model has the model of its agent.
"""


def with_nulls(value: Any, name: str, present: str) -> Any:
    """Return JSON in which each object that has ``present`` also has ``name``, which is null."""
    if isinstance(value, list):
        return [with_nulls(item, name, present) for item in value]
    if not isinstance(value, dict):
        return value
    added = {name: None} if present in value and name not in value else {}
    return added | {key: with_nulls(item, name, present) for key, item in value.items()}


def essentials(event: Event) -> tuple[Any, ...]:
    """Return what a model or a reader of figures sees of an event."""
    names = ("content", "arguments", "thought", "thinking", "tool", "call_id", "is_error")
    usage = [event.meta.get(name) for name in ("model", "usage", "cost")]
    return type(event), event.shown, [getattr(event, name, None) for name in names], usage


@pytest.mark.parametrize("format, name, present", NAMES)
def test_a_null_under_the_other_name_changes_no_event(format: str, name: str, present: str) -> None:
    changed = 0
    for row in read_lines(GOLDEN_READS / f"{format}.jsonl"):
        records = with_nulls(row["records"], name, present)
        if records == row["records"]:
            continue
        changed += 1
        expected = [*map(essentials, decode(row["records"], format))]
        assert [*map(essentials, decode(records, format))] == expected
    assert changed


def test_nulls_under_the_names_of_another_sdk_change_no_block() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "no road", "is_error": True}
    records: list[Any] = [
        {"role": "assistant", "message": {"content": [call]}},
        {"role": "user", "message": {"content": [result]}},
    ]
    expected = [*map(essentials, decode(records, "cursor"))]
    for name, present in (
        ("toolCallId", "id"),
        ("toolCallId", "tool_use_id"),
        ("isError", "is_error"),
        ("role", "content"),
    ):
        changed = with_nulls(records, name, present)
        assert [*map(essentials, decode(changed, "cursor"))] == expected
    assert expected[1][2][-2:] == ["c", True]


def result_of_tool(format: str, response: Any) -> Observation:
    """Return the result of a tool with this response, as a record of the format has it."""
    gemini_part = {"functionResponse": {"id": "c", "name": "f", "response": response}}
    adk_part = {"function_response": {"id": "c", "name": "f", "response": response}}
    line = {"uuid": "b", "parentUuid": "a", "sessionId": "q", "type": "tool_result"}
    call = {"functionCall": {"id": "c", "name": "f", "args": {}}}
    records: dict[str, list[Any]] = {
        "google-adk": [
            {"content": {"parts": [adk_part], "role": "user"}, "invocation_id": "i", "author": "a"}
        ],
        "gemini-cli": [
            {"id": "a", "type": "gemini", "content": [call]},
            {"id": "b", "type": "user", "content": [gemini_part]},
        ],
        "qwen-code": [
            {**line, "uuid": "a", "parentUuid": None, "type": "assistant"}
            | {"message": {"role": "model", "parts": [call]}},
            {**line, "message": {"role": "user", "parts": [gemini_part]}},
        ],
    }
    results = [event for event in decode(records[format], format) if isinstance(event, Observation)]
    assert len(results) == 1
    return results[0]


@pytest.mark.parametrize("format", ["google-adk", "gemini-cli", "qwen-code"])
@pytest.mark.parametrize(
    "response, is_error",
    [
        ({"status": "ok", "error": None}, False),
        ({"status": "ok", "error": ""}, False),
        ({"status": "ok", "error": False}, False),
        ({"error": None}, False),
        ({"output": "9 km"}, False),
        ({"error": "no such road"}, True),
        ({"error": ""}, True),
        ({"status": "bad", "error": {"code": 7}}, True),
    ],
)
def test_only_an_error_in_a_response_is_an_error(
    format: str, response: Any, is_error: bool
) -> None:
    assert result_of_tool(format, response).is_error is is_error
    assert reports_error(response) is is_error


def test_metrics_beside_a_null_are_read() -> None:
    report = {"agent": {"model_name": "m"}}
    stats = {"usage_to_metrics": None, "service_to_metrics": report}
    assert metrics_in({"stats": stats}) == report


def test_cost_in_the_usage_counts_beside_a_null() -> None:
    (reply,) = foldlog.from_openai(
        {
            "choices": [{"message": {"role": "assistant", "content": "hi"}}],
            "cost": None,
            "usage": {"prompt_tokens": 3, "cost": 0.5},
        }
    )
    assert reply.meta["cost"] == 0.5


def test_messages_beside_a_null_are_read() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert _messages({"messages": None, "choices": messages}, "user") == messages
