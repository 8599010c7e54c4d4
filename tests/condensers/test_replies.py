"""What a model answers: read from litellm's response, checked, and counted."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from foldlog.condensers import InvalidCondenser, ModelCallFailed, ToolCall
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.models import deadline
from foldlog.condensers.models.deadline import abandoned_after
from foldlog.condensers.models.replies import ask, check_reply, read_json, reply_of, request_for
from foldlog.condensers.reports import (
    ASK_AGAIN_AT,
    CONDENSER_METADATA_KEY,
    Usage,
    annotation,
    ask_again_in,
    cost_something,
    model_of,
)
from foldlog.eventstore import Annotation, CondensationAction
from tests.condensers.scripted import said


def response(content="hello", *, model="m-2", usage=None, cost=0.5, hidden=None, **message_fields):
    """Return a response as litellm gives it."""
    counts = {"prompt_tokens": 7, "completion_tokens": 3} if usage is None else usage
    fields = {"content": content, **message_fields}
    choice = SimpleNamespace(message=fields, finish_reason="stop")
    return SimpleNamespace(
        choices=[] if content is None else [choice],
        usage=SimpleNamespace(model_dump=lambda: counts),
        model=model,
        id="r1",
        _hidden_params={"response_cost": cost},
    )


def read(given):
    return reply_of(given, "m-1", 2.0, lambda text: text.replace("secret", "***"))


def test_parts_of_a_reply_are_one_text():
    parts = [
        {"type": "text", "text": "a secret "},
        "?",
        {"type": "x"},
        {"type": "text", "text": "b"},
    ]
    reply = read(response(parts))
    assert (reply.text, reply.model, reply.response_id) == ("a *** b", "m-2", "r1")
    assert (reply.finish_reason, reply.latency_s, reply.cost) == ("stop", 2.0, 0.5)
    assert dict(reply.usage) == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def test_reply_without_what_it_should_have():
    reply = read(response(None, model=None, usage={}))
    assert (reply.text, reply.model, reply.finish_reason) == (None, "m-1", None)
    assert (dict(reply.usage), reply.cost) == ({}, None)
    assert read(response(7)).text is None
    nameless = response()
    nameless.id = None
    assert read(nameless).response_id is None
    calls = [
        SimpleNamespace(id="k", function=SimpleNamespace(name=None, arguments=None)),
        SimpleNamespace(id="l", function=SimpleNamespace(name="run", arguments='"secret"')),
    ]
    assert read(response("", tool_calls=calls)).tool_calls == (
        ToolCall("", "", "k"),
        ToolCall("run", '"***"', "l"),
    )


@pytest.mark.parametrize(
    "fields", [{"refusal": "no"}, {"provider_specific_fields": {"refusal": "no"}}]
)
def test_refusal_is_a_filtered_reply(fields):
    assert read(response(**fields)).finish_reason == "content_filter"
    assert read(response(provider_specific_fields=None)).finish_reason == "stop"


def test_request_for_a_tool_or_none():
    tools = [{"type": "function"}]
    assert request_for([{"role": "user"}], tools, "run", None) == {
        "messages": [{"role": "user"}],
        "tools": tools,
        "_skip_mcp_handler": True,
        "tool_choice": {"type": "function", "function": {"name": "run"}},
    }
    assert request_for([], tools, "none", None)["tool_choice"] == "none"
    assert request_for([], (), None, {"type": "object"}) == {
        "messages": [],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": {"type": "object"}},
        },
    }
    named = request_for([], (), None, {"title": "t"})["response_format"]["json_schema"]
    assert named["name"] == "t"


@pytest.mark.parametrize(
    "reply, failure, problem, has_partial",
    [
        (said("x" * 1_000_001), "bad_reply", "1,000,001 characters, which is too long", False),
        (said("so", finish_reason="length"), "bad_reply", "was cut off at the model's", True),
        (
            said("x" * 999_990, tool_calls=(ToolCall("t", 11 * "y"),)),
            "bad_reply",
            "1,000,001 characters",
            False,
        ),
        (said(" ", finish_reason="length"), "bad_reply", "was cut off at the model's", False),
        (said("no", finish_reason="content_filter"), "refused", "a content filter", False),
        (said(" "), "bad_reply", "the reply has no text", False),
        (said(None), "bad_reply", "the reply has no text", False),
        (
            said(None, finish_reason="length", tool_calls=(ToolCall("t", "{"),)),
            "bad_reply",
            "was cut off",
            True,
        ),
    ],
)
def test_unusable_replies(reply, failure, problem, has_partial):
    with pytest.raises(ModelCallFailed, match=problem) as raised:
        check_reply(reply)
    assert raised.value.failure == failure
    assert (raised.value.partial is reply) is has_partial


def test_longest_reply_and_a_reply_of_calls_are_usable():
    longest = said("x" * 999_990, tool_calls=(ToolCall("t", 10 * "y"),))
    assert check_reply(longest) is longest
    only_calls = said(None, tool_calls=(ToolCall("t", "{}"),))
    assert check_reply(only_calls) is only_calls


def test_without_a_model_nobody_can_be_asked():
    with pytest.raises(InvalidCondenser, match="the condenser names no model; give the condenser"):
        ask(None, [], {})


def test_json_of_another_shape():
    assert read_json(said("x"), '{"a": 7}', dict[str, int], "it") == {"a": 7}
    for text in ('{"a": "b"}', "{", "", "[" * 100_000):
        with pytest.raises(ModelCallFailed, match="it cannot be used: ") as raised:
            read_json(said("x"), text, dict[str, int], "it")
        assert raised.value.failure == "bad_reply"


def test_act_that_raises_a_timeout_of_its_own():
    def act():
        raise TimeoutError("the server's own")

    with pytest.raises(TimeoutError, match="the server's own"):
        abandoned_after(60, act)
    assert abandoned_after(60, lambda: 7) == 7


def test_outcome_that_arrives_at_the_deadline_is_used(monkeypatch):
    is_over = threading.Event()

    class LateOutcome(Future):
        """Arrives when ``abandoned_after`` has waited, and asks whether it is there."""

        def done(self):
            is_over.set()
            self.exception()  # waits for the outcome
            return super().done()

    def act():
        is_over.wait()
        return 7

    monkeypatch.setattr(deadline, "Future", LateOutcome)
    assert abandoned_after(0, act) == 7


def test_sums_over_calls():
    spent = Usage.of(
        [
            {"metrics": {"usage": {"a": 1}, "cost": 0.5, "latency_s": 2.0, "attempts": 3}},
            {"metrics": {}},
            {"metrics": {"usage": None, "latency_s": None, "cost": 0.25}},
            {"rule": {}},
        ]
    )
    assert spent.metrics() == {"usage": {"a": 1}, "cost": 0.75, "latency_s": 2.0, "attempts": 5}
    assert Usage.of([{"metrics": {"cost": None}}, {"metrics": {"cost": 1.0}}]).cost is None


def test_what_a_report_says_of_its_call():
    assert cost_something({"metrics": {"usage": {"a": 1}}})
    assert cost_something({"metrics": {"cost": 0.5}})
    assert cost_something({"metrics": {"cost": None}}), "the price is unknown"
    assert not cost_something({"metrics": {}})
    assert not cost_something({"rule": {}})
    assert model_of({"response": {"model": "a"}, "model": "b"}) == "a"
    assert model_of({"model": "b"}) == "b"
    assert model_of({}) == model_of({"response": {"model": None}}) == ""


def test_version_at_which_a_model_is_asked_again():
    assert ask_again_in(annotation([{ASK_AGAIN_AT: 7}, {ASK_AGAIN_AT: 9}, {}])) == 9
    assert ask_again_in(annotation([{ASK_AGAIN_AT: True}, {ASK_AGAIN_AT: "9"}])) is None
    assert ask_again_in(Annotation(name=CONDENSER_METADATA_KEY, data=["text"])) is None
    assert ask_again_in(Annotation(name="other", data=[{ASK_AGAIN_AT: 7}])) is None
    metadata = {CONDENSER_METADATA_KEY: [{ASK_AGAIN_AT: 7}]}
    assert ask_again_in(CondensationAction(forgotten_event_ids=(0,), metadata=metadata)) == 7


def test_error_of_a_model_is_an_error_of_the_step():
    assert NoCondensationAvailable("x", ({"failure": "timeout"},)).model_failed
    assert not NoCondensationAvailable("x", ({"rule": {}},)).model_failed
