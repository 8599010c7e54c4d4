"""Exports of Langfuse and Phoenix are read as spans of the format ``otlp-genai``."""

import json

import pytest

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
