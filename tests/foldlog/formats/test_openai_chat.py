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

CHAT = "openai-chat"


def call(call_id, name="ls", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


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
    made = [
        Action(id=0, tool="ls", arguments={"path": "a"}, call_id="a"),
        Action(id=1, tool="ls", arguments='{"pa'),
    ]
    written = [call for message in encode(made, CHAT) for call in message["tool_calls"]]
    assert [call["function"]["arguments"] for call in written] == ['{"path": "a"}', '{"pa']
