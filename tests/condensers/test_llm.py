"""The real litellm, over HTTP, against a server on this machine."""

import copy
import json
import logging
import os
import re
import socket
import sys
import traceback

import pytest

from foldlog.condensers import (
    LLM,
    InvalidCondenser,
    LLMConfig,
    ModelCallFailed,
    TokensUnknown,
    ToolCall,
    Usage,
    condenser_from_config,
)
from foldlog.condensers.models import client
from foldlog.condensers.models.deadline import within_s
from foldlog.condensers.models.llm_config import SET_BY_FOLDLOG
from foldlog.condensers.models.replies import request_for
from tests.at_once import at_once
from tests.condensers.made import TOOLS
from tests.condensers.openai_server import (
    CutOff,
    Failure,
    Late,
    OpenAIServer,
    Raw,
    Text,
    ToolCall as Calling,
    Trickling,
    context_length_exceeded,
)
from tests.golden.rows import rows

KEY = "sk-a-secret-that-no-one-may-see"
QUESTION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What happened?"},
]
GARBLED = [
    b"{not json",
    b"",
    b"[]",
    b"null",
    b"{}",
    b'{"choices": []}',
    b'{"choices": [{}]}',
    b"<html>busy</html>",
]


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


def model_at(server, sleep=lambda seconds: None, **settings):
    config = {
        "model": "openai/gpt-4o-mini",
        "base_url": server.url,
        "api_key": KEY,
        "timeout_s": 60,
    } | settings
    return LLM(LLMConfig(**config), sleep=sleep)


def fallback_at(server):
    return {"model": "openai/gpt-4.1-mini", "base_url": server.url, "api_key": "another"}


def failure_of(llm, messages=QUESTION):
    with pytest.raises(ModelCallFailed) as caught:
        llm.complete(messages)
    return caught.value


def failure_at(server, *answers, **settings):
    """Return the failure of a call that the server answers in this way."""
    server.script(*answers)
    return failure_of(model_at(server, **settings))


def all_of(error):
    """Return every text in which a secret could be shown."""
    return "".join(traceback.format_exception(error)) + str(error.report)


def test_a_reply_has_usage_cost_and_latency(server):
    server.script(Text("A summary."))
    reply = model_at(server).complete(QUESTION)
    prompt_tokens = server.requests[0].tokens
    completion_tokens = reply.usage["completion_tokens"]
    assert (reply.text, reply.model) == ("A summary.", "gpt-4o-mini")
    assert reply.response_id == "chatcmpl-1"
    assert (reply.finish_reason, reply.attempts) == ("stop", 1)
    assert reply.usage["prompt_tokens"] == prompt_tokens
    assert reply.usage["total_tokens"] == prompt_tokens + completion_tokens
    assert reply.cost == pytest.approx(prompt_tokens * 0.15e-6 + completion_tokens * 0.6e-6)
    assert 0 < reply.latency_s < 60


def test_an_unknown_price_is_not_zero(server):
    assert model_at(server, model="openai/a-private-model").complete(QUESTION).cost is None


def test_a_request_has_only_the_configured_fields(server):
    model_at(server, temperature=0.2, max_output_tokens=77, extra={"user": "u1"}).complete(QUESTION)
    (request,) = server.requests
    sent = {"messages": QUESTION, "temperature": 0.2, "max_tokens": 77, "user": "u1"}
    assert request.body | sent == request.body
    assert not request.body.get("stream")
    assert "cache" not in str(request.body)
    assert not {"tools", "tool_choice", "response_format"} & request.body.keys()
    assert request.headers["Authorization"] == f"Bearer {KEY}"


def test_messages_are_left_as_they_were(server):
    image = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
    messages = [{"role": "user", "content": [image]}]
    before = copy.deepcopy(messages)
    model_at(server).complete(messages)
    assert messages == before


def test_a_forced_call_keeps_its_arguments(server):
    server.script(Calling("run", '{"a": 1'))
    reply = model_at(server).complete(QUESTION, tools=TOOLS, tool_choice="run")
    assert reply.tool_calls == (ToolCall("run", '{"a": 1', "call_1"),)
    (request,) = server.requests
    assert request.body["tool_choice"] == {"type": "function", "function": {"name": "run"}}
    assert request.body["tools"] == TOOLS


