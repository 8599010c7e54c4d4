"""A model's reply becomes events, whichever SDK brought it, and a tool's result finds its call.
``tests/golden/replies.json`` has replies and the events that they become.
"""

import json
from datetime import datetime
from types import SimpleNamespace
from typing import ClassVar

import pytest
from msgspec.structs import replace

import foldlog
from foldlog import Action, CondensationAction, Message, Observation, View, from_openai
from foldlog.condensers import Reply, ToolCall
from foldlog.condensers.models import client
from foldlog.errors import IdempotencyConflict, InvalidArgument, InvalidEvent, VersionConflict
from foldlog.eventstore.codec import encode
from foldlog.projections.messages.turns import DIALECTS
from tests.at_once import at_once
from tests.golden.rows import rows
from tests.projections.chat_rules import PROBLEMS
from tests.said import said

REPLIES = rows("replies.json", "replies")
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
CALLS = [
    {"id": "k1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}},
    {"id": "k2", "type": "function", "function": {"name": "run", "arguments": '{"command": '}},
]


def completion(message, finish_reason="stop", **fields):
    message = {"role": "assistant", "content": None, **message}
    choices = [{"index": 0, "finish_reason": finish_reason, "message": message}]
    return {"id": "chatcmpl-1", "model": "gpt-4o", "choices": choices, "usage": USAGE, **fields}


def written(event):
    encoded = encode(event, ours=True)
    return {"kind": encoded.kind, **json.loads(encoded.body)}


@pytest.mark.parametrize("rule", REPLIES)
def test_reply_becomes_events_and_messages_again(rule):
    case = REPLIES[rule]
    events = [replace(event, id=place) for place, event in enumerate(from_openai(case["reply"]))]
    assert [written(event) for event in events] == case["events"]
    for dialect, messages in case.get("messages", {}).items():
        assert View.from_events(events).to_messages(dialect) == messages


def as_openai(reply):
    chat = pytest.importorskip("openai.types.chat")
    return chat.ChatCompletion.model_validate(reply)


def as_message_of_openai(reply):
    return as_openai(reply).choices[0].message


def as_litellm(reply):
    return client._litellm().ModelResponse(**reply)


def as_response(reply):
    return pytest.importorskip("openai.types.responses").Response.model_construct(**reply)


def as_anthropic(reply):
    blocks = [SimpleNamespace(**block) for block in reply["content"]]
    return SimpleNamespace(**{**reply, "content": blocks})


@pytest.mark.parametrize(
    "build, rule",
    [
        (as_openai, "calls are actions, and the text beside them is the thought of the first"),
        (as_response, "a response of OpenAI"),
        (as_anthropic, "a message of Anthropic"),
    ],
)
def test_sdk_objects_equal_their_json(build, rule):
    reply = REPLIES[rule]["reply"]
    assert from_openai(build(reply)) == from_openai(reply)


@pytest.mark.parametrize("build", [as_message_of_openai, as_litellm])
def test_the_objects_of_a_chat_have_its_calls(build):
    thoughts = {"type": "thinking", "thinking": "hm", "signature": "s"}
    message = {"content": "Let me look.", "tool_calls": CALLS, "thinking_blocks": [thoughts]}
    first, second = from_openai(build(completion(message, object="chat.completion", created=1)))
    assert (first.call_id, first.thought, first.thinking) == ("k1", "Let me look.", (thoughts,))
    assert second.call_id == "k2"


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "[1]",
        "",
        "7",
        '{"a": "\\ud800"',
        '{"a": 1e400}',
        '{"a": [-1e400]}',
        f'{{"a": {"9" * 5000}}}',
        '{"a": ' * 600 + "1" + "}" * 600,
        '{"a": ' * 90_000,
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_are_no_map_stay_text(history, text):
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


def test_arguments_that_cannot_be_stored_become_text(history):
    block = {"type": "tool_use", "id": "k", "name": "f", "input": {"a": float("inf"), "b": "é"}}
    (recorded,) = history.append_reply({"role": "assistant", "content": [block]})
    assert recorded.event.arguments == '{"a": Infinity, "b": "é"}'


@pytest.mark.parametrize(
    "reply, why",
    [
        ({"choices": [1, 2]}, "has 2 choices; pass the message of one"),
        ({"choices": [{"delta": {"content": "x"}}]}, "a chunk of a stream"),
        ((chunk for chunk in "ab"), r"of type generator.*collect the chunks"),
        ("hi", "type str"),
        (None, "type NoneType"),
        ({"a": 1}, "with a"),
        (object(), "type object"),
        ({"role": "critic", "content": "x"}, "the role 'critic'"),
        ({"role": {}, "content": "x"}, "the role {}"),
    ],
)
def test_what_is_no_reply_is_named(reply, why):
    with pytest.raises(InvalidArgument, match=why):
        from_openai(reply)


def test_litellm_stream_without_usage_has_no_cost():
    class Reply(dict):
        _hidden_params: ClassVar = {"response_cost": 0.5}

    unknown = {"prompt_tokens": 0, "completion_tokens": 9}
    for usage, cost in (({}, None), (unknown, None), (USAGE, 0.5)):
        (event,) = from_openai(Reply(completion({"content": "hi"}, usage=usage)))
        assert event.meta.get("cost") == cost


# --- in a history ---


def test_a_loop_needs_no_mapping_by_hand(history):
    history.append(said("Which files?"))
    assert len(history.append_reply(completion({"tool_calls": CALLS}))) == 2
    for call in history.open_calls():
        recorded = history.append_tool_result(call.call_id, "a.py", is_error=call.call_id == "k2")
        assert (recorded.event.cause, recorded.event.tool) == (call.id, "run")
    history.append_reply(Reply(text="One.", model="m", usage={"total_tokens": 4}))
    messages = history.prepare().to_messages()
    assert messages == history.view().to_messages()
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["k1", "k2"]
    assert len(history) == 6


def test_a_reply_of_our_own_client_has_calls():
    call = ToolCall(name="run", arguments='{"command": "ls"}', id="k1")
    (action,) = from_openai(Reply(text="hm", model="m", tool_calls=(call,), response_id="r1"))
    assert (action.thought, action.response_id, action.call_id) == ("hm", "r1", "k1")


def of_chat(n, call_id="call_0"):
    function = {"name": f"t{n}", "arguments": f'{{"n": {n}}}'}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": f"step {n}", "tool_calls": [call]}


def of_openai(n):
    choice = {"finish_reason": "tool_calls", "message": of_chat(n, f"k{n}")}
    return {"id": "chatcmpl-1", "choices": [choice]}


def of_anthropic(n):
    call = {"type": "tool_use", "id": f"k{n}", "name": f"t{n}", "input": {"n": n}}
    return {"id": "msg_x", "type": "message", "role": "assistant", "content": [call]}


@pytest.mark.parametrize("reply", [of_openai, of_anthropic, of_chat])
@pytest.mark.parametrize("key", [None, "key {}"])
def test_replies_with_one_id_stay_apart(history, reply, key):
    for n in range(4):
        added = history.append_reply(reply(n), idempotency_key=key and key.format(n))
        if key is not None:
            assert history.append_reply(reply(n), idempotency_key=key.format(n)) == added
        history.append_tool_result(added[0].event, "ok")
        if n == 2:
            history.append(said("stop"))
    roles = [message["role"] for message in history.view().to_messages("openai")]
    assert roles == [*("assistant", "tool") * 3, "user", "assistant", "tool"]


OF_NO_MODEL = rows("replies.json", "replies of no model, and why")
EMPTY = [reply for reply, _ in OF_NO_MODEL[:3]]
"""Replies without a text and without a call."""


@pytest.mark.parametrize("reply, why", OF_NO_MODEL)
def test_reply_of_no_model_is_refused(history, reply, why):
    with pytest.raises((InvalidEvent, InvalidArgument), match=why):
        history.append_reply(reply)
    assert len(history) == 0


@pytest.mark.parametrize("expected", [{}, {"expected_version": 1}])
def test_reply_to_a_view_that_never_was_is_refused(history, expected):
    history.append({"role": "user", "content": "hi"})
    why = "a View of version 9, but the conversation is at version 1"
    with pytest.raises(InvalidArgument, match=why):
        history.append_reply({"role": "assistant", "content": "a"}, view_version=9, **expected)
    assert len(history) == 1
    history.append_reply({"role": "assistant", "content": "b"}, **expected)
    assert [message["content"] for message in history.view().to_messages()] == ["hi", "b"]


def test_reply_with_an_outdated_expected_version_conflicts(history):
    history.append({"role": "user", "content": "hi"})
    history.append({"role": "user", "content": "are you there?"})
    reply = {"role": "assistant", "content": "a"}
    with pytest.raises(VersionConflict):
        history.append_reply(reply, view_version=2, expected_version=1)


def test_usage_of_an_empty_reply_is_counted(history):
    usage = {"id": "r", "model": "gpt-4o", "usage": USAGE}
    response = {"output": [{"type": "reasoning", "id": "r"}], **usage}
    message = {"role": "assistant", "type": "message", "content": [], **usage}
    for reply in (*EMPTY, response, message):
        history.append(from_openai(reply))
    (spent,) = history.stats().models.values()
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens) == (5, 5 * 7, 5 * 3)


