"""Traces and metrics, by the real SDK with exporters in memory: from an event to its trace and
back.
"""

import asyncio
import json
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import foldlog
import foldlog.aio
from foldlog import KeyRing, Message, VersionConflict, otel
from foldlog.condensers import LLM, LLMConfig
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.errors import IdempotencyConflict
from foldlog.eventstore import Origin, open_store
from foldlog.formats.otlp_genai.spans import message_of
from tests.condensers.openai_server import OpenAIServer, Text, ToolCall
from tests.condensers.scripted import Scripted, failed
from tests.said import by_turns, replied, said

SECRET = "hunter2"
USER = {"role": "user", "content": "go on"}
PAGE = (Path(__file__).parents[2] / "docs/OBSERVING.md").read_text()


class Telemetry:
    def __init__(self, **how):
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        otel.instrument(self.provider, MeterProvider([self._reader]), **how)

    def spans(self, name=""):
        return [span for span in self._spans.get_finished_spans() if span.name.startswith(name)]

    def metrics(self):
        """Return the sum of each metric, by name and by name and attributes."""
        data = self._reader.get_metrics_data()
        sums = {}
        if data:
            for metric in data.resource_metrics[0].scope_metrics[0].metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    if value is None:
                        value = point.sum
                    sums[metric.name] = sums.get(metric.name, 0) + value
                    for attribute in point.attributes.values():
                        sums[metric.name, attribute] = sums.get((metric.name, attribute), 0) + value
        return sums

    def everything(self):
        return "".join(span.to_json() for span in self.spans()) + repr(self.metrics())


@pytest.fixture
def telemetry():
    yield Telemetry()
    otel.uninstrument()


def parent_of(event):
    _, trace_id, span_id, _ = event.meta["traceparent"].split("-")
    return int(trace_id, 16), int(span_id, 16)


@pytest.mark.parametrize("keys", [None, KeyRing("00" * 32)], ids=["plain", "encrypted"])
def test_an_event_leads_to_its_trace_and_back(telemetry, tmp_path, keys):
    with foldlog.open(tmp_path / "s.db", keys=keys) as histories:
        with telemetry.provider.get_tracer("app").start_as_current_span("request") as request:
            histories["c1"].append([said(SECRET), said(SECRET)])
        histories["c1"].append(said(SECRET), documents={"state": {"k": SECRET}})
    with foldlog.open(tmp_path / "s.db", keys=keys) as histories:
        events = list(histories["c1"].events())
    appends = telemetry.spans("foldlog.append")
    places = {(span.context.trace_id, span.context.span_id): span for span in appends}
    assert len(telemetry.spans("foldlog.open")) == 2
    for event in events:
        span = places[parent_of(event)]
        assert (
            span.attributes["foldlog.event.first"]
            <= event.id
            <= span.attributes["foldlog.event.last"]
        )
        assert span.attributes["foldlog.conversation"] == "c1"
    assert appends[0].parent.span_id == request.get_span_context().span_id
    metrics = telemetry.metrics()
    assert (metrics["foldlog.appends"], metrics["foldlog.append.events"]) == (2, 4)
    assert metrics["foldlog.append.bytes"] > 4 * len(SECRET)
    assert SECRET not in telemetry.everything()


def test_what_was_not_appended_is_not_counted(telemetry, tmp_path):
    imported = [
        Message(source="user", content=SECRET, origin=Origin(format="app", id=f"m{number}"))
        for number in range(3)
    ]
    counted = "foldlog.append.events", "foldlog.append.bytes"
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.append("c1", imported[:2], expected_version=0, dedupe="origin")
        store.append("c2", said(SECRET), expected_version=0, idempotency_key="k")
        first = telemetry.metrics()
        store.append("c1", imported[:2], expected_version=2, dedupe="origin")
        store.append("c2", said(SECRET), expected_version=0, idempotency_key="k")
        again = telemetry.metrics()
        store.append("c1", imported, expected_version=2, dedupe="origin")
        more = telemetry.metrics()
    assert [again[name] for name in counted] == [first[name] for name in counted]
    assert more["foldlog.append.events"] == first["foldlog.append.events"] + 1
    added = more["foldlog.append.bytes"] - first["foldlog.append.bytes"]
    assert len(SECRET) < added < first["foldlog.append.bytes"] / 2
    assert more["foldlog.appends"] == first["foldlog.appends"] + 3


