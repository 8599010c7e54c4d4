"""Each real program delegates to two sub-agents side by side, and one of them to a sub-agent of its
own. The tree and each sum are as the stand-in served them, and as the program's own files have
them.
"""

import json
import re
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import pytest

from tests.programs import recorded
from tests.programs.delegating import Delegating, Spent, Step, prompt_of
from tests.programs.driving import PROGRAMS, QwenCode

DELEGATING = {**PROGRAMS, QwenCode.name: QwenCode}
BEGUN_BY = {"main": None, "red": "main", "blue": "main", "green": "blue"}


class Tools(NamedTuple):
    """The tools of a program that begin a sub-agent, fail and work.

    ``end``       the steps by which an agent waits for its sub-agents and returns its result.
    ``answer``    what the result of the call contains that began an agent.
    ``is_nested`` whether a sub-agent may begin another. Otherwise the program refuses its call.
    ``is_split``  whether the program records each agent in a conversation of its own.
    """

    delegate: Callable
    fails: tuple
    works: tuple
    recorded: Callable
    prepare: Callable = lambda program: None
    end: Callable = lambda agent, below: [Step(f"{agent} ends")]
    answer: Callable = lambda agent, conversation: f"{agent} ends"
    is_nested: bool = True
    is_split: bool = True

    def scripts(self):
        red, blue, green = (self.delegate(agent) for agent in ("red", "blue", "green"))
        return {
            "main": [Step(calls=[red, blue]), *self.end("main", ["red", "blue"])],
            "red": [
                Step(calls=[self.fails], after=("blue",)),
                Step(calls=[self.works]),
                *self.end("red", []),
            ],
            "blue": [Step(calls=[green], after=("red",)), *self.end("blue", ["green"])],
            "green": [Step(calls=[self.works]), *self.end("green", [])],
        }


def waiting(agent, below):
    """Return a script of sub-agents of Codex that work beside their parent, which waits for them."""

    def wait(number, messages):
        ids = dict.fromkeys(re.findall(r"agent_id\W+([0-9a-f-]{36})", json.dumps(messages)))
        return [("wait_agent", {"targets": [[*ids][number]], "timeout_ms": 60_000})]

    waits = [
        Step(calls=lambda messages, number=number: wait(number, messages), until=tuple(below))
        for number in range(len(below))
    ]
    return [*waits, Step(f"{agent} ends")]


def completing(agent, below):
    if agent == "main":
        return [Step("main ends")]
    return [Step(calls=[("complete_task", {"result": f"{agent} ends"})])]


def change(path, **settings):
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def depth_of_codex(program):
    with (program.home / ".codex/config.toml").open("a") as file:
        file.write("[agents]\nmax_depth = 2\n")


def helper_of_gemini(program):
    about = "---\nname: helper\ndescription: Helps.\nkind: local\ntools: ['*']\n---\nHelp.\n"
    program.write(".gemini/agents/helper.md", about)
    change(program.home / ".gemini/settings.json", experimental={"enableAgents": True})


def depth_of_opencode(program):
    change(
        program.home / ".config/opencode/opencode.json",
        subagent_depth=2,
        agent={"general": {"permission": {"task": "allow"}}},
    )


def titled(agent, **more):
    return {"description": agent, "prompt": prompt_of(agent), **more}


TOOLS = {
    "claude-code": Tools(
        lambda agent: (
            "Agent",
            titled(agent, subagent_type="general-purpose", run_in_background=False),
        ),
        ("Read", {"file_path": "missing.txt"}),
        ("Read", {"file_path": "notes.txt"}),
        recorded.claude_code,
    ),
    "codex": Tools(
        lambda agent: ("spawn_agent", {"message": prompt_of(agent)}),
        ("exec_command", {"cmd": "exit 3"}),
        ("exec_command", {"cmd": "cat notes.txt"}),
        recorded.codex,
        depth_of_codex,
        waiting,
        answer=lambda agent, conversation: conversation,  # the answer comes to a later call
    ),
    "gemini": Tools(
        lambda agent: ("invoke_agent", {"agent_name": "helper", "prompt": prompt_of(agent)}),
        ("read_file", {"file_path": "missing.txt"}),
        ("read_file", {"file_path": "notes.txt"}),
        recorded.gemini_cli,
        helper_of_gemini,
        completing,
        is_nested=False,
    ),
    "opencode": Tools(
        lambda agent: ("task", titled(agent, subagent_type="general")),
        ("read", {"filePath": "missing.txt"}),
        ("read", {"filePath": "notes.txt"}),
        recorded.opencode,
        depth_of_opencode,
    ),
    "qwen-code": Tools(
        lambda agent: (
            "agent",
            titled(agent, subagent_type="general-purpose", run_in_background=False),
        ),
        ("read_file", {"file_path": "/missing.txt"}),
        ("run_shell_command", {"command": "cat notes.txt", "is_background": False}),
        recorded.qwen_code,
    ),
    "copilot": Tools(
        lambda agent: (
            "task",
            titled(agent, name=agent, agent_type="general-purpose", mode="sync"),
        ),
        ("view", {"path": "/missing.txt"}),
        ("bash", {"command": "cat notes.txt", "description": "works"}),
        recorded.copilot_cli,
        is_split=False,
    ),
}


