"""Counts are litellm's own, and no message is counted twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

import foldlog.condensers.models.client
import foldlog.condensers.models.tokens
from foldlog.condensers.base import Overrun
from foldlog.condensers.errors import TokensUnknown
from foldlog.condensers.models.client import LLM, LLMConfig
from foldlog.condensers.models.tokens import TokenCounter, offered_tools
from foldlog.condensers.strategies.showing import NoOpCondenser, ObservationMaskingCondenser
from foldlog.condensers.strategies.summarizing import limit_of
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats import decode
from foldlog.projections import View
from foldlog.projections.messages import growing
from tests.beside import SAMPLES, needs_samples
from tests.how_many import examples, some
from tests.properties.histories import histories

MODELS = ["gpt-4o-mini", "claude-sonnet-4-5", "gemini/gemini-2.5-pro"]
"""One of each kind that litellm counts for: with OpenAI's tokenizer, with another, and with
OpenAI's in its place.
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Run a command.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string", "description": "what to run"}},
                "required": ["command"],
            },
        },
    }
]


@pytest.fixture(scope="module")
def litellm():
    return foldlog.condensers.models.client._litellm()


def model(name: str, **settings) -> LLM:
    return LLM(LLMConfig(model=name, **settings))


def openai_samples() -> Iterator[tuple[list[dict], list[dict]]]:
    """The messages and the tools of real conversations."""
    for path in sorted((SAMPLES / "openai_chat").glob("*.json")):
        sample = json.loads(path.read_bytes())
        if isinstance(sample, dict):
            yield sample["messages"], sample.get("tools") or sample["kwargs"].get("tools") or []
        elif "role" in sample[0]:
            yield [{key: message[key] for key in ("role", "content")} for message in sample], []
        else:
            yield from ((trajectory["traj"], TOOLS) for trajectory in sample[:5])


def views() -> Iterator[View]:
    """The Views of real V1 conversations, and of others whose neighbouring user messages are
    merged.
    """
    for path in sorted((SAMPLES / "openhands_v1").iterdir()):
        if path.is_dir():
            records = [json.loads(file.read_bytes()) for file in sorted(path.rglob("event-*.json"))]
        else:
            records = [
                json.loads(line)
                for line in path.read_text(encoding="utf-8").splitlines()
                if line.strip()
            ]
        yield View.from_events(decode(records, format="openhands-v1"))
    for messages, _ in openai_samples():
        yield View.from_events(
            Message(source="user", content=str(message.get("content"))[:500])
            for message in messages
        )


@needs_samples
@pytest.mark.parametrize("name", MODELS)
def test_the_sums_of_a_view_end_in_litellms_count_of_its_prompt(litellm, name, record_property):
    llm = model(name)
    compared = 0
    for view in some(views(), 6):
        for part in (view, view.with_events(view[: len(view) // 2])):
            sums = llm.token_sums(part)
            assert len(sums) == len(part) + 1
            assert list(sums) == sorted(sums)
            bare = foldlog.condensers.models.client._bare_name(name)
            tools = list(offered_tools(part)) or None
            assert sums[-1] == litellm.token_counter(
                model=bare, messages=part.to_messages(), tools=tools
            )
            compared += 1
    record_property("views whose sums are exact", compared)
    assert compared > 10


@needs_samples
def test_a_tail_never_has_more_tokens_than_the_sums_say():
    llm = model("gpt-4o-mini")
    for view in some(views(), 10):
        view = replace(view, dialect="openai")  # the others say that something came before
        sums = llm.token_sums(view)
        for cut in view.cut_points:
            tail = llm.token_sums(view.with_events(view[cut:]))
            assert tail[-1] - tail[0] <= sums[-1] - sums[cut], (view, cut)


def test_a_tool_whose_array_does_not_say_what_it_holds_is_counted_as_one_that_holds_anything():
    def tool(tasks):
        parameters = {"type": "object", "properties": {"tasks": tasks}}
        return {"type": "function", "function": {"name": "plan", "parameters": parameters}}

    silent, anything = (
        model("gpt-4o").count_tokens([{"role": "user", "content": "hi"}], [tool(tasks)])
        for tasks in ({"type": "array"}, {"type": "array", "items": {}})
    )
    assert silent == anything


def test_tools_in_the_shape_of_other_logs_are_counted_too():
    tool = {"title": "think", "description": "Think it over. " * 50, "kind": "ThinkTool"}
    with_tool, without = (
        View.from_events(
            [SystemMessage(content="Be brief.", tools=tools), Message(source="user", content="hi")]
        )
        for tools in ((tool,), ())
    )
    llm = model("gpt-4o-mini")
    assert llm.token_sums(with_tool)[-1] > llm.token_sums(without)[-1] + 150


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
            "function": {"name": name, "arguments": json.dumps({"command": arguments})},
        },
        st.sampled_from(["run", "read"]),
        texts,
    ),
    min_size=1,
    max_size=3,
)
messages = st.one_of(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user"]),
        texts | parts,
    ),
    st.builds(
        lambda content, called: {"role": "assistant", "content": content, "tool_calls": called},
        st.none() | texts,
        calls,
    ),
    st.builds(
        lambda content: {
            "role": "tool",
            "content": content,
            "tool_call_id": "call_1",
            "name": "run",
        },
        texts | parts,
    ),
)


