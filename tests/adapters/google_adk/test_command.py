"""The command ``adk api_server`` with ``services.yaml``, as the page has it: run, killed by a tool,
and run again.
"""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldlog
from tests.sound import assert_sound

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ADAPTERS.md").read_text()
AGENT = """
import os, pathlib, signal
from google.adk.agents import LlmAgent
from google.genai import types
from tests.adapters.google_adk.scripted import ScriptedModel, call, said

def measure(unit: str, tool_context) -> dict:
    "Measure."
    tool_context.state["user:measured"] = unit
    if pathlib.Path("dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return {"result": f"9 {unit}"}

def script(contents, number):
    if contents[-1].parts[-1].text != "measure":
        return said("finished")
    return types.Content(role="model", parts=[call("measure", f"c{len(contents)}", unit="km")])

root_agent = LlmAgent(name="agent", model=ScriptedModel(script=script, prompts=[]), tools=[measure])
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of agents, with the ``services.yaml`` of the page."""
    agents = tmp_path / "agents" / "measuring"
    agents.mkdir(parents=True)
    (agents / "__init__.py").write_text("from . import agent\n")
    (agents / "agent.py").write_text(AGENT)
    (services,) = re.findall(r"```yaml\n(services:\n(?:  .*\n)+)```", PAGE)
    (agents.parent / "services.yaml").write_text(services)
    return tmp_path


@contextmanager
def served(folder):
    """Start the command; give a function that asks the server, and stop it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("adk"), "api_server", "--port", str(port)]
    command += ["--session_service_uri", "foldlog:///history.db", "agents"]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={"PYTHONPATH": str(ROOT)}
        )

        def ask(path, data=None):
            body = None if data is None else json.dumps(data).encode()
            about = {"content-type": "application/json"}
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/{path}", data=body, headers=about
            )
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.loads(answer.read())

        try:
            while True:
                try:
                    ask("list-apps")
                    break
                except urllib.error.URLError:
                    assert server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.1)
            yield ask
        finally:
            server.terminate()
            server.wait()


def say(ask, text):
    """Send a message; return the texts of the answer."""
    message = {"role": "user", "parts": [{"text": text}]}
    events = ask(
        "run", {"app_name": "measuring", "user_id": "u", "session_id": "s", "new_message": message}
    )
    return [
        part["text"] for event in events for part in event["content"]["parts"] if "text" in part
    ]


def test_the_command_keeps_its_sessions_in_foldlog_and_goes_on_after_a_kill(folder):
    session = "apps/measuring/users/u/sessions/s"
    with served(folder) as ask:
        assert ask(session, {"state": {"begun": True}})["id"] == "s"
        assert say(ask, "measure") == ["finished"]
        (folder / "dies").touch()
        with pytest.raises(OSError):  # noqa: PT011 - whatever becomes of a connection whose server is killed
            say(ask, "measure")
    with foldlog.open(f"sqlite:///{folder / 'history.db'}") as histories:
        history = histories["adk/measuring/u/s"]
        assert [message["role"] for message in history.view().to_messages()][:4] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        acknowledged = history.version()
        assert_sound(histories.store)
    (folder / "dies").unlink()
    with served(folder) as ask:
        loaded = ask(session)
        assert loaded["state"]["user:measured"] == "km"
        assert [event["author"] for event in loaded["events"]] == [
            "user",
            "agent",
            "agent",
            "agent",
            "user",
            "agent",
        ]
        assert say(ask, "are you there") == ["finished"]
        assert [each["id"] for each in ask("apps/measuring/users/u/sessions")] == ["s"]
    with foldlog.open(f"sqlite:///{folder / 'history.db'}") as histories:
        assert histories["adk/measuring/u/s"].version() > acknowledged
