"""What SWE-agent's messages mean, with tool calls and without."""

from __future__ import annotations

from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats import decode, encode
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of

SWE = "swe-agent"


def message(role, content, kind, agent="main", **more):
    return {"role": role, "content": content, "agent": agent, "message_type": kind, **more}


def told(content, **more):
    return message("user", content, "observation", **more)


def said(thought, action, **more):
    content = f"{thought}\n```\n{action}\n```"
    return message("assistant", content, "action", thought=f"{thought}\n", action=f"{action}\n", **more)


def called(*call_ids, thought="look"):
    calls = [{"id": it, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for it in call_ids]
    return message("assistant", thought, "action", thought=thought, action="ls", tool_calls=calls)


def answered(*call_ids, content="a.py"):
    return message("tool", content, "observation", tool_call_ids=list(call_ids))


SYSTEM = message("system", "You are", "system_prompt")

read = reader_of(SWE)


def test_without_tool_calls_the_environment_answers_as_a_user():
    events = read(SYSTEM, told("mend it"), said("look", "ls"), told("a.py"), said("done", "submit"))
    assert [type(event) for event in events] == [SystemMessage, Message, Message, Message, Message]
    assert [event.source for event in events] == ["agent", "user", "agent", "environment", "agent"]
    assert events[2].content == "look\n```\nls\n```"
    roles = [it["role"] for it in View.from_events(events).to_messages()]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_a_demonstration_is_shown_and_what_follows_it_is_the_users():
    demo = [told("a gull", is_demo=True), said("fly", "fly", is_demo=True), told("it flew", is_demo=True)]
    demo.append(said("done", "submit", is_demo=True))
    events = read(SYSTEM, *demo, told("a kite"), said("look", "ls"), told("kite.py"))
    assert [event.source for event in events[1:]] == [
        *("environment", "agent", "environment", "agent"),
        *("user", "agent", "environment"),
    ]
    assert len(View.from_events(events)) == len(events)


def test_tool_calls_are_actions_and_ids_that_are_used_again_are_paired_in_order():
    events = read(told("go"), called("c"), answered("c"), called("c"), answered("c"), answered("c"))
    assert [type(event) for event in events[1:4]] == [Action, Observation, Action]
    assert (events[1].tool, events[1].thought, events[1].call_id) == ("ls", "look", "c")
    assert [event.cause for event in events[2::2]] == [1, 3]
    assert (events[2].tool, events[5].cause) == ("ls", None)


def test_a_message_that_answers_several_calls_is_an_observation_for_each():
    events = read(told("go"), called("c", "d"), answered("c", "d"), told("next"))
    assert [(type(event), event.cause) for event in events[3:5]] == [(Observation, 1), (Observation, 2)]
    assert [event.content for event in events[3:5]] == ["a.py", ""]
    messages = View.from_events(events).to_messages()
    assert [it["role"] for it in messages] == ["user", "assistant", "tool", "tool", "user"]


def test_what_was_added_since_is_written_as_swe_agent_would():
    events = list(decode([SYSTEM, told("go", agent="primary")], SWE))
    added = [
        Action(id=2, tool="ls", arguments="{}", call_id="a", thought="look"),
        Observation(id=3, content="x", tool="ls", call_id="a", cause=2),
        Observation(id=4, content="y", tool="ls", cause=2),
    ]
    assert list(encode([*events, *added], SWE))[2:] == [
        {key: value for key, value in called("a").items() if key != "action"} | {"agent": "primary"},
        message("tool", "x", "observation", agent="primary", tool_call_ids=["a"]),
        message("tool", "y", "observation", agent="primary", tool_call_ids=["call_2"]),
    ]


def test_an_import_says_once_that_history_processors_are_not_applied(foldlog, write):
    for name in ("a.traj", "b.traj"):
        write(name, [{"history": [{"role": "user", "content": name, "agent": "main"}], "trajectory": []}])
    ran = foldlog("import", "a.traj", "b.traj")
    assert ran.status == 0
    assert ran.err == (
        "foldlog: note: a View of SWE-agent shows the whole history, "
        "before SWE-agent's history processors shortened it\n"
    )
    assert foldlog("import", "a.traj").err == ""


def test_the_calls_of_a_demonstration_do_not_count_as_calls(foldlog, write):
    demo = [{**each, "is_demo": True} for each in (called("x"), answered("x"))]
    write("a.traj", [{"history": [SYSTEM, *demo, told("a kite"), called("c"), answered("c")], "trajectory": []}])
    assert foldlog("import", "a.traj").status == 0
    found = foldlog("stats", "--json").document
    assert {name: each["calls"] for name, each in found["tools"].items()} == {"ls": 1}
    assert found["events"] == {"total": 6, "system": 1, "user": 1, "action": 2, "observation": 2}
