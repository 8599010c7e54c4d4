"""Condensers from configurations and back, in models of others, and with the agent's model."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, ValidationError

import foldlog
from foldlog.condensers import (
    Condensation,
    CondenseHandler,
    Condenser,
    CondenserConfig,
    InvalidCondenser,
    LLMConfig,
    NoOpCondenser,
    ObservationMaskingCondenser,
    condenser_from_config,
    load_condenser,
    load_condenser_config,
)
from foldlog.condensers.config.registry import CONDENSER_REGISTRY, parse_config
from tests.condensers.made import messages, viewed
from tests.condensers.scripted import Characters, Scripted


class Counting(Scripted, Characters):
    """An agent's model that can be asked, too."""

    model = "counting"
    max_input_tokens = None
    unknown = False

    def __init__(self, *answers):
        Scripted.__init__(self, *answers)


# --- configurations ---


TABLES = (
    {"type": "noop"},
    {"type": "recent_events", "max_events": 7, "keep_first": 2},
    {"type": "amortized_forgetting", "max_size": 40},
    {"type": "observation_masking", "attention_window": 3},
    {"type": "browser_output"},
    {"type": "conversation_window"},
    {"type": "digest", "max_size": 50, "max_length": 900},
    {"type": "llm", "llm_config": {"model": "openai/m", "api_key": "sk-secret"}, "max_size": 90},
    {
        "type": "structured_summary",
        "llm_config": {"model": "m", "function_calling": True, "api_key": "sk-secret"},
    },
    {
        "type": "llm_attention",
        "llm_config": {"model": "m", "response_schema": True, "api_key": "sk-secret"},
    },
    {"type": "llm"},
    {"type": "clear_tool_uses", "keep": 2},
    {"type": "clear_thinking"},
    {
        "type": "pipeline",
        "condensers": [{"type": "noop"}, {"kind": "llm", "llm_config": {"model": "m"}}],
    },
    {
        "type": "pipeline",
        "condensers": [{"type": "pipeline", "condensers": [{"type": "recent_events"}]}],
    },
)


def test_a_value_that_no_table_may_have_is_an_error_of_ours():
    with pytest.raises(InvalidCondenser, match="attention_window: should be greater than or"):
        _ = ObservationMaskingCondenser(attention_window=0).config


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["type"])
def test_a_condenser_is_made_again_from_its_configuration(table):
    condenser = condenser_from_config(table)
    dumped = condenser.config.model_dump()
    again = condenser_from_config(dumped)
    assert again.config == condenser.config
    assert again is not condenser
    assert (type(condenser), condenser.type) == (
        CONDENSER_REGISTRY[type(condenser.config)],
        table["type"],
    )
    assert "sk-secret" not in repr(dumped) + condenser.config.model_dump_json() + repr(
        condenser.config
    )
    with_kind = {"kind" if key == "type" else key: value for key, value in dumped.items()}
    assert condenser_from_config(with_kind).config == condenser.config


def test_a_masked_key_is_not_taken_for_a_key():
    masked = json.loads(LLMConfig(model="m", api_key="sk-secret").model_dump_json())
    with pytest.raises(InvalidCondenser, match=r"llm_config: api_key is masked.*api_key_env"):
        condenser_from_config({"type": "llm", "llm_config": masked})


def test_an_object_that_is_no_model_is_refused_before_a_store_is_opened(tmp_path):
    for wrong, said in (
        ("openai/gpt-4o", "type str"),
        (object(), "no model, max_input_tokens, max_output_tokens"),
    ):
        with pytest.raises(InvalidCondenser, match=said):
            foldlog.open(f"sqlite:///{tmp_path}/h.db", agent_llm=wrong)
        with foldlog.open("memory:") as histories, pytest.raises(InvalidCondenser, match=said):
            CondenseHandler(histories.store, histories.views, NoOpCondenser(), wrong)
    assert not (tmp_path / "h.db").exists()


class WithoutModel(Condenser):
    def condense(self, view, agent_llm=None):
        return view


def test_a_condenser_without_a_configuration_says_so():
    with pytest.raises(InvalidCondenser, match="WithoutModel has no configuration; register one"):
        WithoutModel().config  # noqa: B018


class AgentConfig(BaseModel):
    name: str = "agent"
    condenser: CondenserConfig = parse_config({"type": "noop"})
    others: list[CondenserConfig] = []


def test_an_annotation_with_the_base_takes_any_configuration():
    config = AgentConfig.model_validate({"condenser": {"type": "recent_events", "max_events": 5}})
    assert config.condenser == parse_config({"type": "recent_events", "max_events": 5})
    assert AgentConfig().condenser == parse_config({"type": "noop"})
    assert AgentConfig.model_validate_json(config.model_dump_json()) == config
    assert AgentConfig(others=[{"kind": "noop"}]).others == [parse_config({"type": "noop"})]
    assert config.model_dump()["condenser"] == {
        "type": "recent_events",
        "keep_first": 1,
        "max_events": 5,
    }
    with pytest.raises(
        ValidationError,
        match=r"unknown condenser type 'recent_event' .did you mean 'recent_events'",
    ):
        AgentConfig.model_validate({"condenser": {"type": "recent_event"}})
    assert "condenser" in AgentConfig.model_json_schema()["properties"]


# --- the agent's model where a condenser names none ---

PIPELINE = """
[condenser]
type = "pipeline"
[[condenser.condensers]]
type = "browser_output"
[[condenser.condensers]]
type = "llm"
max_size = 10
keep_first = 1
"""


def test_a_condenser_without_a_model_uses_the_agents(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(PIPELINE)
    agent_llm = Counting("what came before")
    with foldlog.open("memory:", condenser=path, agent_llm=agent_llm) as histories:
        history = histories["c1"]
        history.append(messages(14))
        assert isinstance(history.step(), Condensation)
        assert "what came before" in [getattr(event, "content", "") for event in history.view()]
        assert len(agent_llm.calls) == 1
    assert load_condenser_config(path).condensers[1] == parse_config(
        {"type": "llm", "max_size": 10, "keep_first": 1}
    )
    direct = load_condenser(path).condense(viewed(*messages(14)), agent_llm)
    assert isinstance(direct, Condensation)


def test_without_any_model_the_error_says_where_one_can_be_named(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(PIPELINE)
    says = r"names no model.*a table 'llm_config'.*a table \[llm\].*agent_llm="
    with pytest.raises(InvalidCondenser, match=says):
        foldlog.open("memory:", condenser=path)
    with foldlog.open("memory:") as histories, pytest.raises(InvalidCondenser, match=says):
        CondenseHandler(histories.store, histories.views, load_condenser(path))
    with pytest.raises(InvalidCondenser, match=says):
        load_condenser(path).condense(viewed(*messages(14)))

    class OnlyCounts:
        model = "counts"

    with pytest.raises(InvalidCondenser, match="'counts' cannot be asked"):
        load_condenser(path).for_agent(OnlyCounts())


def test_what_a_strategy_needs_of_a_model_is_asked_of_the_agents_model():
    weak = Scripted(function_calling=False, response_schema=False)
    for kind in ("structured_summary", "llm_attention"):
        with pytest.raises(InvalidCondenser, match="needs a model that"):
            condenser_from_config({"type": kind}).for_agent(weak)
