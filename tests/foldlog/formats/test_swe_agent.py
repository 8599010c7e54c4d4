"""What SWE-agent's messages mean, with tool calls and without."""

from __future__ import annotations


def message(role, content, kind, agent="main", **more):
    return {"role": role, "content": content, "agent": agent, "message_type": kind, **more}


def told(content, **more):
    return message("user", content, "observation", **more)


def called(*call_ids, thought="look"):
    calls = [
        {"id": it, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        for it in call_ids
    ]
    return message("assistant", thought, "action", thought=thought, action="ls", tool_calls=calls)


def answered(*call_ids, content="a.py"):
    return message("tool", content, "observation", tool_call_ids=list(call_ids))


SYSTEM = message("system", "You are", "system_prompt")


def test_an_import_says_once_that_history_processors_are_not_applied(foldlog, write):
    for name in ("a.traj", "b.traj"):
        write(
            name,
            [{"history": [{"role": "user", "content": name, "agent": "main"}], "trajectory": []}],
        )
    ran = foldlog("import", "a.traj", "b.traj")
    assert ran.status == 0
    assert ran.err == (
        "foldlog: note: a View of SWE-agent shows the whole history, "
        "before SWE-agent's history processors shortened it\n"
    )
    assert foldlog("import", "a.traj").err == ""


def test_the_calls_of_a_demonstration_do_not_count_as_calls(foldlog, write):
    demo = [{**each, "is_demo": True} for each in (called("x"), answered("x"))]
    write(
        "a.traj",
        [
            {
                "history": [SYSTEM, *demo, told("a kite"), called("c"), answered("c")],
                "trajectory": [],
            }
        ],
    )
    assert foldlog("import", "a.traj").status == 0
    found = foldlog("stats", "--json").document
    assert {name: each["calls"] for name, each in found["tools"].items()} == {"ls": 1}
    assert found["events"] == {"total": 6, "system": 1, "user": 1, "action": 2, "observation": 2}
