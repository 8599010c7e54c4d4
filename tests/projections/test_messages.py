"""Views as chat messages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    Event,
    Message,
    Observation,
    Origin,
    SystemMessage,
)
from foldlog.projections import View

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}

BEFORE = {"role": "user", "content": "[The conversation before this point is not shown.]"}
"""Comes first where the assistant would."""


def messages(*events: Event) -> list[dict[str, Any]]:
    first, *others = View.from_events(events).to_messages()
    return others if first == BEFORE else [first, *others]


def call(call_id: str, **more: Any) -> Action:
    return Action(tool="run", call_id=call_id, arguments={"command": "ls"}, **more)


def answer(call_id: str, content: Any = "done") -> Observation:
    return Observation(content=content, call_id=call_id)


def tool_call(call_id: str, arguments: str = '{"command": "ls"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "run", "arguments": arguments}}


def test_each_kind_has_its_role():
    assert messages(
        SystemMessage(content="be brief"),
        Message(source="user", content="hi"),
        Message(source="agent", content="hello"),
        Message(source="environment", content="it is noon"),
        Annotation(name="bell", data={"rang": 12}, shown=True),
        Annotation(name="noon", shown=True, origin=Origin(format="openai-responses")),
    ) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "it is noon"},
                {"type": "text", "text": 'bell:\n{"rang": 12}'},
            ],
        },
    ], "what another runtime's format alone knows is not sent"


def test_a_call_is_answered_right_behind_it():
    assert messages(call("a", thought="let us see"), answer("a")) == [
        {"role": "assistant", "content": "let us see", "tool_calls": [tool_call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
    ]


def test_what_the_user_did_is_told_and_is_no_call():
    ran = Action(id=1, tool="run", arguments={"command": "ls"}, thought="I ran ls.", source="user")
    got = Observation(id=2, content="a.py", cause=1)
    silent = Action(id=3, tool="recall", source="environment")
    knowledge = Observation(id=4, content="a is new", cause=3)
    view = View.from_events(
        [Message(id=0, content="hi", source="user"), ran, got, silent, knowledge]
    )
    for dialect in ("openai", "litellm", "anthropic"):
        (message,) = view.to_messages(dialect=dialect)
        assert message["role"] == "user"
        said = message["content"]
        texts = said.split("\n\n") if isinstance(said, str) else [part["text"] for part in said]
        assert texts == ["hi", "I ran ls.", "a.py", "a is new"]
    assert view.then([Action(id=5, tool="run", source="user")]).open_calls == ()


def test_late_answers_come_up_to_their_calls():
    assert messages(
        call("a", response_id="r"),
        call("b", response_id="r"),
        answer("b", "second"),
        Message(source="user", content="hurry"),
        answer("a", "first"),
    ) == [
        {"role": "assistant", "content": None, "tool_calls": [tool_call("a"), tool_call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "first"},
        {"role": "tool", "tool_call_id": "b", "content": "second"},
        {"role": "user", "content": "hurry"},
    ]


@pytest.mark.parametrize(
    "between", [(), (Message(source="user", content="hurry"),)], ids=["results", "user"]
)
def test_calls_of_one_response_are_one_message_whatever_stands_between_them(between):
    events = [
        Message(source="user", content="read both"),
        call("a", response_id="r", thought="two reads", thinking=(SIGNED,)),
        answer("a", "first"),
        *between,
        call("b", response_id="r"),
        answer("b", "second"),
        Message(source="agent", content="done"),
    ]
    view = View.from_events([replace(event, id=place) for place, event in enumerate(events)])
    asked, calls, first, second, *rest = view.to_messages("litellm")
    assert asked == {"role": "user", "content": "read both"}
    assert calls == {
        "role": "assistant",
        "content": "two reads",
        "tool_calls": [tool_call("a"), tool_call("b")],
        "thinking_blocks": [SIGNED],
    }
    assert [first["content"], second["content"]] == ["first", "second"]
    assert [message["content"] for message in rest] == [
        *(event.content for event in between),
        "done",
    ]
    _, said, told, _ = view.to_messages("anthropic")
    assert [block["type"] for block in said["content"]] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert [block["type"] for block in told["content"]] == [
        "tool_result",
        "tool_result",
        *("text" for _ in between),
    ]
    assert view.rendered("anthropic")[1].positions == (1, len(events) - 3)


@pytest.mark.parametrize(
    "between", [call("c", response_id="s"), Message(source="agent", content="hm")], ids=repr
)
def test_another_reply_ends_the_calls_of_a_response(between):
    events = [
        call("a", response_id="r"),
        answer("a"),
        between,
        call("b", response_id="r"),
        answer("b"),
        answer("c"),
    ]
    told = messages(*(replace(event, id=place) for place, event in enumerate(events)))
    assert [
        [made["id"] for made in m.get("tool_calls", ())] for m in told if m["role"] == "assistant"
    ] == [
        ["a"],
        ["c"] if isinstance(between, Action) else [],
        ["b"],
    ]


def test_a_call_without_an_id_gets_one_and_one_that_repeats_an_id_gets_another():
    events = [
        Action(tool="run"),
        Observation(content="done", cause=0),
        call("a"),
        answer("a", "first"),
        call("a"),
        answer("a", "second"),
    ]
    ids = [made["id"] for message in messages(*events) for made in message.get("tool_calls", ())]
    assert ids == ["call_0", "a", "call_4"]
    assert [m["tool_call_id"] for m in messages(*events) if m["role"] == "tool"] == ids


def test_an_id_that_is_made_is_not_one_that_is_there():
    events = [
        call("call_2"),
        answer("call_2"),
        Action(tool="run"),
        Observation(content="done", cause=2),
    ]
    ids = [made["id"] for message in messages(*events) for made in message.get("tool_calls", ())]
    assert ids == ["call_2", "call_2_"]


@pytest.mark.parametrize(
    "arguments, text",
    [(None, "{}"), ({"a": "ä"}, '{"a": "ä"}'), ('{"a" :1}', '{"a" :1}'), (" ", "{}")],
)
def test_arguments_are_json_text_or_what_the_model_wrote(arguments: Any, text: str):
    (message, _) = messages(Action(tool="run", call_id="a", arguments=arguments), answer("a"))
    assert message["tool_calls"] == [tool_call("a", text)]


def test_a_summary_is_a_user_message_and_neighbouring_user_messages_are_one():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert messages(
        Message(source="user", content="hi"),
        Message(source="user", content=({"type": "text", "text": "look"}, image)),
        Message(source="agent", content="I see"),
        CondensationAction(
            forgotten_event_ids=(2,), summary="a picture was seen", summary_offset=2
        ),
    ) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "text", "text": "look"},
                image,
                {"type": "text", "text": "a picture was seen"},
            ],
        }
    ]


def test_who_changes_the_messages_does_not_change_the_view():
    parts = ({"type": "text", "text": "hi"}, {"type": "text", "text": "you"})
    view = View.from_events([Message(source="user", content=parts)])
    view.to_messages()[0]["content"][0]["text"] = "changed"
    assert view.to_messages() == [{"role": "user", "content": list(parts)}]


def test_each_message_says_of_which_events_it_was_made():
    view = View.from_events(
        [
            Message(source="user", content="hi"),
            call("lost"),
            call("a", response_id="r"),
            call("b", response_id="r"),
            answer(
                "a", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
            ),
            answer("b"),
            Message(source="user", content="more"),
            Message(source="user", content="and more"),
        ]
    )
    assert [positions for _, positions in view.rendered()] == [(0,), (2, 3), (4,), (5,), (6, 7)]
    assert view.rendered("openai")[-1].positions == (4, 6, 7), "the picture follows the results"
    assert [message for message, _ in view.rendered()] == view.to_messages()