def test_a_json_schema_is_sent(server):
    schema = {"title": "ids", "type": "object", "properties": {"ids": {"type": "array"}}}
    server.script(Text('{"ids": [1]}'))
    assert model_at(server).complete(QUESTION, response_schema=schema).text == '{"ids": [1]}'
    assert server.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "ids", "schema": schema},
    }


FAILURES = [
    (Failure(400, "no such parameter"), "rejected"),
    (Failure(401, "bad key", "invalid_api_key"), "rejected"),
    (Failure(403), "rejected"),
    (Failure(404), "rejected"),
    (Failure(422), "rejected"),
    (Failure(400, "blocked", "content_policy_violation"), "refused"),
    (context_length_exceeded(10, 20), "context_window"),
    (Failure(400, "Input is too long for requested model."), "context_window"),
    (Failure(413, "no"), "context_window"),
    (
        Failure(429, "Request too large for it: Limit 30000, Requested 40000"),
        "context_window",
    ),
    (Failure(429, "slow down"), "rate_limited"),
    (Failure(500), "unavailable"),
    (Failure(502), "unavailable"),
    (Failure(503), "unavailable"),
    (Failure(504), "timeout"),
    (CutOff(Text("a summary " * 50)), "unavailable"),
    *((Raw(body), "bad_reply") for body in GARBLED),
]


def test_failures_have_names_and_permanent_ones_are_not_retried(server):
    for place, (answer, failure) in enumerate(FAILURES, 1):
        server.script(answer)
        may_pass = failure in ("rate_limited", "unavailable", "timeout", "bad_reply")
        error = failure_of(model_at(server, retries=0 if may_pass else 5))
        assert (error.failure, error.model) == (failure, "openai/gpt-4o-mini"), answer
        assert error.report["metrics"]["attempts"] == 1
        assert len(server.requests) == place


def test_a_late_answer_is_a_timeout(server):
    error = failure_at(server, Late(30, Text("too late")), retries=0, timeout_s=0.3)
    assert error.failure == "timeout"


def test_an_answer_that_trickles_is_late_too(server, monkeypatch):
    with monkeypatch.context() as patch:
        # Each read may take a minute, and the whole call half a second.
        patch.setattr("foldlog.condensers.models.client._GRACE_S", -59.5)
        error = failure_at(server, Trickling(100, 0.1, Text("too late")), retries=0, timeout_s=60)
    assert error.failure == "timeout"
    assert error.problem.startswith("no complete reply within 0.")
    server.script(Trickling(10, 0.01, Text("in time")))
    assert model_at(server).complete(QUESTION).text == "in time"


def test_an_unknown_provider_is_rejected_silently(server, capsys):
    error = failure_of(model_at(server, model="no-such-provider-model", base_url=None))
    assert error.failure == "rejected"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "model", ["openai/gpt-4o-mini", "azure/a-deployment", "gemini/gemini-2.5-pro"]
)
def test_a_missing_key_is_named(server, monkeypatch, model):
    for name in ("OPENAI_API", "OPENAI_ADMIN", "AZURE_API", "GEMINI_API", "GOOGLE_API"):
        monkeypatch.delenv(f"{name}_KEY", raising=False)
    waits = []
    error = failure_of(model_at(server, waits.append, model=model, api_key=None))
    assert (error.failure, waits, server.requests) == ("rejected", [], [])
    assert "_API_KEY" in error.problem


