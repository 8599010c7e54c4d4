"""The example's agent, against a server that refuses prompts that are too long."""

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

import foldlog
from foldlog.condensers import InvalidCondenser
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    SystemMessage,
)
from tests.condensers.openai_server import OpenAIServer, Text, ToolCall, up_to
from tests.projections.chat_rules import openai_problems

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_loop.py"
LIMIT = 1_800
STEPS = 24


@pytest.fixture(scope="module")
def agent_loop():
    spec = importlib.util.spec_from_file_location("agent_loop", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(agent_loop, tmp_path):
    """``run(server)``: the agent's history after a run with the model at that server, its answer,
    and what it wrote meanwhile.
    """

    def run(server, condenser="digest", **how):
        model = server.llm("openai/a-private-model")
        url = f"sqlite:///{tmp_path / 'agent.db'}"
        histories = stores.enter_context(foldlog.open(url, condenser=condenser, agent_llm=model))
        history = histories["agent"]
        if history.version() == 0:
            history.append(SystemMessage(content=agent_loop.PROMPT, tools=tuple(agent_loop.TOOLS)))
            history.append(Message(source="user", content="count as far as you can"))
        written = []
        with history.lease():
            answer = agent_loop.run_agent(history, model, tmp_path, say=written.append, **how)
        return history, answer, written

    with ExitStack() as stores:
        yield run


class Counting:
    """A model that runs ``STEPS`` wordy commands, each one higher than the last that it remembers,
    and then is done.
    """

    def __init__(self):
        self.calls = 0

    def __call__(self, request):
        assert openai_problems(request.body["messages"]) == []
        self.calls += 1
        if self.calls > STEPS:
            return Text("counted")
        return ToolCall("run", {"command": f"echo step {self.calls}: $(seq -s ' ' 1 120)"})


def test_an_agent_survives_refused_prompts(run):
    with OpenAIServer() as server:
        server.respond(up_to(LIMIT, Counting()))
        history, answer, written = run(server, steps_max=200)
        sizes = [request.tokens for request in server.requests]
    assert answer == "counted"
    refused = sum(size > LIMIT for size in sizes)
    assert refused > 1
    assert len(sizes) == STEPS + 1 + refused
    events = list(history.events())
    kinds = [type(event) for event in events]
    assert kinds.count(Action) == kinds.count(Observation) == STEPS
    assert kinds.count(CondensationRequest) == refused
    assert kinds.count(CondensationAction) >= refused
    outputs = [event.content for event in events if isinstance(event, Observation)]
    assert [output.split(":")[0] for output in outputs] == [
        f"step {n}" for n in range(1, STEPS + 1)
    ]
    assert any("asking for a condensation" in line for line in written)
    assert any("condensed: condenser" in line for line in written)


def test_the_model_may_request_a_condensation(run):
    steps = [ToolCall("run", {"command": f"echo {n}"}) for n in range(12)]
    asking = ToolCall("request_condensation", {"why": "ignored"})
    with OpenAIServer(*steps, asking, Text("done")) as server:
        history, answer, written = run(server)
    assert answer == "done"
    assert "  the model asks for a condensation" in written
    assert [type(event) for event in history.events()].count(CondensationAction) == 1
    assert not history.view().unhandled_condensation_request


def test_a_condenser_that_ignores_requests_is_an_error(run, tmp_path):
    config = {"type": "pipeline", "condensers": [{"type": "recent_events"}]}
    with OpenAIServer() as server:
        server.respond(up_to(10, Counting()))
        with pytest.raises(InvalidCondenser, match="'pipeline' does not handle condensation requ"):
            run(server, config)
        assert len(server.requests) == 1
    with foldlog.open(f"sqlite:///{tmp_path / 'agent.db'}") as histories:
        assert not histories["agent"].view().unhandled_condensation_request


def test_the_model_reads_why_a_call_failed(run):
    calls = [ToolCall("run", "{not json"), ToolCall("run", {"command": "exit 3"})]
    with OpenAIServer(*calls, Text("done")) as server:
        history, _, _ = run(server)
    first, second = (event for event in history.events() if isinstance(event, Observation))
    assert first.is_error
    assert first.content == "not begun: the arguments are not a JSON object"
    assert not second.is_error
    assert second.content == "(exit status 3)"
    assert openai_problems(history.view().to_messages("openai")) == []


def test_a_restarted_agent_continues_its_history(run):
    calls = OpenAIServer(ToolCall("run", {"command": "echo before"}))
    with calls as server, pytest.raises(TimeoutError):
        run(server, steps_max=3)
    with OpenAIServer(Text("done")) as server:
        run(server)
        assert "before" in json.dumps(server.requests[0].body["messages"])


def test_a_missing_key_is_named_in_one_line(agent_loop, tmp_path, monkeypatch, capsys):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["agent_loop.py", "say hello"])
    assert agent_loop.main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("agent_loop: ")
    assert "OPENAI_API_KEY" in line


def test_a_rehearsal_needs_no_model(agent_loop, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["agent_loop.py", "anything", "--rehearse"])
    assert agent_loop.main() == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "condensed: condenser digest, reason request" in out
    assert out.splitlines()[-1] == "This was a rehearsal: the last prompt had 6 messages."
    with foldlog.open("sqlite:///foldlog.db") as histories:
        assert len(histories["agent"].view()) < histories["agent"].version()