@pytest.mark.parametrize("database", ["sqlite", "encrypted", "postgresql"])
def test_repeated_append_is_recognized_whoever_traces(request, tmp_path, database):
    keys = KeyRing("00" * 32) if database == "encrypted" else None
    url = (
        request.getfixturevalue("postgres_url")() if database == "postgresql" else tmp_path / "s.db"
    )
    own = replied("with a meta", meta={"mine": 1})

    def opened(traced):
        otel.uninstrument()
        if traced:
            Telemetry()
        return foldlog.open(url, keys=keys)

    def append(histories, *events):
        return histories[name].append(events, idempotency_key="k", documents={"d": 1})

    try:
        for first_traced, then_traced in product((False, True), repeat=2):
            name = f"{first_traced} {then_traced}"
            with opened(first_traced) as histories:
                first = append(histories, said(SECRET), said("more"), own)
                assert [("traceparent" in recorded.event.meta) for recorded in first] == [
                    first_traced
                ] * 4
            with opened(then_traced) as histories:
                assert append(histories, said(SECRET), said("more"), own) == first
                with pytest.raises(IdempotencyConflict):
                    append(histories, said(SECRET), said("more"), said("other"))
                for event_id in (0, 2):
                    histories[name].redact(event_id, reason="asked to")
                again = append(histories, said(SECRET), said("more"), own)
                assert again[1] == first[1]
                assert [recorded.position for recorded in again] == [
                    recorded.position for recorded in first
                ]
                assert [recorded.event.redacted is None for recorded in again] == [
                    False,
                    True,
                    False,
                    True,
                ]
                for other in (
                    (said("longer than it"), own),
                    (said("more"), said("other")),
                ):
                    with pytest.raises(IdempotencyConflict):
                        append(histories, said(SECRET), *other)
    finally:
        otel.uninstrument()


def test_records_of_imports_stay_as_they_are(telemetry, tmp_path):
    records = [{"role": "user", "content": "hi"}]
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c1"].append_records(records, format="openai-chat", dedupe="origin")
        histories.store.ingest("c2", [said(SECRET)])
        assert [event.meta for name in histories for event in histories[name].events()] == [{}, {}]
        assert list(histories["c1"].export("openai-chat")) == records


def test_failed_append_has_no_message_in_span(telemetry, history):
    with pytest.raises(VersionConflict):
        history.append(said(SECRET), expected_version=7)
    [span] = telemetry.spans("foldlog.append")
    assert (span.status.status_code, span.attributes["error.type"]) == (
        trace.StatusCode.ERROR,
        "VersionConflict",
    )
    assert telemetry.metrics()["foldlog.conflicts"] == 1
    assert "foldlog.appends" not in telemetry.metrics()


def test_async_append_has_trace_of_its_caller(telemetry, tmp_path):
    async def run():
        async with foldlog.aio.open(tmp_path / "s.db") as histories:

            async def append_in_request(number):
                with telemetry.provider.get_tracer("app").start_as_current_span(
                    f"request {number}"
                ) as request:
                    [recorded] = await histories["c1"].append([said(SECRET)])
                    await histories["c1"].prepare()
                assert parent_of(recorded.event)[0] == request.get_span_context().trace_id

            await asyncio.gather(*map(append_in_request, range(20)))

    asyncio.run(run())
    spans = {span.context.span_id: span for span in telemetry.spans()}
    assert len(telemetry.spans("foldlog.append")) == len(telemetry.spans("foldlog.prepare")) == 20
    assert not any("gen_ai.conversation.compacted" in span.attributes for span in telemetry.spans())
    assert all(
        spans[span.parent.span_id].name.startswith("request")
        for span in telemetry.spans("foldlog.append")
    )


def condense(path, model):
    """Condense a history with the model, and return its last event."""
    condenser = LLMSummarizingCondenser(model, max_size=10, keep_first=1)
    with foldlog.open(path, condenser=condenser) as histories:
        history = histories["c1"]
        history.append(by_turns(11, SECRET))
        history.prepare()
        return list(history.events())[-1]


def condense_with_client(path):
    """Condense a history with a model that is asked over HTTP, and return its last event."""
    with OpenAIServer(Text("a summary")) as server:
        config = LLMConfig(
            model="openai/gpt-4o-mini", base_url=server.url, api_key="sk-secret", retries=0
        )
        return condense(path, LLM(config))


def test_condensation_span_contains_calls_of_its_model(telemetry, tmp_path):
    action = condense_with_client(tmp_path / "s.db")
    [call] = telemetry.spans("chat")
    [prepare] = telemetry.spans("foldlog.prepare")
    steps = {span.context.span_id: span for span in telemetry.spans("foldlog.condense")}
    assert [span.attributes["foldlog.condensed"] for span in steps.values()] == [True, False]
    assert (call.name, call.kind) == ("chat openai/gpt-4o-mini", trace.SpanKind.CLIENT)
    assert steps[call.parent.span_id].parent.span_id == prepare.context.span_id
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["gen_ai.usage.input_tokens"] > 0
    assert parent_of(action)[0] == prepare.context.trace_id
    assert prepare.attributes["gen_ai.conversation.compacted"] is True


