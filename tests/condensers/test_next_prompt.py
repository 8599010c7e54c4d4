"""``prompt = "continue"``: the request for a summary is the agent's own next prompt, so that the
server reads it from its cache.
"""

import json
from contextlib import contextmanager

import pytest

from foldlog.condensers import (
    InvalidCondenser,
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
    condenser_from_config,
    reports_of,
)
from foldlog.condensers.models.caches import cache_rule
from foldlog.condensers.strategies.next_prompt import _describe_rest
from foldlog.eventstore import CondensationRequest, SystemMessage
from foldlog.projections.messages.turns import DIALECTS
from tests.condensers.made import (
    TOOLS,
    message,
    messages,
    new_history,
    pair,
    plan,
    reason_of,
    viewed,
)
from tests.condensers.openai_server import OpenAIServer, Text
from tests.condensers.scripted import (
    FULL_STATE,
    AskableAgent,
    Scripted,
    called,
    failed,
    said,
)
from tests.condensers.test_dialects import EVENTS
from tests.projections.chat_rules import PROBLEMS

SYSTEM = SystemMessage(content="Be kind.", tools=TOOLS)
LONG_VIEW = viewed(SYSTEM, messages(30))


def continuing(llm, kind=LLMSummarizingCondenser):
    return kind(llm, prompt="continue", max_size=20)


@contextmanager
def history_for(agent):
    """Open the history of an agent whose View of 30 events is due."""
    with new_history(continuing(None), agent_llm=agent) as history:
        history.append([SYSTEM, message("Find the fault.")])
        for number in range(14):
            history.append(pair(number, content=f"result {number}"))
        yield history


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_request_begins_with_the_agents_prompt(dialect):
    agent = AskableAgent(1_000_000, dialect=dialect)
    with history_for(agent) as history:
        view = history.view()
        assert view.dialect == dialect
        expected = view.to_messages()
        history.prepare()
    (sent,) = agent.calls
    if dialect.startswith("anthropic"):
        assert sent[0] == {"role": "system", "content": view.system_prompt}
        sent = sent[1:]
    assert json.dumps(sent[:-1]) == json.dumps(expected)
    wish = json.dumps(sent[-1])
    assert sent[-1]["role"] == "user"
    assert "leave your context" in wish.replace("\\n", " ")
    assert "cache_control" not in wish
    (how,) = agent.asked_how
    assert list(how["tools"]) == TOOLS


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_next_prompt_begins_as_before(dialect):
    with history_for(AskableAgent(1_000_000, dialect=dialect)) as history:
        before = history.view().to_messages()
        after = history.prepare().to_messages()
    assert "a summary" in str(after)
    assert len(after) < len(before)
    firsts = [messages[0] for messages in (before, after)]
    # With the summary, the first message of Anthropic's user has one more block.
    if dialect.startswith("anthropic"):
        firsts = [message["content"][0] for message in firsts]
    assert firsts[0] == firsts[1]


OTHER_TOOLS = [
    {"type": "function", "name": "look", "description": "Look at it.", "parameters": {"a": 1}}
]
"""Tools as OpenAI's Responses API takes them."""