def test_a_missing_package_of_a_provider_is_not_tried_again(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    waits = []
    model = "bedrock/anthropic.claude-3-haiku-20240307-v1:0"
    error = failure_of(model_at(server, waits.append, model=model, base_url=None, api_key=None))
    assert (error.failure, waits) == ("rejected", [])
    assert "boto3" in error.problem


def test_retries_wait_longer_each_time(server):
    waits = []
    server.script(Failure(503), Raw(b"{"), Text("at last"))
    reply = model_at(server, waits.append, retries=3, retry_wait_s=2).complete(QUESTION)
    assert (reply.text, reply.attempts, waits) == ("at last", 3, [2, 4])


def test_a_prompt_without_room_is_not_sent(server):
    long = [{"role": "user", "content": "word " * 600}]
    narrow = model_at(server, max_input_tokens=500)
    error = failure_of(narrow, long)
    assert re.search(r"has 6\d\d tokens, and the model accepts at most 500", str(error))
    assert (error.failure, error.report["metrics"]["attempts"]) == ("context_window", 0)
    assert server.requests == []
    assert narrow.complete(QUESTION).text == "ok"
    wider = model_at(server, max_input_tokens=500, fallbacks=[fallback_at(server)])
    assert wider.complete(long).model == "gpt-4.1-mini"


def test_a_prompt_of_unknown_size_is_sent(server):
    unknown = model_at(server, max_input_tokens=5, tokenizer="command-r")
    assert unknown.complete(QUESTION).text == "ok"


def test_a_prompt_that_is_no_json_fails(server):
    for limits in ({}, {"max_input_tokens": 10}):
        error = failure_of(
            model_at(server, retries=0, **limits), [{"role": "user", "content": object()}]
        )
        assert "not JSON serializable" in error.problem


def test_retry_after_is_obeyed(server):
    waits = []
    server.script(Failure(429, "slow", headers={"Retry-After": "3"}), Text("ok"))
    model_at(server, waits.append).complete(QUESTION)
    assert waits == [3]


def test_a_wait_beyond_the_deadline_fails(server):
    waits = []
    late = Failure(429, "slow", headers={"Retry-After": "3600"})
    error = failure_at(server, late, sleep=waits.append, retries=5)
    assert error.failure == "rate_limited"
    assert (waits, len(server.requests)) == ([], 1)


def raw(content, tokens):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"id": "r", "object": "chat.completion", "created": 1, "choices": [choice]}
    if tokens is not None:
        usage = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), tokens)
        body["usage"] = usage
    return Raw(json.dumps(body).encode())


@pytest.mark.parametrize("content", [7, {"a": 1}, [{"type": "text", "text": "a summary"}]])
def test_an_unreadable_reply_has_no_price(server, content):
    error = failure_at(server, raw(content, 1_000), retries=0)
    metrics = error.report["metrics"]
    assert (metrics["attempts"], metrics["usage"], metrics["cost"]) == (1, {}, None)
    assert not re.search("Traceback|\n", error.problem)


@pytest.mark.parametrize("tokens", [None, -5])
def test_a_reply_without_usage_is_not_free(server, tokens):
    server.script(raw("a summary", tokens))
    reply = model_at(server, retries=0).complete(QUESTION)
    assert (reply.text, reply.usage, reply.cost) == ("a summary", {}, None)


def test_calls_share_the_time_of_their_step(server):
    with within_s(0):
        error = failure_of(model_at(server))
    assert (error.failure, error.report["metrics"]["attempts"]) == ("timeout", 0)
    assert server.requests == []


def test_empty_replies_are_retried_and_paid_for(server):
    server.script(*map(Text, (None, "", "  \n", "a summary")))
    reply = model_at(server, retries=3).complete(QUESTION)
    assert (reply.text, reply.attempts) == ("a summary", 4)
    assert reply.usage["prompt_tokens"] == 4 * server.requests[0].tokens


def test_a_reply_that_stays_empty_fails(server):
    error = failure_at(server, Text(None), retries=2)
    assert (error.failure, error.problem) == ("bad_reply", "the reply has no text")
    metrics = error.report["metrics"]
    assert metrics["attempts"] == 3
    assert metrics["usage"]["prompt_tokens"] == 3 * server.requests[0].tokens


@pytest.mark.parametrize(
    "answer, failure",
    [
        (Text("half a sum", finish_reason="length"), "bad_reply"),
        (Text("", finish_reason="length"), "bad_reply"),
        (Text(None, refusal="I would rather not"), "refused"),
        (Text("", finish_reason="content_filter"), "refused"),
    ],
    ids=str,
)
def test_a_cut_or_refused_reply_is_not_retried(server, answer, failure):
    error = failure_at(server, answer)
    (request,) = server.requests
    assert error.failure == failure
    assert error.report["metrics"]["usage"]["prompt_tokens"] == request.tokens