def test_a_store_that_was_opened_before_sends_its_async_appends(tmp_path):
    async def append_after_the_end():
        async with foldlog.aio.open(tmp_path / "store.db") as histories:
            otel.uninstrument()
            appends = (histories[f"c{number}"].append(said("hi")) for number in range(40))
            return await asyncio.gather(*appends)

    telemetry = Telemetry()
    try:
        appended = asyncio.run(append_after_the_end())
    finally:
        otel.uninstrument()
    assert all("traceparent" in recorded.event.meta for (recorded,) in appended)
    assert telemetry.metrics()["foldlog.appends"] == len(telemetry.spans("foldlog.append")) == 40


def test_telemetry_has_the_prompts_only_if_asked_and_never_the_key(tmp_path):
    for contents in (False, True):
        telemetry = Telemetry(contents=contents)
        try:
            condense_with_client(tmp_path / f"{contents}.db")
        finally:
            otel.uninstrument()
        [call] = telemetry.spans("chat")
        assert (SECRET in call.to_json()) == contents
        assert "sk-secret" not in telemetry.everything()
    sent = json.loads(call.attributes["gen_ai.input.messages"])
    assert sent
    assert all({*message} >= {"role", "parts"} for message in sent)


def output_of(answer):
    """Return the output message of a call that a model answers."""
    telemetry = Telemetry(contents=True)
    try:
        with OpenAIServer(answer) as server:
            server.llm("openai/gpt-4o-mini", retries=0).complete([USER])
    finally:
        otel.uninstrument()
    [call] = telemetry.spans("chat")
    [message] = json.loads(call.attributes["gen_ai.output.messages"])
    return message


def test_output_of_a_model_call_has_its_tool_calls():
    arguments = '{"user_context": "tea'  # malformed, as the model wrote it
    call = {"type": "tool_call", "id": "call_1", "name": "f", "arguments": arguments}
    assert output_of(ToolCall("f", arguments)) == {
        "role": "assistant",
        "parts": [call],
        "finish_reason": "tool_call",
    }
    spoken = output_of(ToolCall("f", arguments, content="wait"))
    assert spoken["parts"] == [{"type": "text", "content": "wait"}, call]
    # An input message with the same call has the same part.
    function = {"name": "f", "arguments": arguments}
    sent = {"role": "assistant", "tool_calls": [{"id": "call_1", "function": function}]}
    assert message_of(sent)["parts"] == [call]


def test_output_of_a_model_call_has_its_text_and_finish_reason():
    assert output_of(Text("[{}] is short")) == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "[{}] is short"}],
        "finish_reason": "stop",
    }


def test_metrics_count_a_condensation_and_its_tokens(telemetry, tmp_path):
    condense_with_client(tmp_path / "s.db")
    [call] = telemetry.spans("chat")
    metrics = telemetry.metrics()
    assert (
        metrics["foldlog.condensations", "events"] == metrics["foldlog.condensations", "made"] == 1
    )
    assert (
        metrics["gen_ai.client.token.usage", "input"]
        == call.attributes["gen_ai.usage.input_tokens"]
    )
    assert metrics["foldlog.view.events"] < 11
    assert metrics["foldlog.view.tokens"] > 0
    assert "foldlog.tokens.saved" in metrics


def test_a_model_that_fails_is_counted(telemetry, tmp_path):
    condense(tmp_path / "s.db", Scripted(failed("timeout", SECRET)))
    assert telemetry.metrics()["foldlog.condensations", "failed"] == 1
    assert SECRET not in telemetry.everything()


CALLS = """
import sys
import foldlog
from foldlog import Message
with foldlog.open("memory:") as histories:
    history = histories["c"]
    for _ in range(5):
        history.append(Message(source="user", content="hi"))
    called = []
    sys.setprofile(lambda frame, event, arg: called.append((frame.f_code.co_filename, event)))
    history.append(Message(source="user", content="hi"))
    sys.setprofile(None)
calls = [file for file, event in called if event in ("call", "c_call")]
assert len(calls) > 40
assert not [file for file in calls if file.endswith(("/telemetry.py", "otel.py"))], calls
assert "opentelemetry" not in sys.modules
"""


def test_unobserved_append_calls_no_telemetry():
    process = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_the_page_lists_the_spans_and_metrics(telemetry, tmp_path):
    with foldlog.open(tmp_path / "s.db") as histories:
        histories["c1"].append([said(SECRET) for _ in range(3)])
        histories["c1"].prepare()
    spans = {span.name for span in telemetry.spans()}
    sums = {name for name in telemetry.metrics() if isinstance(name, str)}
    assert spans == {"foldlog.open", "foldlog.append", "foldlog.prepare", "foldlog.condense"}
    assert {"foldlog.appends", "foldlog.append.bytes", "foldlog.view.tokens"} <= sums
    listed = set(
        re.findall(r"`((?:foldlog|gen_ai)\.[\w.]+)`", PAGE.partition("## OpenTelemetry")[2])
    )
    assert spans | sums | otel._COUNTERS.keys() | otel._HISTOGRAMS.keys() <= listed
