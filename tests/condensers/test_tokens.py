"""Counts are litellm's own, and no message is counted twice."""

import importlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from msgspec.structs import replace as change

import foldlog.condensers.models.client
from foldlog.condensers import (
    LLM,
    LLMConfig,
    TokensUnknown,
)
from foldlog.condensers.base import Overrun
from foldlog.condensers.models import counting, limits
from foldlog.condensers.models.client import _DOWNLOADED_TOKENIZERS
from foldlog.condensers.models.counting import _declaration, count_at_most, encoding_of
from foldlog.condensers.models.limits import litellms_table, lookup
from foldlog.condensers.models.tokens import TokenCounter, offered_tools
from foldlog.condensers.strategies.summarizing import limit_of
from foldlog.eventstore import Action, Message, SystemMessage
from foldlog.projections import View
from tests.condensers.made import TOOLS, answer, call, later, message, viewed
from tests.condensers.scripted import Characters
from tests.how_many import examples, some
from tests.imported import imported, real_histories
from tests.properties.histories import histories

MODELS = ["gpt-4o-mini", "claude-sonnet-4-5", "gemini/gemini-2.5-pro"]
"""One of each kind that litellm counts for: with OpenAI's tokenizer, with another, and with
OpenAI's in its place.
"""


@pytest.fixture(scope="module")
def litellm():
    return foldlog.condensers.models.client._litellm()


def model(name, **settings):
    return LLM(LLMConfig(model=name, **settings))


def user(*contents):
    return [{"role": "user", "content": content} for content in contents]


# --- litellm's count ---


def views(path):
    """Return the Views of real histories with tools that litellm can count: a quarter of each, a
    half, and all.
    """

    def with_tools(event):
        return change(event, tools=tuple(TOOLS)) if isinstance(event, SystemMessage) else event

    whole = [
        View.from_events(map(with_tools, history.events(0, 400))) for history in imported(path)
    ]
    return [view.with_events(view[: len(view) * part // 4]) for view in whole for part in (1, 2, 4)]


@real_histories
@pytest.mark.parametrize("name", MODELS)
def test_sums_end_in_litellms_count(litellm, name, path):
    llm = model(name)
    bare = foldlog.condensers.models.client._bare_name(name)
    for view in views(path):
        sums = llm.token_sums(view)
        assert len(sums) == len(view) + 1
        assert list(sums) == sorted(sums)
        tools = list(offered_tools(view)) or None
        assert sums[-1] == litellm.token_counter(
            model=bare, messages=view.to_messages(), tools=tools
        )


@pytest.mark.parametrize("text", ["", "You pay."])
def test_only_a_sent_system_message_is_beside_the_tools(litellm, text):
    system = SystemMessage(content=text, tools=tuple(TOOLS))
    view = View.from_events([system, Message(source="user", content="pay")])
    name = MODELS[0]
    assert model(name).token_sums(view)[-1] == litellm.token_counter(
        model=foldlog.condensers.models.client._bare_name(name),
        messages=view.to_messages(),
        tools=list(offered_tools(view)),
    )


@real_histories
def test_sums_never_understate_a_tail(path):
    llm = model("gpt-4o-mini")
    for view in views(path):
        calls = [event.call_id for event in view if isinstance(event, Action)]
        if len(set(calls)) < len(calls):
            continue  # a repeated id is sent as a shorter id, but a tail has the id itself
        view = replace(view, dialect="openai")  # the others say that something came before
        sums = llm.token_sums(view)
        for cut in some(view.cut_points, 12):
            tail = llm.token_sums(view.with_events(view[cut:]))
            assert tail[-1] - tail[0] <= sums[-1] - sums[cut], (view, cut)


texts = st.text(max_size=40) | st.sampled_from(
    ["", " ", "\n\n", "a\u0301", "你好", "🙂" * 3, "x" * 5000]
)
parts = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.just(
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    ),
    max_size=3,
)
calls = st.lists(
    st.builds(
        lambda name, arguments: {
            "id": "call_1",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        st.sampled_from(["run", "read"]),
        texts.map(json.dumps),
    ),
    min_size=1,
    max_size=3,
)
prompts = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "tool"]), "content": texts | parts},
        optional={"tool_call_id": st.just("call_1"), "name": st.just("run")},
    )
    | st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none() | texts, "tool_calls": calls}
    ),
    max_size=6,
)


