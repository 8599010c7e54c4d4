"""Calls that wait for a result, and their end after a crash."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import foldlog
from foldlog import Action, CondensationAction, Observation
from foldlog.projections import View
from foldlog.projections.stored.revision_codec import PROJECTION
from tests.said import ids, said

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent_loop.py"


def call(name, *, response="r1", **fields):
    return Action(
        tool="run", arguments={"command": name}, call_id=name, response_id=response, **fields
    )


def result(name, content="done"):
    return Observation(tool="run", content=content, call_id=name)


def waiting(history):
    return [action.call_id for action in history.open_calls()]


def shown(history):
    """Return what the model is shown of each call."""
    return {
        message["tool_call_id"]: message["content"]
        for message in history.view().to_messages()
        if message["role"] == "tool"
    }


def test_closed_call_shows_its_sibling(history):
    history.append([said("go"), call("a"), call("b"), result("a", "it is done")])
    assert shown(history) == {}
    (recorded,) = history.close_open_calls("the power failed")
    assert recorded.event == Observation(
        id=4,
        timestamp=recorded.event.timestamp,
        tool="run",
        call_id="b",
        cause=2,
        content="interrupted: the power failed",
        is_error=True,
    )
    assert shown(history) == {"a": "it is done", "b": "interrupted: the power failed"}
    assert history.open_calls() == ()


def test_calls_without_own_ids_are_closed(history):
    history.append(
        [Action(tool="run"), Action(tool="run"), call("a"), result("a"), call("a", response="r2")]
    )
    assert ids(history.open_calls()) == [0, 1, 4]
    history.close_open_calls()
    assert history.open_calls() == ()
    assert len(shown(history)) == 4


def closed_late(history, monkeypatch, before):
    """Close the open calls of an earlier View, as if others had been quicker, and return the ids of
    the calls.
    """
    views = [before]
    current = history._views.current
    monkeypatch.setattr(
        history._views, "current", lambda name: views.pop() if views else current(name)
    )
    return [recorded.event.call_id for recorded in history.close_open_calls()]


def test_call_answered_meanwhile_is_not_closed(history, monkeypatch):
    history.append([call("a"), call("b")])
    before = history.view()
    history.append(result("a"))
    assert closed_late(history, monkeypatch, before) == ["b"]
    assert history.version() == 4


def test_retraction_meanwhile_is_read(history, monkeypatch):
    history.append([said("go"), CondensationAction(forgotten_event_ids=[0])])
    history.append([call("a"), call("b"), said("no")])
    before = history.view()
    history.retract(4)
    history._store.project(
        history.id, lambda writing: writing.put_records(PROJECTION, (), replace_all=True)
    )
    assert closed_late(history, monkeypatch, before) == ["a", "b"]


def test_open_calls_of_each_version(history):
    events = [
        call("a"),
        call("b"),
        result("a"),
        said("x"),
        call("c"),
        result("c"),
        result("b"),
    ]
    history.append([*events, call("hidden", shown=False)])
    waiting_at = [[], ["a"], ["a", "b"], ["b"], ["b"], ["b", "c"], ["b"], [], []]
    for version, expected in enumerate(waiting_at):
        assert [action.call_id for action in history.at(version).open_calls] == expected
        assert (
            history.at(version).open_calls
            == View.from_events(list(history.events(0, version))).open_calls
        )
    history.append(call("d"))
    assert waiting(history) == ["d"]
    for reason in ("", " \n"):
        history.append(call(f"e{reason}"))
        history.close_open_calls(reason)
        assert shown(history)[f"e{reason}"].startswith(
            "interrupted: the program stopped before it recorded a result"
        )
    history.append(call("f"))
    history.append(CondensationAction(forgotten_event_ids=[history.version() - 1]))
    assert waiting(history) == []


# -- a crash
# --------------------------------------------------------------------------------------------------

AGENT = """
import importlib.util, json, sys
from pathlib import Path
import foldlog
from foldlog.condensers import Reply, ToolCall
spec = importlib.util.spec_from_file_location("agent_loop", sys.argv[1])
agent_loop = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agent_loop)

class Model:
    replies = [
        Reply(text="Both at once.", model="m", response_id="r1", tool_calls=tuple(
            ToolCall("run", json.dumps({"command": command}), id=f"call-{n}")
            for n, command in enumerate(json.loads(sys.argv[3]))
        )),
        Reply(text="All is well.", model="m"),
    ]
    def complete(self, messages, *, tools):
        print(json.dumps(messages), flush=True)
        return self.replies.pop(0) if len(messages) < 2 else self.replies[-1]

with foldlog.open(f"sqlite:///{sys.argv[2]}") as histories:
    history = histories["agent"]
    if history.version() == 0:
        history.append(foldlog.Message(source="user", content="do both"))
    with history.lease(ttl_s=0.5):
        print(agent_loop.run_agent(history, Model(), Path.cwd(), say=print))
"""


def run_agent(store, *commands):
    return subprocess.run(
        [sys.executable, "-c", AGENT, str(EXAMPLE), str(store), json.dumps(commands)],
        cwd=store.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_killed_agent_repeats_no_begun_call(tmp_path):
    store = tmp_path / "agent.db"
    killed = run_agent(
        store, "echo one | tee one.txt", "kill -KILL $PPID", "echo three > three.txt"
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "one.txt").exists()
    assert not (tmp_path / "three.txt").exists()
    with foldlog.open(f"sqlite:///{store}") as histories:
        history = histories["agent"]
        assert waiting(history) == ["call-1", "call-2"]
        assert shown(history) == {}, "the model would see no result, not even of the finished call"

    again = run_agent(store)
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("All is well.\n")
    assert (tmp_path / "three.txt").exists()
    with foldlog.open(f"sqlite:///{store}") as histories:
        history = histories["agent"]
        assert history.open_calls() == ()
        results = shown(history)
        assert results["call-0"] == "one\n"
        assert results["call-1"].startswith("unknown: this call may have run, key ")
        assert results["call-2"] == "(no output)"
        names = [type(event).__name__ for event in history.events()]
        assert names == [
            *("Message", "Action", "Action", "Action"),
            *("Annotation", "Observation") * 3,
            "Message",
        ]
