"""What chat messages mean, the strange ones too."""

from __future__ import annotations

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats import encode
from tests.foldlog.formats.reading import reader_of

CHAT = "openai-chat"


def call(call_id, name="ls", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def answer(call_id, content="done", **more):
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


read = reader_of(CHAT)


def test_who_speaks():
    parts = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:1"}}]
    events = read(
        {"role": "system", "content": "You are"},
        {"role": "developer", "content": "You are too"},
        {"role": "user", "content": parts, "name": "Ann"},
        {"role": "assistant", "content": "hello", "refusal": None},
        {"role": "exit", "content": ""},
    )
    assert [type(event) for event in events] == [SystemMessage, SystemMessage, Message, Message, Message]
    assert [event.source for event in events] == ["agent", "agent", "user", "agent", "environment"]
    assert events[2].content == tuple(parts)
    assert [event.origin.id for event in events] == [None] * 5


def test_calls_of_one_message_are_actions_of_one_response_and_come_back_as_one_message():
    events = read(
        {"role": "user", "content": "go"},
        calls(call("a", "ls"), call("b", "cat", '{"f": 1}'), content="I look"),
        answer("b", name="cat"),
        answer("a"),
        calls(call("a")),
    )
    first, second = events[1:3]
    assert [type(event) for event in events[1:5]] == [Action, Action, Observation, Observation]
    assert (first.tool, first.arguments, first.thought, first.call_id) == ("ls", "{}", "I look", "a")
    assert (second.tool, second.arguments, second.thought, second.call_id) == ("cat", '{"f": 1}', "", "b")
    assert first.response_id == second.response_id != events[5].response_id
    assert [(event.tool, event.cause) for event in events[3:5]] == [("cat", 2), ("ls", 1)]


def test_an_id_that_is_used_again_is_paired_in_order():
    events = read(calls(call("x", "one"), call("x", "two")), answer("x"), answer("x"), answer("x"), calls(call("x")))
    assert [event.cause for event in events[2:5]] == [0, 1, None]
    events = read(calls(call("x", "one")), answer("x"), calls(call("x", "two")), answer("x"))
    assert [event.cause for event in events] == [None, 0, None, 2]


def test_an_answer_before_its_call_answers_nothing():
    assert [event.cause for event in read(answer("x"), calls(call("x")))] == [None, None]


def test_functions_of_old_are_calls_too():
    made = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answers = ({"role": "function", "name": name, "content": "1"} for name in "fg")
    events = read(made, *answers)
    assert (events[0].tool, events[0].call_id, events[1].cause, events[2].cause) == ("f", "f", 0, None)


def test_a_history_of_ours_can_be_written_as_chat():
    events = [
        SystemMessage(id=0, content="You are"),
        Message(id=1, source="user", content="hi"),
        Annotation(id=2, name="spent", data={"cost": 1}),
        Action(id=3, tool="ls", arguments="{}", call_id="a", response_id="r1", thought="look"),
        Action(id=4, tool="cat", arguments="{}", call_id="b", response_id="r1"),
        Observation(id=5, content="x", tool="ls", call_id="a", cause=3),
        CondensationAction(id=6, forgotten_event_ids=(1,)),
        CondensationSummary(id=7, content="what was"),
        Message(id=8, source="agent", content="bye"),
    ]
    assert list(encode(events, CHAT)) == [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "look", "tool_calls": [call("a", "ls"), call("b", "cat")]},
        {"role": "tool", "content": "x", "name": "ls", "tool_call_id": "a"},
        {"role": "user", "content": "what was"},
        {"role": "assistant", "content": "bye"},
    ]


def test_arguments_of_a_call_are_written_as_the_text_that_servers_take():
    made = [Action(id=0, tool="ls", arguments={"path": "a"}, call_id="a"), Action(id=1, tool="ls", arguments='{"pa')]
    written = [call for message in encode(made, CHAT) for call in message["tool_calls"]]
    assert [call["function"]["arguments"] for call in written] == ['{"path": "a"}', '{"pa']
