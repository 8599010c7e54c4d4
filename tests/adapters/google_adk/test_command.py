"""The command ``adk api_server`` with ``services.yaml``, as the page has it: run, killed by a tool,
and run again.
"""

import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import foldlog
from tests.adapters.contract import ROOT
from tests.ports import free_port
from tests.sound import assert_sound

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
    """Start the command, yield a function that asks the server, and stop the command."""
    port = free_port()
    command = [Path(sys.executable).with_name("adk"), "api_server", "--port", str(port)]
    command += ["--session_service_uri", "foldlog:///history.db", "agents"]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("ab") as log, httpx.Client(base_url=url, timeout=300) as client:
        server = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={"PYTHONPATH": str(ROOT)}
        )

        def ask(path, data=None):
            answer = client.get(path) if data is None else client.post(path, json=data)
            return answer.raise_for_status().json()

        try:
            while True:
                try:
                    ask("list-apps")
                    break
                except httpx.TransportError:
                    assert server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.1)
            yield ask
        finally:
            server.terminate()
            server.wait(60)


def say(ask, text):
    """Send a message; return the texts of the answer."""
    message = {"role": "user", "parts": [{"text": text}]}
    events = ask(
        "run", {"app_name": "measuring", "user_id": "u", "session_id": "s", "new_message": message}
    )
    return [
        part["text"] for event in events for part in event["content"]["parts"] if "text" in part
    ]


def test_sessions_of_the_command_survive_a_kill(folder):
    session = "apps/measuring/users/u/sessions/s"
    with served(folder) as ask:
        assert ask(session, {"state": {"begun": True}})["id"] == "s"
        assert say(ask, "measure") == ["finished"]
        (folder / "dies").touch()
        with pytest.raises(httpx.TransportError):
            say(ask, "measure")
    with foldlog.open(f"sqlite:///{folder / 'history.db'}") as histories:
        messages = histories["adk/measuring/u/s"].view().to_messages()
        roles = [message["role"] for message in messages]
        assert roles[:4] == ["user", "assistant", "tool", "assistant"]
        assert_sound(histories.store)
    (folder / "dies").unlink()
    with served(folder) as ask:
        loaded = ask(session)
        assert loaded["state"]["user:measured"] == "km"
        authors = [event["author"] for event in loaded["events"]]
        assert authors == ["user", *["agent"] * 3, "user", "agent"]
        assert say(ask, "are you there") == ["finished"]
        assert len(ask(session)["events"]) > len(authors)
        assert [each["id"] for each in ask("apps/measuring/users/u/sessions")] == ["s"]
