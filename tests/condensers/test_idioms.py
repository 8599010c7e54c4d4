"""Condensers of one's own, and what they may leave out: signatures, configurations, errors, other
results.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Literal
from unittest.mock import patch

import pytest
from pydantic import BaseModel, Field, ValidationError

import foldlog
from foldlog._words.reasons import because
from foldlog.condensers import (
    CONDENSER_REGISTRY,
    ESTIMATE,
    Condensation,
    Condenser,
    InvalidCondenser,
    LLMConfig,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    PipelineCondenser,
    Requirement,
    RollingCondenser,
    condenser_from_config,
)
from foldlog.eventstore import CondensationAction, Message
from tests.condensers.made import REQUEST, condensed, messages, plan, viewed
from tests.condensers.scripted import Characters, Scripted, failed
from tests.said import ids

# --- when a condensation is due ---


class Asked(RollingCondenser):
    """Decides with ``should_condense``, by a View alone."""

    def __init__(self, most):
        self.most = most

    def should_condense(self, view):
        return len(view) > self.most

    def get_condensation(self, view):
        if len(view) < 2:
            raise NoCondensationAvailable("too short")
        return Condensation(forgotten_event_ids=[view[1].id])


class Required(Asked):
    """Decides with a requirement."""

    def condensation_requirement(self, view, agent_llm=None):
        return Requirement.HARD if len(view) > self.most else None


class Larger(LLMSummarizingCondenser):
    """A strategy of ours with another rule."""

    def should_condense(self, view):
        return super().should_condense(view) and len(view) > 20


@pytest.mark.parametrize("kind", [Asked, Required])
def test_a_strategy_is_asked_whether_a_condensation_is_due(kind):
    view = viewed(messages(4))
    assert kind(4).condense(view) is view
    assert plan(kind(3).condense(view)).forgotten_event_ids == (1,)
    short = viewed(messages(1))
    if kind is Required:
        with pytest.raises(NoCondensationAvailable, match="too short"):
            kind(0).condense(short)
    else:
        assert kind(0).condense(short) is short
        requested = viewed(messages(1), REQUEST)
        with pytest.raises(NoCondensationAvailable, match="too short"):
            kind(0).condense(requested)


def test_a_subclass_of_ours_is_asked_too():
    condenser = Larger(Scripted("all of it"), max_size=10)
    assert condenser.condense(viewed(messages(15))) == viewed(messages(15))
    assert plan(condenser.condense(viewed(messages(25)))).summary == "all of it"


def test_a_new_summary_of_a_strategy_with_should_condense_takes_the_place_of_the_shown_one():
    class Sums(Asked):
        def get_condensation(self, view):
            return Condensation(
                action=CondensationAction(
                    forgotten_events_start_id=view[-2].id,
                    forgotten_events_end_id=view[-1].id,
                    summary="new",
                    summary_offset=0,
                )
            )

    view = viewed(messages(8), condensed(0, summary="old", offset=0))
    assert ids(view.then([Sums(3).condense(view).action])) == [-11, 1, 2, 3, 4, 5]


def test_a_condensation_is_made_of_an_action_or_of_its_fields():
    action = CondensationAction(forgotten_event_ids=[2, 1], summary="so far", summary_offset=1)
    made = Condensation(forgotten_event_ids={2, 1}, summary="so far", summary_offset=1)
    assert made.action.forgotten == action.forgotten
    match made:
        case Condensation(action=CondensationAction(summary="so far", summary_offset=1)):
            pass
        case _:
            pytest.fail("it does not match")
    assert Condensation(action=action).action is action
    assert Condensation(action) == Condensation(action)


def test_a_condensation_has_its_reason_in_the_log_whoever_made_it():
    class Middle(RollingCondenser):
        max_size = 30

        def get_condensation(self, view):
            return Condensation(forgotten_event_ids=[event.id for event in view[2:20]])

    with foldlog.open("memory:", condenser=Middle()) as histories:
        history = histories["c1"]
        history.append(messages(31))
        history.prepare()
        (made,) = history.view().condensations
        assert {
            name: made.metadata[name]
            for name in ("condenser", "reason", "events_before", "events_max")
        } == {
            "condenser": "Middle",
            "reason": "events",
            "events_before": 31,
            "events_max": 30,
        }
        assert made.metadata["events_after"] == 13
        assert because(made) == "View of 31 events exceeded 30"


# --- configurations ---


class PlainConfig(BaseModel):
    type: Literal["plain"] = "plain"
    many: int = Field(default=2, ge=1)
    model_config = {"extra": "forbid"}


class Unregistered(BaseModel):
    """No condenser is made of it."""


class Plain(Condenser):
    type = "plain"

    def __init__(self, many):
        self.many = many

    def condense(self, view):
        return view.with_events(view[: self.many])


class Halved(Plain):
    type = "halved"

    @classmethod
    def from_config(cls, config):
        return cls(config.many // 2)


class HalvedConfig(PlainConfig):
    type: Literal["halved"] = "halved"


@patch.dict(CONDENSER_REGISTRY)
def test_a_configuration_may_be_a_plain_model():
    Plain.register_config(PlainConfig)
    for condenser in (
        Condenser.from_config(PlainConfig(many=3)),
        Condenser.from_config({"type": "plain", "many": 3}),
    ):
        assert (type(condenser), condenser.many) == (Plain, 3)
    assert Condenser.from_config(condenser.config.model_dump()).config == condenser.config
    with pytest.raises(InvalidCondenser, match="many"):
        condenser_from_config({"type": "plain", "many": 0})
    with pytest.raises(InvalidCondenser, match="already registered"):
        Plain.register_config(PlainConfig)
    Halved.register_config(HalvedConfig)
    assert [
        Condenser.from_config(made).many
        for made in (HalvedConfig(many=8), {"type": "halved", "many": 6})
    ] == [
        4,
        3,
    ]
    with pytest.raises(InvalidCondenser, match="must give its field 'type' a literal"):
        Plain.register_config(Unregistered)
    document = {
        "type": "pipeline",
        "condensers": [{"type": "plain", "many": 3}, {"type": "recent_events"}],
    }
    pipeline = Condenser.from_config(document)
    assert pipeline.condensers[0].many == 3
    assert Condenser.from_config(pipeline.config).condensers[0].many == 3
    assert Condenser.from_config(pipeline.config.model_dump()).condensers[0].many == 3
    with pytest.raises(
        InvalidCondenser, match="Unknown condenser config: Unregistered is not registered"
    ):
        Condenser.from_config(Unregistered())


def test_registering_comes_after_our_own_strategies_whatever_is_imported_first():
    program = """