words = st.sampled_from(["path", "what to run", "naïve", "a_b", "x" * 30])
schemas = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "null", ["string"]])},
        optional={"description": words},
    )
    | st.builds(lambda values: {"type": "string", "enum": values}, st.lists(words, min_size=1))
    | st.builds(lambda values: {"type": "number", "enum": values}, st.lists(st.integers(0, 9))),
    lambda inner: (
        st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(
            lambda fields, required: {"type": "object", "properties": fields, "required": required},
            st.dictionaries(words, inner, max_size=3),
            st.lists(words, max_size=2),
        )
    ),
    max_leaves=6,
)
tools_of_any_shape = st.lists(
    st.builds(
        lambda about, fields: {
            "type": "function",
            "function": {
                "name": "run",
                **about,
                "parameters": {"type": "object", "properties": fields},
            },
        },
        st.fixed_dictionaries({}, optional={"description": words}),
        st.dictionaries(words, schemas, max_size=3),
    ),
    max_size=2,
)


@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-4", "o1", "claude-sonnet-4-5"])
def test_counts_are_litellms_for_any_prompt(litellm, name):
    llm = model(name)

    @examples(100)
    @given(prompts, st.just(TOOLS) | tools_of_any_shape)
    def check(prompt, tools):
        count = litellm.token_counter(model=name, messages=prompt, tools=tools or None)
        assert llm.count_tokens(prompt, tools) == count
        with suppress(TokensUnknown):
            assert count_at_most(prompt, tools) >= count

    check()


