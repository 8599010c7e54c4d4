"""Every strategy that asks a model, through the real litellm and on a store: no bad reply costs memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import foldlog.condensers
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.reports import reports_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Message,
    Observation,
    SystemMessage,
    open_store,
)
from foldlog.projections import View, Views
from tests.condensers.openai_server import CutOff, Failure, OpenAIServer, Raw, Text, ToolCall

STATE = {"user_context": "count", "completed_tasks": "counted to ten", "pending_tasks": "count on"}
GOOD = {
    "llm": Text("what happened, in short"),
    "structured": ToolCall("create_state_summary", STATE),
    "llm_attention": Text('{"ids": [3, 5]}'),
}
PROMPTS = {"llm": "summary", "structured": "structured", "llm_attention": "attention"}
BAD = {
    "not JSON": Raw(b"{"),
    "half a body": CutOff(Text("what happened")),
    "busy": Failure(429),
    "too long": Failure(400, "maximum context length is 10 tokens", "context_length_exceeded"),
}
"""Some of each kind: ``test_llm.py`` has every failure, ``test_summarizing.py`` and ``test_structured.py`` what each
does to a strategy.
"""


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        opened.append("c1", history(), expected_version=0)
        yield opened


def history(first: int = 2) -> list:
    events = [SystemMessage(content="be an agent"), Message(source="user", content="count")]
    for n in range(first, first + 12, 2):
        events.append(Action(tool="count", arguments={"to": n}, call_id=f"c{n}", response_id=f"r{n}"))
        events.append(Observation(tool="count", call_id=f"c{n}", content=f"counted to {n}"))
    return events


def handler(store, server: OpenAIServer, type: str, **settings) -> CondenseHandler:
    model = {"model": "openai/gpt-4o-mini", "base_url": server.url, "api_key": "k", "retry_wait_s": 0, "timeout_s": 60}
    condenser = condenser_from_config({"type": type, "max_size": 10, "llm_config": model | settings})
    views = Views(store)
    store.register(views)
    return CondenseHandler(store, views, condenser)


@pytest.mark.parametrize("type", GOOD)
def test_a_condensation_records_the_model_its_usage_cost_latency_and_the_prompts_hash(store, server, type):
    server.script(GOOD[type])
    made = handler(store, server, type).handle("c1").action
    text = (Path(foldlog.condensers.__file__).parent / "prompts" / f"{PROMPTS[type]}.txt").read_bytes()
    assert hashlib.sha256(text).hexdigest() in str(made.metadata)
    (report,) = reports_of(made)
    metrics = report["metrics"]
    assert metrics["usage"]["prompt_tokens"] == server.requests[0].tokens
    assert metrics["cost"] > 0
    assert metrics["latency_s"] > 0
    assert metrics["attempts"] == 1
    assert "gpt-4o-mini" in str(made.metadata)
    assert len(View.from_events(store.events("c1"))) < len(history())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("type", ["llm", "structured"])
def test_a_bad_reply_leaves_the_view_as_it_was_and_is_reported(store, server, type, bad):
    server.script(BAD[bad])
    before = View.from_events(store.events("c1"))
    view = handler(store, server, type, retries=0).handle("c1")
    assert isinstance(view, View)
    assert view.events == before.events
    *_, report = store.events("c1")
    reports = reports_of(report)
    assert all(report["failure"] for report in reports)
    assert len(reports) == len(server.requests) <= (4 if bad == "too long" else 1)
    assert not [event for event in store.events("c1") if isinstance(event, CondensationAction)]


@pytest.mark.parametrize("type", GOOD)
def test_neither_the_key_nor_the_prompt_is_in_the_store(store, server, type):
    server.script(GOOD[type])
    handler(store, server, type, api_key="sk-very-secret").handle("c1")
    stored = str([*store.events("c1")])
    assert "sk-very-secret" not in stored
    assert "keep the memory of an agent" not in stored


def test_a_model_that_cannot_call_tools_or_follow_a_schema_is_refused_when_the_condenser_is_built():
    model = {"model": "openai/a-private-model", "api_key": "k"}
    for type in ("structured", "llm_attention"):
        with pytest.raises(ValueError, match=r"condenser: the .* condenser needs a model that .*a-private-model"):
            condenser_from_config({"type": type, "llm_config": model})
        assert condenser_from_config(
            {"type": type, "llm_config": model | {"function_calling": True, "response_schema": True}}
        )


def test_a_view_that_is_larger_than_the_model_reaches_it_in_pieces_even_where_the_server_would_swallow_it(tmp_path):
    """Some servers cut a prompt that is too long without a word: then nobody would know what was not read."""
    with OpenAIServer(GOOD["llm"]) as server, open_store(f"sqlite:///{tmp_path}/h.db") as store:
        store.append("c1", [Message(source="user", content="word " * 500) for _ in range(40)], expected_version=0)
        model = {"model": "openai/gpt-4o-mini", "base_url": server.url, "api_key": "k", "max_input_tokens": 8_000}
        condenser = condenser_from_config({"type": "llm", "llm_config": model, "max_size": 20})
        result = CondenseHandler(store, Views(store), condenser).handle("c1")
        assert isinstance(result, foldlog.condensers.Condensation)
        assert len(server.requests) > 2
        read = "".join(request.body["messages"][-1]["content"] for request in server.requests)
        assert all(f"<EVENT id={event_id}>" in read for event_id in range(1, 31))
        llm = condenser.llm
        assert all(llm.count_tokens(request.body["messages"]) <= 8_000 for request in server.requests)
