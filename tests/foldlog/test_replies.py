"""A model's reply becomes events, whichever SDK brought it, and a tool's result finds its call."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
from msgspec.structs import replace

import foldlog
from foldlog import (
    Action,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    View,
    from_openai,
)
from foldlog.condensers import Reply, ToolCall
from foldlog.condensers.models import client
from foldlog.errors import IdempotencyConflict, InvalidArgument, InvalidEvent
from foldlog.projections.messages import DIALECTS
from tests.at_once import at_once
from tests.projections.chat_rules import PROBLEMS

TOLD = {"prompt_tokens": 7, "completion_tokens": 3}
USAGE = {**TOLD, "total_tokens": 10}
CALLS = [
    {"id": "k1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}},
    {"id": "k2", "type": "function", "function": {"name": "run", "arguments": '{"command": '}},
]


def completion(message, finish_reason="stop"):
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": None, **message},
    }
    described = {"object": "chat.completion", "created": 1, "model": "gpt-4o"}
    return {"id": "chatcmpl-1", **described, "choices": [choice], "usage": USAGE}


def test_a_text_is_a_message_of_the_agent():
    (message,) = from_openai(completion({"content": "It fails because of x."}))
    account = {"model": "gpt-4o", "finish_reason": "stop", "usage": TOLD}
    assert message == Message(source="agent", content="It fails because of x.", meta=account)
    (refused,) = from_openai(completion({"refusal": "I cannot."}))
    assert refused.content == "I cannot."


def test_calls_are_actions_and_the_text_beside_them_is_the_thought_of_the_first():
    one, two = from_openai(
        completion({"content": "Let me look.", "tool_calls": CALLS}, "tool_calls")
    )
    assert (one.tool, one.arguments, one.call_id, one.response_id) == (
        "run",
        {"command": "ls"},
        "k1",
        "chatcmpl-1",
    )
    assert (two.arguments, two.call_id, two.response_id) == ('{"command": ', "k2", "chatcmpl-1")
    assert (one.thought, two.thought) == ("Let me look.", "")
    assert (one.meta["usage"], two.meta) == (TOLD, {})


@pytest.mark.parametrize(
    "text",
    [
        *(
            '{"a": NaN}',
            '{"a": 1, "a": 2}',
            "[1]",
            "",
            "7",
            '{"a": "\\ud800"',
            '{"a": 1e400}',
            '{"a": [-1e400]}',
        ),
        *(f'{{"a": {"9" * 5000}}}', '{"a": ' * 600 + "1" + "}" * 600, '{"a": ' * 90_000),
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_are_no_plain_map_stay_the_text_that_the_model_wrote(history, text):
    calls = [{"id": "k", "function": {"name": "f", "arguments": text}}]
    history.append({"role": "user", "content": "?"})
    (recorded,) = history.append_reply({"role": "assistant", "tool_calls": calls})
    assert recorded.event.arguments == text
    history.append_tool_result("k", "ok")
    for dialect in DIALECTS:
        problems = PROBLEMS[dialect](history.view().to_messages(dialect))
        assert problems == [] or "9" * 5000 in text, (
            "Python's parser refuses that many digits, and others do not"
        )


def test_a_map_of_arguments_that_the_store_cannot_hold_is_its_text(history):
    block = {"type": "tool_use", "id": "k", "name": "f", "input": {"a": float("inf"), "b": "é"}}
    (recorded,) = history.append_reply(
        {"role": "assistant", "content": [block], "stop_reason": "tool_use"}
    )
    assert recorded.event.arguments == '{"a": Infinity, "b": "é"}'


def test_the_objects_of_openais_sdk_say_the_same_as_their_json():
    chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses")
    said = completion({"content": "Let me look.", "tool_calls": CALLS}, "tool_calls")
    assert from_openai(chat.ChatCompletion.model_validate(said)) == from_openai(said)
    message = chat.ChatCompletionMessage.model_validate(said["choices"][0]["message"])
    assert [action.call_id for action in from_openai(message)] == ["k1", "k2"]
    assert from_openai(responses.Response.model_construct(**RESPONSE)) == from_openai(RESPONSE)


def test_the_objects_of_litellm_say_the_same_as_their_json():
    litellm = client._litellm()
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    said = completion(
        {"content": "Let me look.", "tool_calls": CALLS, "thinking_blocks": blocks}, "tool_calls"
    )
    one, two = from_openai(litellm.ModelResponse(**said))
    assert (one.thinking, one.thought, one.response_id) == (
        tuple(blocks),
        "Let me look.",
        "chatcmpl-1",
    )
    assert (one.meta["usage"], two.call_id) == (TOLD, "k2")


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-5",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Look:"}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "k1",
            "name": "run",
            "arguments": '{"command":"ls"}',
        },
        {
            "type": "custom_tool_call",
            "id": "fc_2",
            "call_id": "k2",
            "name": "patch",
            "input": "*** Begin",
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ],
    "usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 0}},
}


def test_a_response_of_openai():
    search, run, patch = from_openai(RESPONSE)
    assert (run.thinking, patch.thinking, search.name) == (
        (RESPONSE["output"][0],),
        (),
        "web_search_call",
    )
    assert (run.arguments, run.call_id, run.thought, run.response_id) == (
        {"command": "ls"},
        "k1",
        "Look:",
        "resp_1",
    )
    assert (patch.tool, patch.arguments, patch.call_id, patch.response_id) == (
        "patch",
        {"input": "*** Begin"},
        "k2",
        "resp_1",
    )
    assert run.meta == {
        "model": "gpt-5",
        "finish_reason": "completed",
        "usage": {**TOLD, "cached_tokens": 0},
        "item": {"id": "fc_1"},
        "items": [{"id": "msg_1"}],
    }
    items = from_openai(
        [*RESPONSE["output"], {"type": "function_call_output", "call_id": "k1", "output": "a.py"}]
    )
    assert [type(item).__name__ for item in items] == [
        "Annotation",
        "Action",
        "Action",
        "Observation",
    ]
    assert items[1].response_id == items[2].response_id == "response-k1"


def test_a_call_of_a_custom_tool_goes_back_as_one_to_the_server_that_has_such_tools():
    result = {"type": "custom_tool_call_output", "call_id": "k2", "output": "patched"}
    events = [
        replace(event, id=n) for n, event in enumerate(from_openai([RESPONSE["output"][3], result]))
    ]
    view = View.from_events(events)
    items = view.to_messages("responses")
    assert items == [
        {name: value for name, value in RESPONSE["output"][3].items() if name != "id"},
        result,
    ]
    assert view.to_messages("anthropic")[1]["content"][0]["input"] == {"input": "*** Begin"}
    completion = {"id": "k2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    (action,) = from_openai({"role": "assistant", "content": None, "tool_calls": [completion]})
    assert (action.arguments, action.meta) == ({"input": "*** Begin"}, {"custom_tool": True})


def test_reasoning_goes_back_to_the_server_that_gave_it():
    result = {"type": "function_call_output", "call_id": "k1", "output": "a.py"}
    items = View.from_events(from_openai([*RESPONSE["output"][:3], result])).to_messages(
        "responses"
    )
    assert items[:2] == [RESPONSE["output"][0], {"role": "assistant", "content": "Look:"}]
    assert [item["type"] for item in items[2:]] == ["function_call", "function_call_output"]
    reply = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": CALLS[:1],
    }
    events = from_openai([reply, {"role": "tool", "tool_call_id": "k1", "content": "a.py"}])
    assert View.from_events(events).to_messages("openai-reasoning")[0]["reasoning_content"] == "hm"
    assert "reasoning_content" not in View.from_events(events).to_messages("openai")[0]
    said = from_openai({"role": "assistant", "content": "done", "reasoning_content": "so"})
    assert View.from_events(said).to_messages("openai-reasoning")[0]["reasoning_content"] == "so"


def test_items_of_several_responses_stay_in_their_order():
    call = {"type": "function_call", "call_id": "k1", "name": "ls", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "k1", "output": "a.py"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "One."}],
    }
    events = from_openai(
        [{"role": "user", "content": "?"}, call, result, {**call, "call_id": "k2"}, said, said]
    )
    assert [type(event) for event in events] == [Message, Action, Observation, Action]
    assert (events[1].thought, events[3].thought) == ("", "One.\n\nOne.")
    one, two, three = from_openai([call, result, said])
    assert (one.thought, two.call_id, three) == ("", "k1", Message(source="agent", content="One."))


def test_a_message_of_anthropic():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [
            thinking,
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "k1", "name": "run", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "k2", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    one, two = from_openai(reply)
    assert (one.thinking, one.thought, one.arguments) == (
        (thinking,),
        "Let me look.",
        {"command": "ls"},
    )
    assert (two.tool, two.response_id, one.meta["finish_reason"]) == ("look", "msg_1", "tool_use")
    blocks = [SimpleNamespace(**block) for block in reply["content"]]
    assert from_openai(SimpleNamespace(**{**reply, "content": blocks})) == (one, two)
    (answer,) = from_openai({**reply, "content": reply["content"][:2]})
    assert (answer.content, answer.thinking) == ("Let me look.", (thinking,))
    failed = {
        "type": "tool_result",
        "tool_use_id": "k1",
        "content": "no such file",
        "is_error": True,
    }
    result, said = from_openai(
        {"role": "user", "content": [failed, {"type": "text", "text": "go on"}]}
    )
    assert (result.call_id, result.content, result.is_error) == ("k1", "no such file", True)
    assert said == Message(source="user", content="go on")
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "depth"},
    }
    (asked,) = from_openai({"role": "user", "content": [document]})
    assert View.from_events([asked]).to_messages("anthropic")[0]["content"] == [document]


def test_the_tool_that_asks_for_a_condensation_is_a_request_and_no_call():
    tool = foldlog.request_condensation_tool()["function"]["name"]
    calls = [{"id": "k9", "function": {"name": tool, "arguments": "{}"}}, CALLS[0]]
    action, request = from_openai({"role": "assistant", "tool_calls": calls})
    assert (type(action), type(request)) == (Action, CondensationRequest)


def test_what_is_no_reply_is_named():
    with pytest.raises(InvalidArgument, match="has 2 choices; give the message of one"):
        from_openai({"choices": [1, 2]})
    with pytest.raises(InvalidArgument, match="a chunk of a stream"):
        from_openai({"choices": [{"delta": {"content": "x"}}]})
    with pytest.raises(InvalidArgument, match=r"of type generator.*collect the chunks"):
        from_openai(chunk for chunk in "ab")
    for wrong, said in (
        ("hi", "type str"),
        (None, "type NoneType"),
        ({"a": 1}, "with a"),
        (object(), "type object"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            from_openai(wrong)
    with pytest.raises(InvalidArgument, match="the role 'critic'"):
        from_openai({"role": "critic", "content": "x"})


# --- in a history ---


def test_a_loop_needs_no_mapping_by_hand(history):
    history.append(Message(source="user", content="Which files?"))
    assert len(history.append_reply(completion({"tool_calls": CALLS}))) == 2
    for call in history.open_calls():
        recorded = history.append_tool_result(call.call_id, "a.py", is_error=call.call_id == "k2")
        assert (recorded.event.cause, recorded.event.tool) == (call.id, "run")
    history.append_reply(Reply(text="One.", model="m", usage={"total_tokens": 4}))
    call = ToolCall(name="run", arguments='{"command": "ls"}', id="k1")
    own = from_openai(Reply(text="hm", model="m", tool_calls=(call,), response_id="r1"))
    assert [(event.thought, event.response_id, event.call_id) for event in own] == [
        ("hm", "r1", "k1")
    ]
    messages = history.prepare().to_messages()
    assert messages == history.view().to_messages()
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["k1", "k2"]
    assert len(history) == 6


def of_openai(n):
    call = {
        "id": f"k{n}",
        "type": "function",
        "function": {"name": "run", "arguments": f'{{"n": {n}}}'},
    }
    message = {"role": "assistant", "content": f"step {n}", "tool_calls": [call]}
    return {"id": "chatcmpl-1", "choices": [{"finish_reason": "tool_calls", "message": message}]}


def of_anthropic(n):
    call = {"type": "tool_use", "id": f"k{n}", "name": "run", "input": {"n": n}}
    return {"id": "msg_x", "type": "message", "role": "assistant", "content": [call]}


def of_chat(n):
    call = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "run", "arguments": f'{{"n": {n}}}'},
    }
    return {"role": "assistant", "content": f"step {n}", "tool_calls": [call]}


@pytest.mark.parametrize("reply", [of_openai, of_anthropic, of_chat])
@pytest.mark.parametrize("key", [None, "key {}"])
def test_replies_with_one_id_stay_apart_and_a_repeated_one_is_recognized(history, reply, key):
    for n in range(4):
        added = history.append_reply(reply(n), idempotency_key=key and key.format(n))
        if key is not None:
            assert history.append_reply(reply(n), idempotency_key=key.format(n)) == added
        history.append_tool_result(added[0].event, "ok")
        if n == 2:
            history.append({"role": "user", "content": "stop"})
    roles = [message["role"] for message in history.view().to_messages("openai")]
    assert roles == [*("assistant", "tool") * 3, "user", "assistant", "tool"]


@pytest.mark.parametrize(
    "told", [{"timestamp": 1760000001}, {"created_at": "2025-10-09T08:53:21Z"}]
)
def test_a_bare_message_tells_time_model_usage_and_cost(history, told):
    message = {
        "role": "assistant",
        "content": "yo",
        "model": "m",
        "usage": {"prompt_tokens": 3, "cost": 0.5},
    } | told
    (recorded,) = history.append_reply(message)
    of_call = {"model": "m", "usage": {"prompt_tokens": 3}, "cost": 0.5}
    assert recorded.event.timestamp == datetime(2025, 10, 9, 8, 53, 21, tzinfo=UTC)
    assert recorded.event.meta.items() >= of_call.items()
    assert list(history.export("openai-chat")) == [message]


def test_what_is_no_reply_of_a_model_is_refused_and_its_usage_can_be_kept(history):
    for message, has in (
        ({}, "reply"),
        ({"content": ""}, "reply"),
        ({"reasoning_content": "hm"}, "reasoning"),
    ):
        with pytest.raises(
            InvalidEvent,
            match=f"neither a text nor a tool call; nothing was appended; it has {has};",
        ):
            history.append_reply(completion(message, "content_filter"))
    for named in ("web_search_call", "ai"):
        with pytest.raises(InvalidEvent, match=f"nothing was appended; it has {named};"):
            history.append_reply({"type": named, "content": "hm"})
    for role in ("user", "system", "developer"):
        message = {"role": role, "content": "hi"}
        with pytest.raises(
            InvalidEvent,
            match=r"of the (user|agent|environment) is not the reply .*append\(message\)",
        ):
            history.append_reply(message)
        assert len(foldlog.from_openai(message)) == 1
    with pytest.raises(InvalidArgument, match="an object with output is not the reply of a model"):
        history.append_reply({"output": ["hi"]})
    assert len(history) == 0
    usage = {"id": "r", "model": "gpt-4o", "usage": USAGE}
    for reply in (
        *(completion(message) for message in ({}, {"content": ""}, {"reasoning_content": "hm"})),
        {"output": [{"type": "reasoning", "id": "r"}], **usage},
        {"role": "assistant", "type": "message", "content": [], **usage},
    ):
        history.append(from_openai(reply))  # as the error says
    (spent,) = history.stats().models.values()
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (5, 5 * 7, 5 * 3)


def test_a_result_names_its_call_by_the_action_too(history):
    history.append([Action(tool="run", call_id="k1"), Action(tool="look")])
    first, nameless = history.open_calls()
    told = [history.append_tool_result(call, "x").event for call in (nameless, first)]
    assert [(event.tool, event.call_id, event.cause) for event in told] == [
        ("look", None, 1),
        ("run", "k1", 0),
    ]
    assert history.open_calls() == ()
    with pytest.raises(InvalidEvent, match="call 'k1' already has a result"):
        history.append_tool_result(first, "x")


RESULTS = {
    '{"at": "2026-03-01 00:00:00", "é": [1, null]}': {"at": datetime(2026, 3, 1), "é": [1, None]},
    '[{"id": 7}, "x"]': ({"id": 7}, "x"),
    '[{"id": 7}]': [{"id": 7}],
    "2.5": 2.5,
    '{"loss": "NaN", "é": ["-Infinity", 1e+300]}': {
        "loss": float("nan"),
        "é": (float("-inf"), 1e300),
    },
    "true": True,
    "null": None,
}


@pytest.mark.parametrize("text", RESULTS)
def test_a_result_that_is_json_is_shown_as_its_text(history, text):
    history.append_reply(completion({"tool_calls": CALLS}))
    assert history.append_tool_result("k1", RESULTS[text]).event.content == text


def test_a_result_without_its_call_is_refused_and_append_takes_it(history):
    history.append_reply(completion({"tool_calls": CALLS}))
    with pytest.raises(
        InvalidEvent, match="no action opened a call 'k3'; the open calls are 'k1', 'k2'"
    ):
        history.append_tool_result("k3", "x")
    history.append_tool_result("k1", "x")
    with pytest.raises(
        InvalidEvent, match="call 'k1' already has a result, event 2; the open calls are 'k2'"
    ):
        history.append_tool_result("k1", "x")
    with pytest.raises(TypeError, match="call_id is 7; give"):
        history.append_tool_result(7, "x")
    for value in (object(), {1, 2}):
        with pytest.raises(InvalidEvent, match="cannot be stored: its field content has"):
            history.append_tool_result("k2", value)
    for part in ({"type": "text"}, {"type": "output_text", "text": None}):
        with pytest.raises(
            InvalidArgument, match=r"part 1 of the tool message is .*; a part is a map"
        ):
            history.append_tool_result("k2", ({"type": "text", "text": "x"}, part))
    history.append(Observation(call_id="k3", content="x"))
    assert len(history) == 4


def test_a_result_is_recorded_once_however_often_it_is_sent_with_a_key(history):
    history.append_reply(completion({"tool_calls": CALLS[:1]}))
    first = history.append_tool_result("k1", "x", idempotency_key="k1")
    assert history.append_tool_result("k1", "x", idempotency_key="k1") == first
    with pytest.raises(IdempotencyConflict):
        history.append_tool_result("k1", "y", idempotency_key="k1")
    with pytest.raises(InvalidEvent, match="already has a result"):
        history.append_tool_result("k1", "x", idempotency_key="other")
    assert len(history) == 2


@pytest.mark.parametrize("since", ["condensed", "retracted", "the id is used again"])
def test_a_result_is_sent_again_with_its_key_whatever_became_of_its_call(history, since):
    (made,) = history.append_reply(completion({"tool_calls": CALLS[:1]}))
    first = history.append_tool_result("k1", "x", idempotency_key="k1")
    if since == "condensed":
        history.append(CondensationAction(forgotten_event_ids=(0, 1)))
    elif since == "retracted":
        history.retract(0)
    else:
        history.append_reply(completion({"tool_calls": CALLS[:1]}))
    for call in ("k1", made.event):
        assert history.append_tool_result(call, "x", idempotency_key="k1") == first
    with pytest.raises(IdempotencyConflict):
        history.append_tool_result("k9", "x", idempotency_key="k1")
    with pytest.raises(InvalidEvent, match="no action opened a call 'k9'"):
        history.append_tool_result("k9", "x", idempotency_key="k9")


def test_of_two_calls_with_one_id_the_newest_is_answered(history):
    for response in ("r1", "r2"):
        history.append(Action(tool="run", call_id="call_0", response_id=response))
        assert history.append_tool_result("call_0", response).event.cause == len(history) - 2


def test_many_results_at_once_answer_each_call_once(tmp_path):
    with foldlog.open(tmp_path / "h.db") as histories:
        history = histories["c1"]
        ids = [f"k{n}" for n in range(12)]
        history.append([Action(tool="run", call_id=each, response_id="r") for each in ids])
        refused = []

        def answer(call_id):
            try:
                history.append_tool_result(call_id, "x")
            except InvalidEvent:
                refused.append(call_id)

        at_once(answer, ids * 2)
        assert (sorted(refused), len(history), history.open_calls()) == (sorted(ids), 24, ())


# --- opening ---


def test_a_store_is_named_by_a_url_a_path_or_a_path_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("h.db", "./h.db", tmp_path / "h.db", "sqlite:///h.db", str(tmp_path / "h.db")):
        with foldlog.open(place) as histories:
            histories["c1"].append(Message(source="user", content="hi"))
    with foldlog.open("a b?mode=ro#.db") as histories:
        histories["c1"].append(Message(source="user", content="hi"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == [
        "a b?mode=ro#.db",
        "h.db",
    ]
    with foldlog.open("h.db") as histories:
        assert len(histories["c1"]) == 5


def test_an_address_that_is_none_is_an_invalid_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in ("history", ":memory:", "sqlit:///h.db", "http://x/h.db", "", "sqlite:h.db"):
        with pytest.raises(foldlog.errors.InvalidOption, match=r"history\.db"):
            foldlog.open(wrong)
    assert list(tmp_path.iterdir()) == []


def test_options_that_are_wrong_are_named(tmp_path):
    path = tmp_path / "h.db"
    for wrong, said in (
        ({"compression": "gzip"}, "unknown compression 'gzip'; choose"),
        ({"durability": "ful"}, "use full or relaxed"),
        ({"event_bytes_max": 0}, "event_bytes_max is 0"),
        ({"condenser": "recnt"}, r"allowed are .*recent_events.*end in \.toml"),
        ({"condenser": 5}, "condenser is of type int; give the name of a strategy"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            foldlog.open(path, **wrong)
        assert isinstance(caught.value, foldlog.EventStoreError)
    with pytest.raises(TypeError, match="keys must be a KeyRing"):
        foldlog.open(path, keys="secret")
    with pytest.raises(TypeError, match="named by a URL or by the path of a file, not by 5"):
        foldlog.open(5)


def test_keys_compression_and_the_limit_of_an_event_are_those_that_were_given(tmp_path):
    pytest.importorskip("cryptography")
    from pydantic import SecretStr

    path = tmp_path / "h.db"
    with foldlog.open(
        path, keys=foldlog.KeyRing([SecretStr("00" * 32)]), compression="zlib", event_bytes_max=500
    ) as histories:
        histories["c1"].append(Message(source="user", content="a secret"))
        with pytest.raises(InvalidEvent, match="the most for one event is 500"):
            histories["c1"].append(Message(source="user", content="x" * 600))
    assert b"a secret" not in path.read_bytes()
    with foldlog.open(path) as histories, pytest.raises(foldlog.errors.KeyUnavailable):
        list(histories["c1"].events())
    for same in ("00" * 32, ["00" * 32]):
        with foldlog.open(path, keys=foldlog.KeyRing(same)) as histories:
            assert [event.content for event in histories["c1"].events()] == ["a secret"]


def test_what_is_no_event_is_named(history):
    deep = []
    deep.append(deep)
    with pytest.raises(InvalidEvent, match="nested too deep to be stored"):
        history.append({"role": "user", "content": deep})
    for wrong in ({"choices": []}, "hi", b"hi", None, 5, Message, object()):
        with pytest.raises(
            TypeError, match=r"append takes one event.*history.append\(Message\(.*append_reply"
        ):
            history.append(wrong)
    for wrong in ({"role": "user"}, {"role": "user", "content": 5}, {"role": "assistant"}):
        with pytest.raises(
            (InvalidArgument, InvalidEvent), match=r"content of the user message|neither a text nor"
        ):
            history.append(wrong)
    with pytest.raises(
        InvalidEvent, match="its source is 'usr'; use 'user', 'agent', 'environment'"
    ):
        history.append(Message(source="usr", content="hi"))
    assert history.version() == 0


def test_a_result_in_a_chat_message_is_of_a_call_that_was_made(history):
    call = {"id": "k", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    made, result = (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "k"},
    )
    result["content"] = "ok"
    for wrong in (result, [result, made], [{"role": "user", "content": "hi"}, result]):
        with pytest.raises(
            InvalidEvent, match="the result of 'k', a call that no reply made; nothing was appended"
        ):
            history.append(wrong)
    with pytest.raises(
        InvalidEvent, match="the result of a call without tool_call_id, and no such call"
    ):
        history.append([made, {"role": "tool", "content": "ok"}])
    assert history.version() == 0
    history.append([made, result], idempotency_key="x")
    history.append(CondensationAction(forgotten_event_ids=[0, 1]))
    assert len(history.append([made, result], idempotency_key="x")) == 2
    assert history.append(result)[0].event.id == 3, "of a call that is forgotten"


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_result_names_its_tool_and_its_call(history, is_chat):
    def made(place):
        call = {
            "id": f"k{place}",
            "type": "function",
            "function": {"name": f"t{place}", "arguments": "{}"},
        }
        used = {"type": "tool_use", "id": f"k{place}", "name": f"t{place}", "input": {}}
        return {"role": "assistant", **({"tool_calls": [call]} if is_chat else {"content": [used]})}

    def result(place):
        block = {"type": "tool_result", "tool_use_id": f"k{place}", "content": "ok"}
        chat = {"role": "tool", "tool_call_id": f"k{place}", "content": "ok"}
        return chat if is_chat else {"role": "user", "content": [block]}

    history.append([made(0), result(0), made(1)])
    for key in (None, "x", "x"):
        (again,) = history.append(result(1), idempotency_key=key)
        assert (again.event.tool, again.event.cause) == ("t1", 2)
    history.append(CondensationAction(forgotten_event_ids=[0, 1, 2, 3]))
    (late,) = history.append([{"role": "user", "content": "hi"}, made(3), result(0)])[-1:]
    assert (late.event.tool, late.event.cause, len(history)) == ("t0", 0, 9)
    assert [event.tool for event in history.events() if isinstance(event, Observation)] == [
        "t0",
        "t1",
        "t1",
        "t0",
    ]
    assert {tool: counted.errors for tool, counted in history.stats().tools.items()} == {
        "t0": 0,
        "t1": 0,
        "t3": 0,
    }


def test_litellm_tells_no_cost_of_a_stream_without_usage():
    class Reply(dict):
        _hidden_params: ClassVar = {"response_cost": 0.5}

    for usage, cost in (
        ({}, None),
        ({"prompt_tokens": 0, "completion_tokens": 9}, None),
        (USAGE, 0.5),
    ):
        (said,) = from_openai(Reply(completion({"content": "hi"}), usage=usage))
        assert said.meta.get("cost") == cost


FILE = {"filename": "a.txt", "file_data": b"depth 4 m"}


@pytest.mark.parametrize(
    "reply",
    [
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "x", "citations": ["ODD"]}],
            "stop_reason": "end",
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "k", "name": "t", "input": {}, "caller": "ODD"}],
        },
        {"role": "assistant", "content": "x", "stop_reason": "end", "container": {"id": "ODD"}},
        {
            "output": [
                {
                    "type": "function_call",
                    "call_id": "k",
                    "name": "t",
                    "arguments": "{}",
                    "id": "ODD",
                }
            ]
        },
        {"output": [{"type": "message", "role": "assistant", "content": "x", "phase": "ODD"}]},
        {
            "output": [
                {"type": "message", "role": "assistant", "content": "x", "id": "m1"},
                {"type": "message", "role": "assistant", "content": "y", "id": "ODD"},
            ]
        },
        completion({"content": "x", "audio": {"id": "ODD"}}),
        completion({"content": "x", "refusal": "ODD"}),
        completion({"content": "x", "provider_specific_fields": {"citations": ["ODD"]}}),
        completion(
            {"content": "x", "images": [{"type": "image_url", "image_url": {"url": "ODD"}}]}
        ),
        completion({"tool_calls": [{**CALLS[0], "extra_content": "ODD"}]}),
    ],
)
def test_no_field_of_a_reply_is_lost(history, reply):
    history.append_reply(reply)
    assert "ODD" in repr([event.meta for event in history.view()])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "search_result", "source": "ODD"},
        {"type": "container_upload", "file_id": "ODD"},
        {"type": "image", "source": {"type": "file", "file_id": "ODD"}},
        {
            "type": "image",
            "source": {"type": "url", "url": "https://x"},
            "cache_control": {"type": "ODD"},
        },
        {"type": "image_url", "image_url": {"url": "ODD"}},
        {"type": "input_image", "file_id": "ODD"},
        {"type": "input_image", "image_url": "https://x", "detail": "ODD"},
        {"type": "input_file", "file_url": "ODD"},
    ],
)
def test_no_part_of_a_message_of_the_user_is_lost(history, part):
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "depth"},
    }
    for content in ([part], [document, part]):
        (recorded,) = history.append({"role": "user", "content": content})
        assert "ODD" in repr(recorded.event.content)


def test_a_chat_message_takes_the_parts_that_a_message_takes(history):
    history.append({"role": "user", "content": [{"type": "file", "file": FILE}]})
    history.append(Message(source="user", content=[{"type": "file", "file": FILE}]))
    one, two = history.view()
    assert one.content == two.content == ({"type": "file", "file": FILE},)
    assert "depth 4 m" in history.view().to_messages("openai")[0]["content"]


TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    "message, said",
    [
        (
            {"role": "user", "content": [None]},
            "part 0 of the user message is None; a part is a map",
        ),
        ({"role": "user", "content": ["x", 5]}, "part 1 of the user message is 5; a part is a map"),
        (
            {"role": "tool", "tool_call_id": "k", "content": {"a": 1}},
            "content of the tool message is {'a': 1}; give",
        ),
        (
            {"role": "user", "content": [{"type": "text"}]},
            "part 0 of the user message is {'type': 'text'}; a part is a",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": 5}]},
            "part 0 of the user message is .*; a part is a map",
        ),
        (
            {"role": "assistant", "content": [{"type": "text"}]},
            "part 0 of the assistant message is .*; a part is a map",
        ),
        (
            {
                "role": "assistant",
                "content": [TEXT, {"type": "text", "text": None}],
                "stop_reason": "end_turn",
            },
            "part 1 of the assistant message is .*; a part is a map",
        ),
        (
            {"role": "user", "content": [{**TEXT, "odd": float("nan")}]},
            "meta.message.content.*odd is nan",
        ),
        ({"role": "user", "content": "x", "odd": {1}}, "meta.message.odd has a value of type set"),
        (
            {"role": "user", "content": [{"type": "file", "file": object()}]},
            r"content\[0\].file has a value of type obj",
        ),
        (
            {"role": "user", "content": (part for part in "ab")},
            "content of the user message is <generator",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a"}]},
            "the call {'id': 'a'} does not name its tool",
        ),
        ({"role": "assistant", "tool_calls": ["a"]}, "the call 'a' does not name its tool"),
        (
            {"role": "assistant", "content": "hi", "tool_calls": "a"},
            "the call 'a' does not name its tool",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 5}}]},
            "of a call are 5; give",
        ),
        (
            [{"type": "human", "content": "hi"}],
            "append takes one event or chat message.* not a dict without a role",
        ),
        ({}, "append takes one event or chat message.* not a dict without a role"),
    ],
)
def test_odd_values_in_a_chat_message_are_named(history, message, said):
    with pytest.raises((InvalidArgument, InvalidEvent, TypeError), match=said):
        history.append(message)
    if isinstance(message, dict) and message.get("role") == "assistant":
        with pytest.raises(InvalidArgument, match=said):
            history.append_reply(message)
    assert len(history) == 0


def test_an_argument_of_a_wrong_type_is_named(history):
    history.append({"role": "user", "content": "hi"})
    reply = {"role": "assistant", "content": "x"}
    with pytest.raises(TypeError, match="timestamp must be a datetime with a time zone, not 'now'"):
        history.append_reply(reply, timestamp="now")
    for wrong in (
        history.request_condensation,
        history.condense,
        partial(history.retract, 0),
        history.pop,
    ):
        with pytest.raises(TypeError, match="reason must be a text, not 5"):
            wrong(reason=5)
    assert len(history) == 1