from typing import Literal
from foldlog.condensers import Condenser, CondenserConfig, InvalidCondenser, condenser_from_config, register_config
class C(CondenserConfig):
    type: Literal["digest"] = "digest"
try:
    register_config(C, Condenser)
except InvalidCondenser as error:
    print(error)
print(condenser_from_config({"type": "digest"}).type)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "condenser type 'digest' is already registered, by DigestCondenserConfig",
        "digest",
    ]


# --- other results ---


class Returns(Condenser):
    def __init__(self, what):
        self.what = what

    def condense(self, view, agent_llm=None):
        return self.what()


class RollingReturns(RollingCondenser):
    def __init__(self, what):
        self.get_condensation_of = what

    def should_condense(self, view):
        return True

    def get_condensation(self, view):
        return self.get_condensation_of()


async def _a_view():
    return viewed()


def test_a_condenser_without_a_decision_is_told_what_to_define():
    class Undecided(Condenser):
        """Defines nothing."""

    assert Undecided().type == "Undecided"
    for decide in (Undecided().condense, Undecided().step):
        with pytest.raises(TypeError, match="Undecided must define 'condense' or 'step'"):
            decide(viewed())


def test_another_result_is_refused_with_the_condenser_and_what_to_return():
    view = "return the View to continue with, or a Condensation"
    for what, told in (
        (lambda: None, f"returned None; {view}"),
        (lambda: (1, 2), f"returned a tuple; {view}"),
        (_a_view, "returned a coroutine; define it with 'def'"),
        (lambda: condensed(1), r"returned a CondensationAction; return Condensation\(action\)"),
        (lambda: viewed(messages(1)), r"returned a View; return view.with_events\(events\)"),
    ):
        for condenser in (Returns(what), RollingReturns(what), PipelineCondenser([Returns(what)])):
            with foldlog.open("memory:", condenser=condenser) as histories:
                histories["c1"].append(messages(3))
                with pytest.raises(TypeError, match=f"the condenser (Rolling)?Returns {told}"):
                    histories["c1"].step()
                assert histories["c1"].version() == 3


# --- keys of models ---


