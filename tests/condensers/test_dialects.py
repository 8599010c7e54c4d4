"""The agent's messages on their way through the real litellm: what arrives is what each server
accepts.
"""

import pytest

import foldlog
import foldlog.condensers.models.client
from foldlog.condensers import LLM, LLMConfig
from foldlog.condensers.models.client import dialect_of_model
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from tests.condensers.made import TOOLS, new_history
from tests.condensers.openai_server import OpenAIServer
from tests.golden.rows import rows
from tests.projections.chat_rules import anthropic_problems, openai_problems
from tests.projections.parts import SIGNED, image, text

EVENTS = [
    SystemMessage(content="be kind"),
    Action(
        tool="run it",
        call_id="a b",
        arguments='{"command": "ls"}',
        response_id="r1",
        thinking=(SIGNED,),
    ),
    Observation(tool="run it", call_id="a b", content=(text("seen"), image())),
    Message(source="agent", content=" "),
    Action(
        tool="run",
        call_id="c",
        arguments="{broken",
        response_id="r2",
        thinking=({"type": "thinking"},),
    ),
    Action(tool="run", call_id="c", arguments="", response_id="r2", thought="both"),
    Observation(tool="run", call_id="c", content="", is_error=True),
    Observation(tool="run", call_id="c", content=""),
    Message(source="user", content=(text(""), text("look"), image("https://example.com/a.png"))),
]


def body_at(model, **settings):
    """Return the View whose messages were sent, and what arrived."""
    with OpenAIServer() as server:
        llm = server.llm(model, retries=0, **settings)
        with new_history(agent_llm=llm) as history:
            history.append(EVENTS)
            view = history.view()
        llm.complete(view.to_messages(), tools=TOOLS)
        (request,) = server.requests
    return view, request.body


def test_a_plain_server_gets_what_it_accepts():
    view, body = body_at("openai/a-private-model")
    assert view.dialect == "openai"
    assert openai_problems(body["messages"]) == []
    assert "thinking" not in str(body["messages"])


def test_a_plain_server_refuses_litellms_dialect():
    _, body = body_at("openai/a-private-model", dialect="litellm")
    assert any("thinking_blocks" in problem for problem in openai_problems(body["messages"]))


def test_anthropics_server_gets_what_it_accepts():
    view, body = body_at("anthropic/claude-sonnet-4-5")
    assert view.dialect == "litellm"
    assert anthropic_problems(body["messages"]) == []
    assert SIGNED in body["messages"][1]["content"]


@pytest.mark.parametrize("model, dialect", rows("settings.json", "dialects of models"))
def test_the_name_or_the_configuration_decides_the_dialect(model, dialect):
    assert dialect_of_model(model) == LLM(LLMConfig(model=model)).dialect == dialect
    assert LLM(LLMConfig(model=model, dialect="openai")).dialect == "openai"
    assert LLM(LLMConfig(model=model, dialect="litellm")).dialect == "litellm"


def test_a_plain_fallback_decides_for_all():
    claude = LLMConfig(model="claude-sonnet-4-5")
    plain = LLMConfig(model="openai/mine")
    assert LLM(claude.model_copy(update={"fallbacks": (claude,)})).dialect == "litellm"
    assert LLM(claude.model_copy(update={"fallbacks": (plain,)})).dialect == "openai"


def test_every_anthropic_model_gets_thinking():
    litellm = foldlog.condensers.models.client._litellm()
    named = [
        name
        for name, about in litellm.model_cost.items()
        if about.get("litellm_provider") == "anthropic"
    ]
    assert len(named) > 5
    assert [name for name in named if dialect_of_model(name) != "litellm"] == []