@pytest.mark.parametrize(
    "bad", [Failure(401), Text("half", finish_reason="length"), Text("")], ids=str
)
def test_a_fallback_answers_and_is_named(server, bad):
    server.script(bad, Text("mine"))
    reply = model_at(server, retries=0, fallbacks=[fallback_at(server)]).complete(QUESTION)
    assert (reply.text, reply.model, reply.attempts) == ("mine", "gpt-4.1-mini", 2)


def test_the_first_models_failure_is_reported(server):
    answers = Failure(503), Failure(503), Failure(401)
    error = failure_at(server, *answers, retries=1, fallbacks=[fallback_at(server)])
    assert (error.failure, error.model) == ("unavailable", "openai/gpt-4o-mini")
    assert error.report["metrics"]["attempts"] == 3


def test_the_key_is_never_shown(server, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.script(Failure(401, f"Incorrect API key provided: {KEY}"))
    llm = model_at(server)
    shown = [all_of(failure_of(llm)), repr(llm), repr(llm.config), str(llm.config)]
    shown += [llm.config.model_dump_json(), *capfd.readouterr()]
    shown += [log.getMessage() for log in caplog.records if log.name.startswith("foldlog.")]
    assert not [text for text in shown if KEY in text]


@pytest.mark.parametrize("secret, how", rows("settings.json", "secrets that a server repeats"))
def test_no_error_has_a_repeated_secret(server, monkeypatch, secret, how):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-found-by-litellm")
    server.respond(
        lambda request: Failure(401, f"who? {request.body.get('tokens')} {request.headers}")
    )
    error = failure_of(model_at(server, **how))
    assert secret in str(server.requests[0])
    assert "***" in error.problem
    assert secret not in all_of(error)


@pytest.mark.parametrize("name", rows("settings.json", "variables that may hold a key"))
def test_no_error_has_a_key_variable(server, monkeypatch, name):
    monkeypatch.setenv(name, "its-secret")
    error = failure_at(server, Failure(401, "who is its-secret?"))
    assert "who is ***?" in error.problem
    assert "its-secret" not in all_of(error)


def test_no_error_has_the_password_of_an_address(server):
    server.script(Failure(401, "who is u:pass1word?"))
    address = server.url.replace("http://", "http://u:pass1word@")
    error = failure_of(model_at(server, base_url=address))
    assert "who is u:***?" in error.problem
    assert "pass1word" not in all_of(error)


def test_no_reply_has_a_repeated_key(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-found-by-litellm")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Ada Lovelace")
    server.script(Text(f"Bearer {KEY}, sk-found-by-litellm, by Ada Lovelace"))
    assert model_at(server).complete(QUESTION).text == "Bearer ***, ***, by Ada Lovelace"
    server.script(Calling("record", f'{{"key": "{KEY}"}}'))
    assert model_at(server).complete(QUESTION).tool_calls[0].arguments == '{"key": "***"}'


def test_an_error_without_secrets_keeps_its_cause(server):
    assert failure_at(server, Failure(400, "no such parameter")).__cause__ is not None


def test_a_problem_has_a_maximum_length(server):
    assert (
        len(failure_at(server, Failure(400, "<html>\n" + "<p>busy</p>\n" * 1_000)).problem) <= 500
    )


def test_extra_sets_no_argument_of_a_call(server):
    request = request_for(QUESTION, [{"type": "function"}], "f", {"type": "object"})
    assert model_at(server)._arguments(request, 1).keys() == SET_BY_FOLDLOG


def test_half_a_surrogate_pair_is_replaced(server):
    broken = [{"role": "user", "content": "bad \ud800 text"}]
    mended = [{"role": "user", "content": "bad ? text"}]
    llm = model_at(server)
    llm.complete(broken)
    assert server.requests[0].body["messages"] == mended
    assert llm.count_tokens(broken) == llm.count_tokens(mended)


def test_a_named_variable_holds_the_key(server, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    model_at(server, api_key=None, api_key_env="THE_KEY").complete(QUESTION)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


def test_without_litellm_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(InvalidCondenser, match=r"'gpt-4o' needs litellm; .* pip install .*\[llm\]"):
        LLM(LLMConfig(model="gpt-4o"))
    named = r"^condenser\.llm_config\.model: 'gpt-4o' needs litellm"
    with pytest.raises(InvalidCondenser, match=named):
        condenser_from_config({"type": "llm", "llm_config": {"model": "gpt-4o"}})


@pytest.mark.parametrize("settings, known", rows("settings.json", "what is known of a model"))
def test_settings_override_what_litellm_knows(server, settings, known):
    llm = model_at(server, **settings)
    assert known == [
        llm.supports_function_calling,
        llm.supports_response_schema,
        llm.max_input_tokens,
        llm.max_output_tokens,
    ]


# litellm drops clients that its threads raced for, unclosed
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_threads_may_share_a_model(server):
    server.respond(lambda request: Text(request.body["messages"][0]["content"]))
    llm = model_at(server)
    replies = {}

    def ask(n):
        replies[n] = llm.complete([{"role": "user", "content": f"number {n}"}])

    at_once(ask, range(16))
    assert {n: reply.text for n, reply in replies.items()} == {n: f"number {n}" for n in range(16)}


def test_an_absent_server_is_named_without_its_password():
    waits = []
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nothing listens there
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        base_url = f"http://u:pass1word@{address}/v1"
        config = LLMConfig(model="openai/gpt-4o-mini", base_url=base_url, api_key=KEY, retries=5)
        failed = failure_of(LLM(config, sleep=waits.append))
    assert (failed.failure, waits) == ("unavailable", [])
    assert f"No server listens at {address}." in str(failed)
    assert "pass1word" not in str(failed)


def test_a_sum_with_an_unknown_price_is_unknown():
    priced, unpriced = (
        {"metrics": {"usage": {"total_tokens": 9}, "cost": cost}} for cost in (0.5, None)
    )
    failed = {"metrics": {"latency_s": 1.0}}
    assert Usage.of([priced, failed]).cost == 0.5
    assert Usage.of([priced, unpriced, priced]).metrics() == {
        "usage": {"total_tokens": 27},
        "cost": None,
        "latency_s": 0.0,
        "attempts": 3,
    }


def test_model_of_the_table_needs_no_litellm(monkeypatch):
    monkeypatch.setattr(client, "_litellm", lambda: pytest.fail("litellm was loaded"))
    llm = object.__new__(LLM)
    llm.config = LLMConfig(model="gpt-4o")
    llm.model = "gpt-4o"
    assert llm.supports_function_calling
    assert llm.supports_response_schema


@pytest.mark.parametrize(
    "count, words",
    [
        (lambda **options: 0, "counts 0 tokens .*: litellm's token counter is disabled"),
        (lambda **options: {}["tokens"], "litellm cannot count these messages for model 'gpt-4o'"),
    ],
)
def test_counter_of_litellm_that_does_not_count(monkeypatch, count, words):
    litellm = client._litellm()
    monkeypatch.setattr(litellm, "token_counter", count)
    monkeypatch.setattr(litellm, "disable_token_counter", True)
    llm = LLM(LLMConfig(model="gpt-4o", api_key="k"))
    with pytest.raises(TokensUnknown, match=words):
        llm._counted([{"role": "user", "content": "hello"}], ())


IMPORTED = """
import os

names = ("LITELLM_MODE", "LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS")
environment = {name: os.environ.get(name) for name in names}
suppress_debug_info = False
"""
"""A package in litellm's place, which notes what the real one would read while it is imported."""


@pytest.mark.parametrize("mode", [None, "DEV"])
def test_litellm_is_imported_in_a_quiet_environment(tmp_path, monkeypatch, mode):
    """A program's own choice of a mode stays as it is, during and after the import."""
    (tmp_path / "litellm.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "litellm", None)
    del sys.modules["litellm"]
    monkeypatch.delenv("LITELLM_MODE", raising=False)
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "False")
    if mode is not None:
        monkeypatch.setenv("LITELLM_MODE", mode)
    litellm = client._litellm.__wrapped__()
    assert litellm.environment == {
        "LITELLM_MODE": mode or "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "False",
    }
    assert litellm.suppress_debug_info is True
    assert os.environ.get("LITELLM_MODE") == mode