def test_keys_of_v0_and_v1_are_read():
    config = LLMConfig.model_validate(
        {
            "model": "bedrock/x",
            "api_key": "k",
            "num_retries": 3,
            "retry_min_wait": 4,
            "retry_max_wait": 9,
            "timeout": None,
            "top_p": 0.5,
            "aws_region_name": "eu",
            "custom_tokenizer": "openai/gpt-4o",
            "native_tool_calling": True,
            "log_completions": False,
            "completion_kwargs": {"user": "u"},
            "litellm_extra_body": {"a": 1},
        }
    )
    assert (config.retries, config.retry_wait_s, config.tokenizer) == (3, 4.0, "openai/gpt-4o")
    assert config.function_calling is True
    assert config.extra == {
        "top_p": 0.5,
        "aws_region_name": "eu",
        "user": "u",
        "extra_body": {"a": 1},
    }
    with pytest.raises(ValidationError, match="unknown key"):
        LLMConfig.model_validate({"model": "x", "top_p": 1, "tempratur": 0})
    condenser = Condenser.from_config(
        {
            "kind": "LLMSummarizingCondenser",
            "llm": {"model": "openai/x", "top_k": 3},
            "max_size": 80,
        }
    )
    assert condenser.config.llm_config.extra == {"top_k": 3}


# --- wishes that cannot be fulfilled, and other models ---


@pytest.mark.parametrize("condenser", ["amortized_forgetting", "conversation_window"])
def test_a_wish_on_a_short_view_is_declined_in_the_log_and_the_view_returned(condenser):
    with foldlog.open("memory:", condenser=condenser) as histories:
        history = histories["c1"]
        history.append(
            [Message(source="user", content="hi"), Message(source="agent", content="hello")]
        )
        history.request_condensation("the model asked for it")
        assert ids(history.prepare()) == [0, 1]
        declined = list(history.events())[-1]
        assert declined.metadata["outcome"] == "declined"
        assert declined.metadata["reason"]
        history.request_condensation("the server refused the prompt")
        with pytest.raises(NoCondensationAvailable):
            history.prepare()
        history.append(Message(source="agent", content="on"))
        history.request_condensation("again")
        assert ids(history.prepare())[-1] == 6


class Small(Scripted, Characters):
    """A model that can be asked, with a small room and a dialect of its own."""

    dialect = "anthropic"
    max_output_tokens = None
    unknown = False

    def __init__(self, room, *answers):
        Scripted.__init__(self, *answers)
        self.max_input_tokens = room


def test_a_step_may_be_for_another_model():
    with foldlog.open(
        "memory:", condenser={"type": "llm"}, agent_llm=ScriptedAgent(100_000)
    ) as histories:
        history = histories["c1"]
        history.append(
            [Message(source=who, content="x" * 100) for _ in range(10) for who in ("user", "agent")]
        )
        assert (len(history.prepare()), history.prepare().dialect) == (20, "litellm")
        view = history.prepare(llm=Small(1_000, "by the small one"))
        assert len(view) < 20
        assert view.dialect == "anthropic"
        assert history.view().condensations[-1].summary == "by the small one"
        assert isinstance(history.step(llm=Small(1_000)), foldlog.View)
        with pytest.raises(InvalidCondenser, match="agent_llm is of type str"):
            history.prepare(llm="gpt")
        assert len(histories["c2"].prepare(llm=Small(1))) == 0


class ScriptedAgent(Small):
    dialect = "litellm"


def test_steps_for_several_models_remember_the_same_of_a_conversation():
    summarizer = Scripted(failed())
    with foldlog.open(
        "memory:", condenser=LLMSummarizingCondenser(summarizer, max_size=10, keep_first=1)
    ) as histories:
        histories["c1"].append(messages(11))
        for llm in (None, Small(100_000), None, Small(90_000)):
            assert len(histories["c1"].prepare(llm=llm)) == 11
        assert len(summarizer.calls) == 1, "a model that failed is asked again some events later"


def test_a_condenser_is_told_of_the_agents_model():
    seen = []

    class Sees(Condenser):
        def condense(self, view, agent_llm=None):
            seen.append(agent_llm)
            return view

    model = Small(100)
    with foldlog.open("memory:", condenser=Sees()) as histories:
        histories["c1"].append(messages(1))
        histories["c1"].prepare()
        histories["c1"].prepare(llm=model)
    assert seen == [ESTIMATE, model]