def test_result_may_name_the_action(history):
    history.append([Action(tool="run", call_id="k1"), Action(tool="look")])
    first, nameless = history.open_calls()
    results = [history.append_tool_result(call, "x").event for call in (nameless, first)]
    assert [(event.tool, event.call_id, event.cause) for event in results] == [
        ("look", None, 1),
        ("run", "k1", 0),
    ]
    assert history.open_calls() == ()
    with pytest.raises(InvalidEvent, match="call 'k1' already has a result"):
        history.append_tool_result(first, "x")


@pytest.mark.parametrize(
    "value, text",
    [
        (
            {"at": datetime(2026, 3, 1), "é": [1, None]},
            '{"at": "2026-03-01 00:00:00", "é": [1, null]}',
        ),
        (({"id": 7}, "x"), '[{"id": 7}, "x"]'),
        ([{"id": 7}], '[{"id": 7}]'),
        (2.5, "2.5"),
        (
            {"loss": float("nan"), "é": (float("-inf"), 1e300)},
            '{"loss": "NaN", "é": ["-Infinity", 1e+300]}',
        ),
        (True, "true"),
        (None, "null"),
    ],
)
def test_json_result_is_stored_as_text(history, value, text):
    history.append_reply(completion({"tool_calls": CALLS}))
    assert history.append_tool_result("k1", value).event.content == text