class Counted(NamedTuple):
    parent: str | None
    spent: Spent
    errors: int


def spent_in(document):
    return Spent(*(document["spent"][name] for name in Spent._fields))


def counted_by(documents, agents):
    """Return what foldlog counted for each agent. ``agents`` are the agents of conversations."""
    return {
        agents[each["conversation"]]: Counted(
            agents.get((each.get("attributes") or each).get("parent")),
            spent_in(each),
            each["errors"],
        )
        for each in documents
    }


def document(program, *arguments):
    return json.loads(program.foldlog(*arguments, "--json"))


@pytest.fixture(params=TOOLS)
def task(request, tmp_path):
    """The program, its tools, and what was served to each agent of its task."""
    tools = TOOLS[request.param]
    with closing(Delegating(tools.scripts())) as model:
        program = DELEGATING[request.param](tmp_path, model)
        tools.prepare(program)
        (program.work / "notes.txt").write_text("It is here.\n")
        program.say(prompt_of("main"))
        assert model.problems == []
        yield program, tools, dict(model.spent)


def expected(tools, served):
    refused = {} if tools.is_nested else {"blue": 1}
    errors = {"red": 1, **refused}
    if not tools.is_split:
        return {"main": Counted(None, sum(served.values(), Spent()), sum(errors.values()))}
    return {
        agent: Counted(BEGUN_BY[agent], spent, errors.get(agent, 0))
        for agent, spent in served.items()
    }


def check_task(summed, counts):
    assert spent_in(summed) == sum((count.spent for count in counts.values()), Spent())
    assert summed["errors"] == sum(count.errors for count in counts.values())
    assert summed["sub_agents"] == len(counts) - 1


def check_calls(program, tools, conversations):
    """Each sub-agent began with the call that has its prompt, and the call got its result."""
    for conversation, each in conversations.items():
        if each.parent is None:
            continue
        events = document(program, "view", each.parent)["events"]
        (call,) = [
            event["id"]
            for event in events
            if event["kind"] == "action" and prompt_of(each.agent) in str(event["arguments"])
        ]
        (begun,) = document(program, "why", each.parent, str(call), "--with-children")["agents"]
        assert (begun["conversation"], begun["call"]) == (conversation, call)
        (result,) = [event for event in events if event["id"] == begun["result"]]
        assert tools.answer(each.agent, conversation) in str(result["content"])


def test_task_has_the_served_tree_and_sums(task):
    program, tools, served = task
    assert served.keys() == {*BEGUN_BY} - (set() if tools.is_nested else {"green"})
    counts = expected(tools, served)
    conversations = tools.recorded(program.home)
    agents = {conversation: found.agent for conversation, found in conversations.items()}
    assert {
        each.agent: Counted(agents.get(each.parent), each.spent, each.errors)
        for each in conversations.values()
    } == counts
    (top,) = [name for name, found in conversations.items() if found.parent is None]

    imported = program.foldlog("import", "--from", program.format)

    assert f"of {len(counts)} conversation" in imported
    for _ in ("counted from records", "counted from events"):
        rows = document(program, "list", "--long")["conversations"]
        assert counted_by(rows, agents) == counts
        if tools.is_split:
            check_task(next(row for row in rows if row["conversation"] == top)["task"], counts)
            summed = document(program, "stats", top)["task"]
            check_task(summed, counts)
            assert counted_by(summed["agents"], agents) == counts
            assert {agent["state"] for agent in summed["agents"]} <= {"answer", "result"}
        for conversation in conversations:
            program.foldlog("view", conversation)  # the first use makes the events
    check_calls(program, tools, conversations)