@pytest.mark.parametrize("name", ["gpt-4o-mini", "claude-sonnet-4-5"])
def test_counts_are_litellms_for_any_prompt(litellm, name):
    llm = model(name)

    @examples(100)
    @given(st.lists(messages, max_size=6), st.sampled_from([[], TOOLS]))
    def check(prompt, tools):
        assert llm.count_tokens(prompt, tools) == litellm.token_counter(
            model=name, messages=prompt, tools=tools or None
        )

    check()


class Counting:
    """An additive counter that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, prompt, tools) -> int:
        self.asked += [message["content"] for message in prompt]
        return 5 + sum(2 + len(message["content"]) for message in prompt) + 11 * len(tools)


def said(*contents: str) -> list[dict]:
    return [{"role": "user", "content": content} for content in contents]


def test_a_step_counts_only_the_messages_that_are_new():
    counting = Counting()
    counter = TokenCounter(counting)
    assert counter.count_tokens(said("one", "two"), TOOLS) == 5 + 5 + 5 + 11
    counting.asked.clear()
    assert counter.count_tokens(said("one", "two", "three"), TOOLS) == 5 + 5 + 5 + 7 + 11
    assert counting.asked == ["three"]


def test_messages_that_only_look_alike_are_told_apart():
    counter = TokenCounter(
        lambda prompt, tools: sum(len(json.dumps(message)) for message in prompt)
    )
    prompts = [
        [{"a": ["b", 1]}],
        [{"a": {"b": 1}}],
        [{"a": [["b", 1]]}],
        [{"a": ["b", True]}],
        [{"a": ["b", 1.0]}],
    ]
    assert [counter.count_tokens(prompt) for prompt in prompts] == [
        len(json.dumps(prompt[0])) for prompt in prompts
    ]


def test_what_cannot_be_counted_is_unknown_and_never_nothing(litellm, monkeypatch):
    with pytest.raises(TokensUnknown, match="cannot count"):
        model("gpt-4o").count_tokens([{"role": "user", "content": [{"type": "no such part"}]}])
    monkeypatch.setattr(litellm, "disable_token_counter", True)
    with pytest.raises(TokensUnknown, match="disabled"):
        model("gpt-4o").count_tokens(said("hello"))


def test_a_tokenizer_that_would_have_to_be_downloaded_is_unknown_unless_another_is_named():
    with pytest.raises(TokensUnknown, match="downloaded"):
        model("groq/llama-3.3-70b-versatile").count_tokens(said("hello"))
    assert (
        model("groq/llama-3.3-70b-versatile", tokenizer="gpt-4o").count_tokens(said("hello")) == 8
    )


def test_a_remote_image_is_not_downloaded_to_be_measured(monkeypatch):
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda *_, **__: pytest.fail("the network was asked for")
    )
    image = {
        "type": "image_url",
        "image_url": {"url": "https://example.org/large.png", "detail": "high"},
    }
    assert model("gpt-4o").count_tokens([{"role": "user", "content": [image]}]) > 200


class Agent:
    model = "an agent's"

    def __init__(self, max_input_tokens: int | None, max_output_tokens: int | None = None) -> None:
        self.max_input_tokens, self.max_output_tokens = max_input_tokens, max_output_tokens


@pytest.mark.parametrize(
    "max_tokens, agent, limit",
    [
        (None, Agent(128_000, 16_384), 128_000 - 16_384 - 12_800),
        (50_000, Agent(128_000, 16_384), 50_000),
        (200_000, Agent(128_000, 16_384), 128_000 - 16_384 - 12_800),
        (None, Agent(100_000), 90_000),
        (50_000, Agent(None), 50_000),
        (None, Agent(None), None),
        (50_000, None, None),
        (None, None, None),
        # The price list gives many models the whole window as output: half of it is left for input
        # all the same.
        (None, Agent(8_192, 8_192), 8_192 - 4_096 - 819),
    ],
)
def test_the_limit_is_the_agents_model_less_its_answer_and_a_margin_or_the_users_own(
    max_tokens, agent, limit
):
    assert limit_of(agent, max_tokens) == limit


def test_every_model_of_the_price_list_keeps_room_for_a_prompt(litellm):
    checked = 0
    for name, entry in litellm.model_cost.items():
        if entry.get("mode") != "chat" or not isinstance(entry.get("max_input_tokens"), int):
            continue
        limits = entry["max_input_tokens"], entry.get("max_output_tokens")
        checked += 1
        if limits[0] > 0:
            assert limit_of(Agent(*limits)) >= limits[0] * 0.39, name
    assert checked > 1000


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
    start = len(costs) - Overrun(sums, room + 1, Agent(room)).tail(head, 1)

    def prompt(start: int) -> int:
        return frame + sum(costs[:head]) + sum(costs[start:])

    fitting = [start for start in range(head, len(costs) + 1) if prompt(start) <= room]
    assert start == (fitting[0] if fitting else len(costs))


# --- sums that go on from those of the last View ---


@examples(150)
@given(histories, st.data())
def test_sums_that_go_on_from_another_view_are_those_made_from_nothing(events, data):
    def counted(prompt, tools):
        return 3 + sum(len(json.dumps(each)) for each in prompt) + 7 * len(tools)

    count = TokenCounter(counted)
    versions = data.draw(st.lists(st.integers(0, len(events)), min_size=2, max_size=8))
    for version in [*sorted(versions), *versions]:
        view = View.from_events(events[:version])
        hidden = data.draw(st.integers(0, len(view)))
        for shown in (view, view.with_events(view[:hidden] + view[hidden + 1 :])):
            assert count.token_sums(shown) == TokenCounter(counted).token_sums(shown)
            assert count.token_sums(shown)[-1] == count.count_tokens(
                shown.to_messages(), offered_tools(shown)
            )


def test_a_step_renders_only_what_is_new_and_behind_a_mask_what_was_masked_since(monkeypatch):
    asked: list[int] = []
    real = growing.turns

    def watched(events, positions, call_ids):
        asked.append(len(positions))
        return real(events, positions, call_ids)

    monkeypatch.setattr(growing, "turns", watched)
    for condenser, right in ((NoOpCondenser(), {4}), (ObservationMaskingCondenser(4), {4, 6})):
        asked.clear()
        count = TokenCounter(lambda prompt, tools: 3 + len(prompt))
        events = [SystemMessage(id=0, content="s"), Message(id=1, source="user", content="do")]
        view = View.from_events(events)
        for n in range(2, 100, 2):
            events.append(Action(id=n, tool="run", call_id=f"c{n}", response_id=f"r{n}"))
            events.append(Observation(id=n + 1, call_id=f"c{n}", cause=n, content="done"))
            view = view.then(events[len(view) :])
            count.token_sums(condenser.condense(view))
        assert asked[0] == 4
        assert set(asked[1:]) <= right


def test_a_call_id_that_is_used_again_is_counted_as_it_is_sent():
    count = TokenCounter(lambda prompt, tools: 3 + sum(len(json.dumps(each)) for each in prompt))
    events = [Message(id=0, source="user", content="do")]
    for n in range(1, 9, 2):
        events.append(Action(id=n, tool="run", call_id="c", response_id=f"r{n}"))
        events.append(Observation(id=n + 1, call_id="c", cause=n, content="done"))
        view = View.from_events(events)
        assert count.token_sums(view)[-1] == count.count_tokens(view.to_messages())


def test_an_action_of_the_user_is_counted_in_the_message_that_it_becomes_a_part_of():
    count = TokenCounter(lambda prompt, tools: 3 + sum(len(json.dumps(each)) for each in prompt))
    view = View.from_events([SystemMessage(content="s"), Message(source="user", content="do")])
    count.token_sums(view)
    view = view.then(
        [
            Action(source="user", tool="run", call_id="c", thought="I ran it"),
            Observation(call_id="c", content="done"),
        ]
    )
    assert len(view.to_messages()) == 2
    assert count.token_sums(view)[-1] == count.count_tokens(view.to_messages())


@pytest.mark.parametrize("said", [" ", "done"])
def test_messages_of_the_user_are_merged_around_a_blank_one_of_the_agent(said):
    count = TokenCounter(lambda prompt, tools: 3 + sum(len(json.dumps(each)) for each in prompt))
    view = View.from_events(
        [Message(source="user", content="do"), Action(source="user", tool="t", thought="look")]
    )
    for new in (Message(source="agent", content=said), Message(source="user", content="more")):
        count.token_sums(view)
        view = view.then([new])
    assert count.token_sums(view)[-1] == count.count_tokens(view.to_messages())


def test_the_same_view_is_not_looked_at_twice(monkeypatch):
    count = TokenCounter(lambda prompt, tools: 3 + len(prompt))
    view = View.from_events([Message(source="user", content="do")])
    first = count.token_sums(view)
    monkeypatch.setattr(View, "shared_messages", lambda *_: pytest.fail("rendered again"))
    assert count.token_sums(view) is first