@pytest.mark.parametrize(
    "names, text, modules",
    [
        (
            (
                "openai/gpt-4o-mini",
                "anthropic/claude-sonnet-4-5",
                "openai/a-model-of-ones-own",
                "gemini/gemini-2.5-pro",
            ),
            "hello",
            set(),
        ),
        (("gpt-4",), "hello " * 9_000, {"tiktoken"}),
    ],
)
def test_a_worker_opens_and_prepares_without_litellm(names, text, modules):
    program = f"""
import json, sys, foldlog
from foldlog import LLM, LLMConfig, Message
for name in {names!r}:
    agent = LLM(LLMConfig(model=name, api_key="k"))
    with foldlog.open("memory:", condenser="digest", agent_llm=agent) as histories:
        history = histories["c1"]
        history.append(Message(source="user", content={text!r}))
        history.prepare()
print(json.dumps([module for module in ("litellm", "tiktoken") if module in sys.modules]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    if (
        modules and encoding_of(*names) is None
    ):  # an older litellm, which counts by rules of its own
        modules = {"litellm", *modules}
    assert set(json.loads(ran.stdout)) == modules


def limits_in(entry):
    limits = [entry.get(f"max_{which}_tokens") for which in ("input", "output")]
    return [limit if isinstance(limit, int) and limit > 0 else None for limit in limits]


def test_the_table_knows_what_litellm_knows(litellm):
    utils = importlib.import_module("litellm.utils")
    counter = importlib.import_module("litellm.litellm_core_utils.token_counter")
    listed = [*litellms_table()]
    names = [*listed, *(f"openai/{name}" for name in listed), "openai/own", "anthropic/own", "own"]
    known = {name: found for name in names if (found := lookup(name)) is not None}
    assert len(known) > len(listed) / 5  # the others need litellm itself
    for name in some(known, 60):
        bare, entry = known[name]
        assert bare == litellm.get_llm_provider(name)[0]
        try:
            info = litellm.get_model_info(name)
        except Exception:  # noqa: BLE001  what litellm raises for an unknown model
            info = {}
        assert limits_in(entry) == limits_in(info), name
        encoding = encoding_of(bare)
        is_downloaded = any(part in bare.lower() for part in _DOWNLOADED_TOKENIZERS)
        if encoding is not None and not is_downloaded:
            assert utils.huggingface_tokenizer_kind(bare) is None, name
            assert encoding == counter.openai_tokenizer_encoding_name(bare), name


def test_an_untyped_array_is_counted():
    def tool(tasks):
        parameters = {"type": "object", "properties": {"tasks": tasks}}
        return {"type": "function", "function": {"name": "plan", "parameters": parameters}}

    silent, anything = (
        model("gpt-4o").count_tokens(user("hi"), [tool(tasks)])
        for tasks in ({"type": "array"}, {"type": "array", "items": {}})
    )
    assert silent == anything


def test_tools_of_other_logs_are_counted():
    tool = {"title": "think", "description": "Think it over. " * 50, "kind": "ThinkTool"}
    with_tool, without = (
        viewed(SystemMessage(content="Be brief.", tools=tools), message())
        for tools in ((tool,), ())
    )
    llm = model("gpt-4o-mini")
    assert llm.token_sums(with_tool)[-1] > llm.token_sums(without)[-1] + 150


def test_an_impossible_count_is_unknown(litellm, monkeypatch):
    with pytest.raises(TokensUnknown, match="cannot count"):
        model("gpt-4o").count_tokens(user([{"type": "no such part"}]))
    monkeypatch.setattr(litellm, "disable_token_counter", True)
    with pytest.raises(TokensUnknown, match="disabled"):
        model("gpt-4o").count_tokens(user("hello"))


def test_no_tokenizer_is_downloaded():
    llama = "groq/llama-3.3-70b-versatile"
    with pytest.raises(TokensUnknown, match="downloaded"):
        model(llama).count_tokens(user("hello"))
    assert model(llama, tokenizer="gpt-4o").count_tokens(user("hello")) == 8


def test_no_image_is_downloaded(monkeypatch):
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda *_, **__: pytest.fail("the network was asked for")
    )
    image = {"url": "https://example.org/large.png", "detail": "high"}
    prompt = user([{"type": "image_url", "image_url": image}])
    assert model("gpt-4o").count_tokens(prompt) > 200


# --- nothing is counted twice ---


def test_only_new_messages_are_counted():
    contents = []

    def count(prompt, tools):
        contents.extend(message["content"] for message in prompt)
        return 5 + sum(2 + len(message["content"]) for message in prompt) + 11 * len(tools)

    counter = TokenCounter(count)
    assert counter.count_tokens(user("one", "two"), TOOLS) == 5 + 5 + 5 + 11
    contents.clear()
    assert counter.count_tokens(user("one", "two", "three"), TOOLS) == 5 + 5 + 5 + 7 + 11
    assert contents == ["three"]


def characters(prompt, tools):
    """Count the characters of a prompt as JSON, and something for each tool and each prompt."""
    return 3 + sum(len(json.dumps(message)) for message in prompt) + 7 * len(tools)


def test_similar_messages_are_counted_apart():
    counter = TokenCounter(characters)
    contents = (["b", 1], {"b": 1}, [["b", 1]], ["b", True], ["b", 1.0])
    prompts = [user(content) for content in contents]
    assert [counter.count_tokens(prompt) for prompt in prompts] == [
        characters(prompt, ()) for prompt in prompts
    ]


@examples(150)
@given(histories, st.data())
def test_continued_sums_are_the_fresh_sums(events, data):
    count = TokenCounter(characters)
    versions = data.draw(st.lists(st.integers(0, len(events)), min_size=2, max_size=8))
    for version in [*sorted(versions), *versions]:
        view = View.from_events(events[:version])
        hidden = data.draw(st.integers(0, len(view)))
        for shown in (view, view.with_events(view[:hidden] + view[hidden + 1 :])):
            assert count.token_sums(shown) == TokenCounter(characters).token_sums(shown)
            assert count.token_sums(shown)[-1] == count.count_tokens(
                shown.to_messages(), offered_tools(shown)
            )


RAN = Action(source="user", tool="run", call_id="c", thought="I ran it")


@pytest.mark.parametrize(
    "events",
    [
        [[message(), [call(), answer()]], *([call(), answer()] for _ in range(4))],
        [[message()], [RAN, answer()]],
        [[message(), RAN], [message(" ", "agent")], [message("more")]],
        [[message(), RAN], [message("done", "agent")], [message("more")]],
    ],
    ids=[
        "a call id that is used again",
        "an action of the user that becomes a part of a message",
        "messages of the user around a blank one of the agent",
        "messages of the user around one of the agent",
    ],
)
def test_a_grown_view_is_counted_as_sent(events):
    count = TokenCounter(characters)
    view = viewed()
    for new in events:
        view = view.then(later(view.version, new))
        assert count.token_sums(view)[-1] == count.count_tokens(view.to_messages())


def test_a_view_is_counted_once(monkeypatch):
    count = TokenCounter(characters)
    view = viewed(message())
    first = count.token_sums(view)
    monkeypatch.setattr(View, "shared_messages", lambda *_: pytest.fail("rendered again"))
    assert count.token_sums(view) is first


# --- limits ---


@pytest.mark.parametrize(
    "max_tokens, agent, limit",
    [
        (None, Characters(128_000, 16_384), 98_816),
        (50_000, Characters(128_000, 16_384), 50_000),
        (200_000, Characters(128_000, 16_384), 98_816),
        (None, Characters(100_000), 90_000),
        (50_000, Characters(), 50_000),
        (None, Characters(), None),
        (50_000, None, None),
        # The price list gives many models the whole window as output: half of it is left for input
        # all the same.
        (None, Characters(8_192, 8_192), 8_192 - 4_096 - 819),
    ],
)
def test_the_limit_leaves_room_for_the_answer(max_tokens, agent, limit):
    assert limit_of(agent, max_tokens) == limit


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(0, 400),
    st.data(),
)
def test_the_longest_tail_that_fits_is_found(costs, frame, room, data):
    sums = [frame]
    for cost in costs:
        sums.append(sums[-1] + cost)
    head = data.draw(st.integers(0, len(costs)))
    start = len(costs) - Overrun(sums, room + 1, Characters(room)).tail(head, 1)

    def prompt(start):
        return frame + sum(costs[:head]) + sum(costs[start:])

    fitting = [start for start in range(head, len(costs) + 1) if prompt(start) <= room]
    assert start == (fitting[0] if fitting else len(costs))


def test_loading_an_encoding_leaves_the_environment_as_it_was(litellm, monkeypatch):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    assert counting._encoder.__wrapped__("o200k_base")("hello") == 1
    assert "TIKTOKEN_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/elsewhere")
    counting._encoder.__wrapped__("o200k_base")
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/elsewhere"


def declared(properties, **function):
    parameters = {"type": "object", "properties": properties, "required": ["a"]}
    return _declaration({"function": {"name": "pay", "parameters": parameters, **function}})


@pytest.mark.parametrize(
    "schema, written",
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "null"),
        ({}, "any"),
        ({"type": "integer", "enum": [1, 2]}, '"1" | "2"'),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        (
            {"type": "object", "properties": {"b": {"type": "null", "description": "none"}}},
            "{\n  // none\n  b?: null,\n}",
        ),
    ],
)
def test_tool_is_declared_with_the_types_of_typescript(schema, written):
    assert declared({"a": schema}) == f"type pay = (_: {{\na: {written},\n}}) => any;\n\n"


def test_tool_is_declared_with_its_descriptions():
    fields = {"a": {"description": "who"}, "b": {}}
    declaration = "type pay = (_: {\n// who\na: any,\nb?: any,\n}) => any;"
    assert declared(fields, description="Pays.") == f"// Pays.\n{declaration}\n\n"
    assert declared({}) == "type pay = () => any;\n\n"
    with pytest.raises(TokensUnknown, match="not in OpenAI's format"):
        declared(fields, name="")


# --- what cannot be counted ---


def test_no_more_than_so_many_tokens():
    """Each byte of ASCII may be a token, and each other character twelve."""
    empty = {"role": "", "content": ""}
    frame = count_at_most([], ())
    message = count_at_most([empty], ()) - frame
    assert count_at_most([empty | {"content": "abc"}], ()) == frame + message + 3
    assert count_at_most([empty | {"content": "abé"}], ()) == frame + message + 2 + 12
    assert count_at_most([empty | {"name": "ab"}], ()) == frame + message + 2 + 1
    parts = ["abc", {"type": "text", "text": "de"}, {"type": "text"}]
    assert count_at_most([empty | {"content": parts}], ()) == frame + message + 5
    calls = [{"function": {"arguments": "abcd", "name": "x"}}, {"function": {}}]
    assert count_at_most([empty | {"tool_calls": calls}], ()) == frame + message + 4
    unsaid = {"content": None, "tool_calls": None, "function_call": None, "search_results": None}
    assert count_at_most([empty | unsaid], ()) == frame + message


@pytest.mark.parametrize(
    "message, problem",
    [
        ({"function_call": {"name": "x"}}, "a message has function_call"),
        ({"search_results": []}, "a message has search_results"),
        ({"content": [{"type": "image_url"}]}, "a message has a part of type 'image_url'"),
    ],
)
def test_more_than_text_is_not_counted(message, problem):
    with pytest.raises(TokensUnknown, match=problem):
        count_at_most([message], ())


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("TOKEN_COUNTER_MAX_EXACT_CHARS", "9"),
        lambda patch: patch.setattr(counting, "find_spec", lambda name: None),
        lambda patch: patch.setattr(counting, "version", lambda name: "1.105.9"),
        lambda patch: patch.setitem(counting._FILES, "o200k_base", "moved"),
        lambda patch: patch.delitem(counting._FILES, "o200k_base"),
    ],
)
def test_encodings_that_litellm_may_not_have(litellm, monkeypatch, change):
    find = counting._folder_of_encodings.__wrapped__
    folder = find("o200k_base")
    if folder is None:
        pytest.skip("this release of litellm has no encodings of its own")
    assert folder.name == "tokenizers"
    change(monkeypatch)
    assert find("o200k_base") is None


def test_a_text_beyond_what_litellm_counts_exactly(litellm):
    count = counting._encoder("o200k_base")
    with pytest.raises(TokensUnknown, match="a text has 4,000,001 characters"):
        count("x" * 4_000_001)
    assert count("one two") == 2


def test_a_table_with_a_text_in_the_place_of_a_number(monkeypatch):
    table = {
        "odd": Raw(b'{"max_input_tokens": "8k"}'),
        "claude-sonnet-4-5": Raw(b'{"max_input_tokens": 7}'),
        "anthropic.claude-2-v1:0": Raw(b'{"max_output_tokens": 8}'),
    }
    monkeypatch.setattr(limits, "litellms_table", lambda: table)
    found = limits.window_of.__wrapped__
    assert found("odd") is found("unknown") is None
    assert found("openrouter/anthropic/claude-sonnet-4.5").max_input_tokens == 7
    assert found("claude-2").max_output_tokens == 8
    assert limits.names_of("a/b/c.1") == ["a/b/c.1", "b/c.1", "c.1", "a/b/c-1", "b/c-1", "c-1"]


def test_the_window_is_that_of_the_newest_reply_whose_model_is_known(monkeypatch):
    windows = {"old": Characters(1), "new": Characters(2)}
    monkeypatch.setattr(limits, "window_of", windows.get)

    def by(model, source="agent"):
        return change(message(source=source), meta={"model": model})

    assert limits.window_in(viewed(by("old"), by("new"), by("new", "user"))) is windows["new"]
    assert limits.window_in(viewed(by("old"), message(), by("new", "user"))) is windows["old"]
    assert limits.window_in(viewed(by("old"), by("unknown"), by(7))) is windows["old"]
    assert limits.window_in(viewed(by("new", "user"), by("unknown"))) is None


@pytest.mark.parametrize(
    "model, name, entry",
    [
        ("gpt", "gpt", "gpt"),
        ("gpt-latest", None, None),
        ("ft:gpt", None, None),
        ("mistral", None, None),
        ("unknown", None, None),
        ("openai/gpt", "gpt", "gpt"),
        ("openai/own", "own", None),
        ("openai/special", "special", "openai/special"),
        ("openai/mistral", "mistral", None),
        ("openai/ft:gpt", None, None),
        ("openai/a/b", None, None),
        ("anthropic/claude", "claude", "claude"),
        ("anthropic/own", None, None),
        ("anthropic/gpt", None, None),
        ("groq/llama", "llama", "groq/llama"),
        ("groq/a:b", "a:b", "groq/a:b"),
        ("groq/own", None, None),
        ("azure/gpt", None, None),
    ],
)
def test_the_entry_of_a_model(monkeypatch, model, name, entry):
    providers = {
        "gpt": "openai",
        "ft:gpt": "openai",
        "gpt-latest": "openai",
        "claude": "anthropic",
        "mistral": "mistral",
        "openai/special": "openai",
        "openai/ft:gpt": "openai",
        "groq/llama": "groq",
        "groq/a:b": "groq",
        "azure/gpt": "azure",
    }
    entries = {key: {"litellm_provider": provider} for key, provider in providers.items()}
    table = {key: Raw(json.dumps({**own, "key": key}).encode()) for key, own in entries.items()}
    monkeypatch.setattr(limits, "litellms_table", lambda: table)
    found = lookup(model)
    if name is None:
        assert found is None
    else:
        assert (found[0], found[1].get("key")) == (name, entry)