PART = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    "call_id, value, why",
    [
        ("k3", "x", "the View shows no open call 'k3'; the open calls are 'k2'"),
        ("k1", "x", "call 'k1' already has a result, event 2; the open calls are 'k2'"),
        (7, "x", "call_id is 7; give"),
        ("k2", object(), "cannot be stored: its field content has"),
        ("k2", {1, 2}, "cannot be stored: its field content has"),
        ("k2", (PART, {"type": "text"}), r"part 1 of the tool message is .*; a part is a map"),
        ("k2", (PART, {"type": "output_text", "text": None}), "part 1 of the tool message is"),
    ],
)
def test_result_without_its_call_is_refused(history, call_id, value, why):
    history.append_reply(completion({"tool_calls": CALLS}))
    history.append_tool_result("k1", "x")
    with pytest.raises((InvalidEvent, InvalidArgument, TypeError), match=why):
        history.append_tool_result(call_id, value)
    history.append(Observation(call_id="k3", content="x"))
    assert len(history) == 4


@pytest.mark.parametrize("since", ["nothing", "condensed", "retracted", "the id is used again"])
def test_repeated_result_is_recognized_by_its_key(history, since):
    (recorded,) = history.append_reply(completion({"tool_calls": CALLS[:1]}))
    first = history.append_tool_result("k1", "x", idempotency_key="k1")
    if since == "condensed":
        history.append(CondensationAction(forgotten_event_ids=(0, 1)))
    elif since == "retracted":
        history.retract(0)
    elif since == "the id is used again":
        history.append_reply(completion({"tool_calls": CALLS[:1]}))
    for call in ("k1", recorded.event):
        assert history.append_tool_result(call, "x", idempotency_key="k1") == first
    for call, value in (("k1", "y"), ("k9", "x")):
        with pytest.raises(IdempotencyConflict):
            history.append_tool_result(call, value, idempotency_key="k1")
    with pytest.raises(InvalidEvent, match="the View shows no open call 'k9'"):
        history.append_tool_result("k9", "x", idempotency_key="k9")


def test_newest_of_equal_call_ids_is_answered(history):
    for response in ("r1", "r2"):
        history.append(Action(tool="run", call_id="call_0", response_id=response))
        assert history.append_tool_result("call_0", response).event.cause == len(history) - 2


def test_many_results_at_once_answer_each_call_once(tmp_path):
    with foldlog.open(tmp_path / "h.db") as histories:
        history = histories["c1"]
        ids = [f"k{n}" for n in range(12)]
        history.append([Action(tool="run", call_id=call_id, response_id="r") for call_id in ids])
        refused = []

        def answer(call_id):
            try:
                history.append_tool_result(call_id, "x")
            except InvalidEvent:
                refused.append(call_id)

        at_once(answer, ids * 2)
        assert (sorted(refused), len(history), history.open_calls()) == (sorted(ids), 24, ())


# --- what append takes ---


def nested_in_itself():
    deep = []
    deep.append(deep)
    return deep


