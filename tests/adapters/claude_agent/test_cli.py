"""Runs of the Claude Code that the SDK ships, against a server in the test: mirrored, killed,
resumed elsewhere.
"""

import json
import os
import random
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
from claude_agent_sdk import ClaudeSDKClient, project_key_for_directory

import foldlog
from foldlog.adapters.claude_agent import FoldlogSessionStore
from tests.adapters.claude_agent.agent import environment, options
from tests.adapters.claude_agent.anthropic_server import AnthropicServer, blocks_of
from tests.adapters.contract import condensations
from tests.adapters.model_server import Reply
from tests.sound import assert_sound

ROOT = Path(__file__).parents[3]
# the SDK hands lines over some time after they were written
KILL = "sleep 3; kill -9 $AGENT; sleep 3"


def results_in(prompt):
    return sum(
        block["type"] == "tool_result"
        for message in prompt["messages"]
        for block in blocks_of(message)
    )


def use(number, command):
    return "Bash", f"toolu_{number:0>2}", {"command": command, "description": "work"}


def script(commands):
    """Return commands one after the other, each with a word before it, and then the end."""

    def play(prompt):
        steps_done = results_in(prompt)
        if not prompt.get("tools"):
            return Reply("a title")
        if steps_done < len(commands):
            return Reply(f"step {steps_done}", [use(steps_done, commands[steps_done])])
        return Reply("finished")

    return play


@pytest.fixture
def world(tmp_path):
    """Return what all agents share and what each agent gets: the store's URL, a folder, and a new
    home.
    """
    folder = tmp_path / "work"
    folder.mkdir()
    homes = iter(range(99))

    def home():
        path = tmp_path / f"home{next(homes)}"
        path.mkdir()
        return str(path)

    return f"sqlite:///{tmp_path / 'history.db'}", str(folder), home


def agent(url, server, home, folder, prompt, *resume):
    command = [
        sys.executable,
        "-m",
        "tests.adapters.claude_agent.agent",
        url,
        server.url,
        home,
        folder,
        prompt,
        *resume,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def conversation(url):
    with foldlog.open(url) as histories:
        (name,) = histories
        return name, list(histories[name].export()), histories[name].view().to_messages()


def test_a_session_goes_on_from_the_store_alone(world):
    url, folder, home = world
    server = AnthropicServer(script(["echo one"]))
    first = home()
    ran = agent(url, server, first, folder, "begin")
    assert json.loads(ran.stdout)["result"] == "finished", ran.stderr
    session = json.loads(ran.stdout)["session"]
    name, mirrored, messages = conversation(url)
    assert name == f"claude/{project_key_for_directory(folder)}/{session}"
    (local,) = Path(first).rglob(f"{session}.jsonl")
    lines = [json.loads(line) for line in local.read_text().splitlines()]
    assert [line for line in lines if "uuid" in line] == [
        line for line in mirrored if "uuid" in line
    ]
    assert [message["role"] for message in messages if message["role"] != "user"][-3:] == [
        "assistant",
        "tool",
        "assistant",
    ]
    ran = agent(url, server, home(), folder, "go on", session)
    assert json.loads(ran.stdout) == {
        "session": session,
        "result": "finished",
        "is_error": False,
    }, ran.stderr
    _, later, _ = conversation(url)
    assert later[: len(mirrored)] == mirrored
    assert len(later) > len(mirrored)
    assert server.problems == []
    server.close()


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_killed_agent_goes_on_in_another_process(world, url):
    _, folder, home = world
    server = AnthropicServer(script(["echo one", KILL]))
    killed = agent(url, server, home(), folder, "begin")
    assert killed.returncode == -9, killed.stderr
    name, acknowledged, _ = conversation(url)
    session = name.rpartition("/")[2]
    contents = [line["message"]["content"] for line in acknowledged if line["type"] == "assistant"]
    texts = [block[0]["text"] for block in contents if block[0]["type"] == "text"]
    assert texts in (["step 0"], ["step 0", "step 1"])
    server.script = script(["echo one"])
    ran = agent(url, server, home(), folder, "go on", session)
    assert json.loads(ran.stdout)["result"] == "finished", ran.stderr
    _, later, _ = conversation(url)
    assert later[: len(acknowledged)] == acknowledged, "nothing acknowledged is missing"
    assert server.problems == []
    with foldlog.open(url) as histories:
        assert_sound(histories.store)
    server.close()


SAID = re.compile(
    r"(turn|step|answer) \d+$|This session is being continued|<command-name>|<local-command"
)
"""What was said, also in a summary. Claude Code puts its reminders elsewhere in each request than
in its transcript.
"""


def parts(messages):
    """Return what a request says, in order. The results of parallel calls are in any order."""
    named = {"tool_use": "id", "tool_result": "tool_use_id", "text": "text"}
    pairs = [
        (block["type"], block[named[block["type"]]].strip())
        for message in messages
        for block in blocks_of(message)
    ]
    pairs = [(kind, text) for kind, text in pairs if kind != "text" or SAID.match(text)]
    grouped = (list(group) for _, group in groupby(pairs, lambda each: each[0] == "tool_result"))
    return [
        each
        for group in grouped
        for each in (sorted(group) if group[0][0] == "tool_result" else group)
    ]


@pytest.mark.anyio
async def test_the_view_equals_the_prompt_of_random_steps(world):
    """With parallel calls, compactions of Claude Code, sessions that go on elsewhere and sessions
    that are forked.
    """
    url, folder, home = world
    choice = random.Random(7)
    requests = []
    sessions = []

    def play(prompt):
        number = len(requests)
        if not prompt.get("tools"):
            return Reply("a title")
        if "detailed summary" in json.dumps(prompt["messages"][-1]):
            return Reply(f"<summary>what was said before {number}</summary>")
        requests.append(prompt["messages"])
        if choice.random() < 0.3:
            return Reply(f"answer {number}")
        calls = [use(f"{number:03}{n}", f"echo {number}") for n in range(choice.choice([1, 1, 2]))]
        return Reply(f"step {number}", calls)

    server = AnthropicServer(play)
    session = None
    own = home()
    async with FoldlogSessionStore(url) as store:
        while len(requests) < 200:
            first = len(requests)
            if len(sessions) % 3 == 2:
                own = home()
            how = {"resume": session, "fork_session": session is not None and choice.random() < 0.4}
            async with ClaudeSDKClient(options(store, server.url, own, folder, **how)) as client:
                for turn in range(12):
                    await client.query("/compact" if turn % 4 == 3 else f"turn {len(requests)}")
                    async for message in client.receive_response():
                        session = getattr(message, "session_id", None) or session
            sessions.append((session, requests[first:]))
    server.close()
    assert server.problems == []
    assert len({session for session, _ in sessions}) > 1
    with foldlog.open(url) as histories:
        name = f"claude/{project_key_for_directory(folder)}/"
        for session, sent in sessions:
            history = histories[name + session]
            version = 0
            views = [
                parts(history.at(n).to_messages("anthropic")) for n in range(history.version() + 1)
            ]
            for messages in sent:
                assert parts(messages) in views[version:]
                version = views.index(parts(messages), version)
            assert len(condensations(history)) > 1


def test_the_example_runs(world):
    url, folder, home = world
    path = ROOT / "examples" / "claude_agent_foldlog.py"
    server = AnthropicServer(script([]))
    run = [sys.executable, str(path), "hello"]
    env = {**os.environ, **environment(server.url, home()), "FOLDLOG_DB": url}
    ran = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert ran.stdout.startswith("finished\n"), ran.stderr
    assert "events are shown; resume with: " in ran.stdout
    server.close()
