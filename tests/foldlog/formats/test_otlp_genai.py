"""Exports of Langfuse and Phoenix are read as spans of the format ``otlp-genai``."""

import json

import pytest

from foldlog.formats.otlp_genai.exports import attributes_of, request_with
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import write_lines
from tests.golden.rows import rows

NAME = "otlp-genai"


LANGFUSE = rows("spans.json", "langfuse")
PHOENIX = rows("spans.json", "phoenix")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(LANGFUSE, indent=1),
        json.dumps({"data": LANGFUSE, "meta": {"page": 1}}),
        "\n".join(map(json.dumps, LANGFUSE)),
        json.dumps({"id": "t", "projectId": "p", "sessionId": "s-1", "observations": LANGFUSE}),
        json.dumps({"data": PHOENIX, "next_cursor": None}),
        json.dumps(PHOENIX[0]) + "\n",
    ],
)
def test_exports_of_langfuse_and_phoenix_are_spans(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (history,) = histories_at(tmp_path / "a.json")
    assert (history.format, history.name) == (NAME, "s-1" if "s-1" in text else "t")
    question, call, result, reply, *_ = history.events
    assert [event.content for event in (question, result, reply)] == ["far?", "9 km", "9 km"]
    assert (call.tool, call.call_id, result.cause) == ("measure", "k", 1)
    assert (reply.meta["model"], reply.meta["cost"]) == ("m-2", 0.5)
    assert reply.meta["usage"]["prompt_tokens"] + reply.meta["usage"]["completion_tokens"] == 10
    assert (history.findings, question.timestamp.isoformat()) == ([], "2026-03-01T10:00:00+00:00")
    (again,) = histories_at(write_lines(tmp_path / "traces.jsonl", history.records))
    assert again.records == history.records


@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_may_be_longer_than_a_record(indent, tmp_path, monkeypatch):
    monkeypatch.setattr("foldlog.formats.files.readers.RECORD_SIZE_MAX", 100)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(LANGFUSE, indent=indent))
    (history,) = histories_at(path)
    assert history.events[0].content == "far?"
    assert history.findings == []


def test_key_of_an_attribute_with_many_names_makes_no_deep_message(tmp_path):
    attributes = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "far?",
        f"gen_ai.prompt.0.tool_calls.0{'.a.b' * 5_000}": "deep",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "9 km",
    }
    span = {"traceId": "t", "spanId": "s", "attributes": attributes_of(attributes.items())}
    (history,) = histories_at(write_lines(tmp_path / "a.jsonl", [request_with(span)]))
    assert [event.content for event in history.events] == ["far?", "9 km"]
    (finding,) = history.findings
    assert "'tool_calls.0.a.b." in finding
    assert len(finding) < 300