@pytest.mark.parametrize(
    "message, why",
    [
        *rows("replies.json", "messages that are refused, and why"),
        ({"role": "user", "content": "x", "odd": {1}}, "meta.message.odd has a value of type set"),
        (
            {"role": "user", "content": [{"type": "file", "file": object()}]},
            r"content\[0\].file has a value of type obj",
        ),
        ({"role": "user", "content": (part for part in "ab")}, "user message is <generator"),
        ({"role": "user", "content": nested_in_itself()}, "nested too deep to be stored"),
        (
            Message(source="usr", content="hi"),
            "its source is 'usr'; use 'user', 'agent', 'environment'",
        ),
        *(
            (wrong, r"append takes one event.*history.append\(Message\(.*append_reply")
            for wrong in ({"choices": []}, "hi", b"hi", None, 5, Message, object())
        ),
    ],
)
def test_append_names_what_is_no_event(history, message, why):
    with pytest.raises((InvalidArgument, InvalidEvent, TypeError), match=why):
        history.append(message)
    if isinstance(message, dict) and message.get("role") == "assistant":
        with pytest.raises((InvalidArgument, InvalidEvent), match=why):
            history.append_reply(message)
    assert history.version() == 0


@pytest.mark.parametrize("reply", rows("replies.json", "replies whose odd field stays"))
def test_no_field_of_a_reply_is_lost(history, reply):
    history.append_reply(reply)
    assert "ODD" in repr([event.meta for event in history.view()])


@pytest.mark.parametrize("part", rows("replies.json", "parts of the user whose odd field stays"))
def test_no_part_of_a_user_message_is_lost(history, part):
    source = {"type": "text", "media_type": "text/plain", "data": "depth"}
    for content in ([part], [{"type": "document", "source": source}, part]):
        (recorded,) = history.append({"role": "user", "content": content})
        assert "ODD" in repr(recorded.event.content)


def test_chat_message_takes_files(history):
    file = {"type": "file", "file": {"filename": "a.txt", "file_data": b"depth 4 m"}}
    history.append([{"role": "user", "content": [file]}, said([file])])
    first, second = history.view()
    assert first.content == second.content == (file,)
    assert "depth 4 m" in history.view().to_messages("openai")[0]["content"]


def test_chat_result_needs_its_call(history):
    call = of_chat(0, "k")
    result = {"role": "tool", "tool_call_id": "k", "content": "ok"}
    for wrong in (result, [result, call], [said("hi"), result]):
        with pytest.raises((InvalidEvent, TypeError), match="the result of 'k', a call that no"):
            history.append(wrong)
    with pytest.raises(InvalidEvent, match="the result of a call without tool_call_id, and no"):
        history.append([call, {"role": "tool", "content": "ok"}])
    assert history.version() == 0
    history.append([call, result], idempotency_key="x")
    history.append(CondensationAction(forgotten_event_ids=[0, 1]))
    assert len(history.append([call, result], idempotency_key="x")) == 2
    assert history.append(result)[0].event.id == 3, "the call of this result is forgotten"


def chat_of(place):
    result = {"role": "tool", "tool_call_id": f"k{place}", "content": "ok"}
    return of_chat(place, f"k{place}"), result


def blocks_of(place):
    call = {"role": "assistant", "content": of_anthropic(place)["content"]}
    result = {"type": "tool_result", "tool_use_id": f"k{place}", "content": "ok"}
    return call, {"role": "user", "content": [result]}


@pytest.mark.parametrize("messages_of", [chat_of, blocks_of])
def test_a_result_names_its_tool_and_its_call(history, messages_of):
    (call, result), (later, its_result) = map(messages_of, range(2))
    history.append([call, result, later])
    for key in (None, "x", "x"):
        (again,) = history.append(its_result, idempotency_key=key)
        assert (again.event.tool, again.event.cause) == ("t1", 2)
    history.append(CondensationAction(forgotten_event_ids=[0, 1, 2, 3]))
    late = history.append([{"role": "user", "content": "hi"}, messages_of(3)[0], result])[-1]
    assert (late.event.tool, late.event.cause, len(history)) == ("t0", 0, 9)
    results = [event.tool for event in history.events() if isinstance(event, Observation)]
    assert results == ["t0", "t1", "t1", "t0"]
    errors = {tool: counted.errors for tool, counted in history.stats().tools.items()}
    assert errors == dict.fromkeys(("t0", "t1", "t3"), 0)


def test_thinking_beside_a_request_for_a_condensation_stays():
    asked = {"type": "tool_use", "id": "t", "name": "request_condensation", "input": {}}
    thought = {"type": "thinking", "thinking": "The window is nearly full.", "signature": "s"}
    reply = {"type": "message", "role": "assistant", "content": [thought, asked]}
    reasoning, request = from_openai(reply)
    assert (type(reasoning), reasoning.data) == (foldlog.Annotation, [thought])
    assert type(request) is foldlog.CondensationRequest