@pytest.mark.parametrize("has_system_prompt", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_recorded_tools_and_instructions_are_sent_again(dialect, has_system_prompt):
    agent = AskableAgent(1_000_000, dialect=dialect)
    with new_history(continuing(None), agent_llm=agent) as history:
        history.append([*[SYSTEM] * has_system_prompt, message("Find the fault.")])
        request = history.view().request(dialect, tools=OTHER_TOOLS, instructions="Be brief.")
        history.append_reply({"role": "assistant", "content": "I look."}, request=request)
        for number in range(14):
            history.append(pair(number, content=f"result {number}"))
        history.prepare()
    (sent,) = agent.calls
    (how,) = agent.asked_how
    assert [tool.get("function", tool)["name"] for tool in how["tools"]] == ["look"]
    prompt = "Be kind." if has_system_prompt else "Be brief."
    assert sent[0]["content"] == prompt or sent[0]["content"][0]["text"] == prompt
    assert sent[0]["role"] in ("system", "developer")


def test_a_document_of_another_program_is_no_request():
    agent = AskableAgent(1_000_000)
    with history_for(agent) as history:
        history.append(message("Go on."), documents={"request": {"tools": "none"}})
        history.prepare()
    assert list(agent.asked_how[0]["tools"]) == TOOLS


def test_servers_accept_the_request():
    view = viewed(EVENTS, messages(20))
    for dialect in ("openai", "anthropic"):
        agent = AskableAgent(1_000_000, dialect=dialect)
        plan(continuing(agent).condense(view))
        (sent,) = agent.calls
        chat = sent if dialect == "openai" else sent[1:]
        assert PROBLEMS[dialect](chat) == PROBLEMS[dialect](view.to_messages(dialect))


def test_a_tool_call_is_no_summary():
    with new_history(continuing(Scripted(called({}, "run")))) as history:
        history.append([SYSTEM, *messages(30), CondensationRequest()])
        history.prepare()
        (condensation,) = history.view().condensations
    assert condensation.metadata["instead_of"] == "llm"
    assert "should have written a summary, but called run" in str(reports_of(condensation))


def test_a_cut_tool_call_is_not_continued():
    cut = said("Let me", tool_calls=called({}, "run").tool_calls, finish_reason="length")
    condenser = continuing(Scripted(cut))
    assert condenser.condense(LONG_VIEW) is LONG_VIEW
    assert len(condenser.llm.calls) == 1


def test_a_cut_reply_continues_with_the_same_tools():
    answers = said("She wants a tr", finish_reason="length"), said("ain.")
    condenser = continuing(Scripted(*answers))
    action = plan(condenser.condense(LONG_VIEW))
    assert action.summary == "She wants a train."
    first, second = condenser.llm.calls
    assert second[: len(first)] == first
    assert condenser.llm.asked_how[0] == condenser.llm.asked_how[1]


def test_a_long_prompt_is_replaced_by_the_events():
    answers = failed("context_window"), "She wants a train."
    condenser = continuing(Scripted(*answers))
    action = plan(condenser.condense(LONG_VIEW))
    assert action.summary == "She wants a train."
    assert "<EVENT id=" in condenser.llm.prompt()
    assert [report.get("failure") for report in reports_of(action)] == ["context_window", None]
    assert action.metadata["prompt"] == "summary"


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```"])
def test_a_structured_summary_needs_no_further_tool(form):
    text = form.replace("{}", json.dumps(FULL_STATE))
    condenser = continuing(Scripted(text), StructuredSummaryCondenser)
    action = plan(condenser.condense(LONG_VIEW))
    assert "**User Context**: user context" in action.summary
    assert list(condenser.llm.asked_how[0]["tools"]) == TOOLS
    assert "pending_tasks" in condenser.llm.prompt()


def test_fields_that_were_cut_off_are_used():
    cut = said(json.dumps(FULL_STATE)[:-30], finish_reason="length")
    condenser = continuing(Scripted(cut), StructuredSummaryCondenser)
    action = plan(condenser.condense(LONG_VIEW))
    assert action.metadata["cut"] is True
    assert "**User Context**: user context" in action.summary
    assert "cut off" in reason_of(action)


@pytest.mark.parametrize(
    "model, choice", [("gpt-5.2", "none"), ("claude-sonnet-4-5", None), ("gemini-2.5-pro", None)]
)
def test_calls_are_forbidden_where_caches_allow(model, choice):
    llm = Scripted()
    llm.model = model
    condenser = continuing(llm)
    plan(condenser.condense(LONG_VIEW))
    assert llm.asked_how[0].get("tool_choice") == choice


def test_another_model_than_the_agents_is_refused():
    agent = AskableAgent(1_000)
    agent.model = "gpt-5.2"
    condenser = continuing(Scripted())
    with pytest.raises(InvalidCondenser, match="asks 'scripted'; name no model"):
        condenser.for_agent(agent)
    assert condenser.for_agent(None) is condenser


def test_the_setting_has_two_values():
    with pytest.raises(InvalidCondenser, match="must be 'events' or 'continue'"):
        LLMSummarizingCondenser(Scripted(), prompt="other")
    with pytest.raises(InvalidCondenser, match="prompt"):
        condenser_from_config({"type": "llm", "prompt": "other"})
    assert condenser_from_config({"type": "llm", "prompt": "continue"}).prompt == "continue"


def test_the_request_says_nothing_where_nothing_stays():
    view = viewed(messages(4))
    assert _describe_rest(view, slice(0, 4)) == ""
    assert _describe_rest(view, slice(0, 3)).endswith("It begins with: Agent: m3")


def test_the_request_says_what_stays():
    condenser = continuing(Scripted())
    action = plan(condenser.condense(LONG_VIEW))
    stays = LONG_VIEW.events[1 + max(action.forgotten_event_ids)]
    assert f"It begins with: {stays.source.capitalize()}: {stays.content}" in (
        condenser.llm.prompt()
    )


@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-sonnet-4-5"])
def test_litellm_sends_the_same_beginning(model):
    with OpenAIServer(Text("She wants a train.")) as server:
        llm = server.llm(model, retries=0)
        with new_history(continuing(None), agent_llm=llm) as history:
            history.append([SYSTEM, *EVENTS[1:], *messages(20)])
            llm.complete(history.view().to_messages(), tools=TOOLS)
            history.prepare()
        agents, own = (request.body for request in server.requests)
    assert json.dumps(own["tools"]) == json.dumps(agents["tools"])
    assert own.get("system") == agents.get("system")
    assert own.get("tool_choice") == ("none" if model.startswith("openai/") else None)
    agents_blocks = blocks(agents["messages"])
    own_blocks = blocks(own["messages"])
    assert own_blocks[:-1] == agents_blocks
    assert "write the summary alone" in own_blocks[-1]


def blocks(sent):
    """Return each block with the role of its message, because litellm joins messages of the user."""
    found = []
    for each in sent:
        parts = each["content"] if isinstance(each.get("content"), list) else [each]
        found += [json.dumps([each["role"], part]) for part in parts]
    return found


@pytest.mark.parametrize(
    "model, tokens, cached",
    [
        ("openai/gpt-4o", 1_023, 0),
        ("openai/gpt-4o", 1_200, 1_152),
        ("anthropic/claude-sonnet-4-5", 1_200, 1_200),
        ("claude-opus-4-5", 4_000, 0),
        ("gemini/gemini-2.5-pro", 2_047, 0),
        ("gemini/gemini-3-pro-preview", 4_096, 4_096),
        ("a-private-model", 1_023, 0),
        ("a-private-model", 1_024, 1_024),
    ],
)
def test_tokens_that_a_providers_cache_reads(model, tokens, cached):
    assert cache_rule(model).cached(tokens) == cached
