"""What people wrote for OpenHands beside the statements of ``tests/ported``: async, fields, errors, other results."""

from __future__ import annotations

import subprocess
import sys
from typing import Literal
from unittest.mock import patch

import anyio
import pytest
from pydantic import BaseModel, Field, ValidationError, model_validator

import foldlog
import foldlog.aio
from foldlog.condensers import PipelineCondenser, base, condenser_from_config
from foldlog.condensers.compat import (
    LLM,
    Condensation,
    CondensationRequirement,
    Condenser,
    CondenserBase,
    LLMSummarizingCondenser,
    NoCondensationAvailableException,
    NoOpCondenser,
    Reason,
    RollingCondenser,
    View,
    from_config,
)
from foldlog.condensers.config.registry import CONDENSER_REGISTRY
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.models.llm_config import LLMConfig
from foldlog.eventstore import Message, Observation
from tests.condensers.made import REQUEST, call, condensed, messages, plan, viewed
from tests.condensers.scripted import Characters, Scripted, failed
from tests.said import ids


class Keeping(RollingCondenser):
    """As in V1: fields, and a requirement."""

    most: int = Field(default=3, gt=0)
    keep: int = 1

    @model_validator(mode="after")
    def keeps_less(self):
        if self.keep >= self.most:
            raise ValueError("keep must be less than most")
        return self

    def condensation_requirement(self, view, agent_llm=None):
        if view.unhandled_condensation_request:
            return CondensationRequirement.HARD
        return CondensationRequirement.SOFT if len(view) > self.most else None

    def get_condensation(self, view, agent_llm=None):
        if len(view) <= self.keep:
            raise NoCondensationAvailableException("too short")
        end = view.manipulation_indices.find_next(len(view) - self.keep)
        return Condensation(
            forgotten_event_ids={event.id for event in view[:end]},
            summary="so far",
            summary_offset=0,
            llm_response_id="r1",
        )


# --- V1 ---


def test_a_rolling_condenser_says_how_urgent_it_is():
    view = viewed(messages(4))
    action = plan(Keeping().condense(view))
    assert (list(action.forgotten_event_ids), action.summary, action.metadata) == (
        [0, 1, 2],
        "so far",
        {"response_id": "r1"},
    )
    assert Keeping(most=4).condense(view) is view
    assert Keeping().get_condensation_reasons(view) == {Reason.EVENTS}
    assert Keeping().get_condensation_reasons(viewed(messages(1), REQUEST)) == {Reason.REQUEST}
    assert Keeping(most=4).get_condensation_reasons(view) == set()
    with pytest.raises(NoCondensationAvailableException, match="too short"):
        Keeping().condense(viewed(messages(1), REQUEST))
    soft = viewed(messages(4))
    assert Keeping(keep=2).condense(soft) is not soft


def test_the_fields_of_a_class_are_checked_and_more_are_refused():
    assert (Keeping().most, Keeping(most=9, keep=2).keep) == (3, 2)
    for wrong in ({"most": 0}, {"most": "many"}, {"window": 3}, {"most": 2, "keep": 2}):
        with pytest.raises(ValidationError):
            Keeping(**wrong)

    class More(Keeping):
        extra: str = "x"

    class Own(CondenserBase):
        window: int

        def __init__(self, size):
            self.window = 2 * size

        def condense(self, view):
            return view

    assert (More(most=5).most, More().extra, Own(2).window) == (5, "x", 4)


def test_a_class_with_fields_takes_any_model_that_can_be_asked():
    class Asking(CondenserBase):
        llm: LLM

        def condense(self, view, agent_llm=None):
            return view

    model = Scripted()
    assert Asking(llm=model).get_llm() is model
    assert NoOpCondenser().condense(viewed()) == viewed()
    with pytest.raises(ValidationError, match="llm"):
        Asking(llm="gpt-4o")
    assert isinstance(LLM(model="openai/gpt-4o", api_key="none"), LLM)
    assert LLM(model="openai/gpt-4o", api_key="none", num_retries=4).config.retries == 4


def test_reasons_of_the_summarizing_condenser_can_be_asked_and_replaced():
    assert LLMSummarizingCondenser(Scripted(), max_size=4, keep_first=0).get_condensation_reasons(
        viewed(messages(5), REQUEST)
    ) == {Reason.EVENTS, Reason.REQUEST}

    for reason in Reason:

        class Always(LLMSummarizingCondenser):
            def get_condensation_reasons(self, view, agent_llm=None, reason=reason):
                return {reason}

        condenser = Always(Scripted("all of it"), max_size=4, keep_first=0)
        assert plan(condenser.condense(viewed(messages(3)))).summary == "all of it"
    built = LLMSummarizingCondenser(LLM(model="openai/gpt-4o", api_key="none"), max_size=40)
    assert condenser_from_config(built.config.model_dump()).config == built.config


# --- async ---


class Awaited(CondenserBase):
    def __init__(self):
        self.how = []

    def condense(self, view, agent_llm=None):
        self.how.append("condense")
        return view

    async def acondense(self, view, agent_llm=None):
        await anyio.sleep(0)
        self.how.append("acondense")
        return self.condense(view, agent_llm)


class AwaitedCondensation(Keeping):
    async def aget_condensation(self, view, agent_llm=None):
        await anyio.sleep(0)
        made = self.get_condensation(view, agent_llm)
        made.action.metadata["awaited"] = True
        return made


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_async_methods_are_awaited_by_the_async_face_and_only_there():
    condenser = Awaited()
    async with foldlog.aio.open("memory:", condenser=condenser) as histories:
        await histories["c1"].append(messages(1))
        assert len(await histories["c1"].prepare()) == 1
        assert condenser.how == ["acondense", "condense"]
        histories.sync["c1"].prepare()
        assert condenser.how == ["acondense", "condense", "condense"]
    async with foldlog.aio.open("memory:", condenser=AwaitedCondensation()) as histories:
        await histories["c1"].append(messages(4))
        assert (await histories["c1"].step()).action.metadata["awaited"] is True
    async with foldlog.aio.open("memory:", condenser=AwaitedCondensation()) as histories:
        await histories["c1"].append(messages(4))
        assert "awaited" not in histories.sync["c1"].step().action.metadata


@pytest.mark.anyio
async def test_acondense_may_be_called_by_itself():
    view = viewed(messages(2))
    assert await NoAsync().acondense(view) is view
    assert plan(await Keeping(most=2).aget_condensation(viewed(messages(3)))).summary == "so far"
    assert await Keeping().ahard_context_reset(view) is None


class NoAsync(Condenser):
    def condense(self, view):
        return view


# --- V0 ---


class PlainConfig(BaseModel):
    type: Literal["plain"] = "plain"
    many: int = Field(default=2, ge=1)
    model_config = {"extra": "forbid"}


class NamedAsOurs(BaseModel):
    type: Literal["recent"] = "recent"
    many: int = 1


class Unregistered(BaseModel):
    """No condenser is made of it."""


class WithModel(BaseModel):
    type: Literal["with model"] = "with model"
    llm_config: dict


class Plain(Condenser):
    type = "plain"

    def __init__(self, many):
        self.many = many

    def condense(self, view):
        return view.with_events(view[: self.many])


class Modelled(Plain):
    type = "with model"

    @classmethod
    def from_config(cls, config, llm_registry):
        made = cls(1)
        made.llm = llm_registry.get_llm("condenser", config.llm_config)
        return made


@patch.dict(CONDENSER_REGISTRY)
def test_a_configuration_may_be_a_plain_model():
    Plain.register_config(PlainConfig)
    for condenser in (from_config(PlainConfig(many=3)), from_config({"type": "plain", "many": 3})):
        assert (type(condenser), condenser.many) == (Plain, 3)
    assert from_config(condenser.config.model_dump()).config == condenser.config
    with pytest.raises(InvalidCondenser, match="many"):
        condenser_from_config({"type": "plain", "many": 0})
    with pytest.raises(InvalidCondenser, match="already registered"):
        Plain.register_config(PlainConfig)
    Plain.register_config(NamedAsOurs)
    assert from_config(NamedAsOurs()).many == 1
    assert from_config({"type": "recent"}).type == "recent"
    Modelled.register_config(WithModel)
    assert from_config(WithModel(llm_config={"model": "openai/x", "api_key": "k"})).get_llm().model == "openai/x"
    with pytest.raises(InvalidCondenser, match="Unknown condenser config: Unregistered is not registered"):
        from_config(Unregistered())


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
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "condenser type 'digest' is already registered, by DigestCondenserConfig",
        "digest",
    ]


# --- sentences ---


def test_what_has_no_counterpart_is_refused_with_what_to_write():
    def asking(ask):
        class Asks(Condenser):
            def __init__(self):
                self.llm = Scripted()

            def condense(self, view):
                ask(self, view)
                return view

        return Asks()

    action, answer = call("browse", url="x"), Observation(tool="browse", content="", call_id="c1", extras={"url": "x"})
    view = viewed(messages(1), action, answer)
    for ask, sentence in (
        (lambda c, view: view[0].message, r"Message has no 'message'; write event_text\(event\)"),
        (lambda c, view: view[1].url, r"Action has no 'url'; write event.arguments\['url'\]"),
        (lambda c, view: view[2].url, r"Observation has no 'url'; write event.extras\['url'\]"),
        (lambda c, view: view[1].tool_call_metadata, r"write event.call_id and event.response_id"),
        (lambda c, view: c.llm.completion(messages=[]), r"Scripted has no 'completion'; write llm.complete"),
        (lambda c, view: c.llm.metrics.get(), r"write report_on\(reply\)"),
        (lambda c, view: c.llm.stream, r"never streamed"),
        (lambda c, view: c.unknown, "'Asks' object has no attribute 'unknown'"),
        (lambda c, view: view[0].unknown, "object has no attribute 'unknown'"),
    ):
        with pytest.raises(AttributeError, match=sentence):
            asking(ask).condense(view)
    with pytest.raises(TypeError, match=r"write view.with_events\(events\), or View.from_events"):
        View(events=[])
    with pytest.raises(TypeError, match=r"no registry of models: .*write Plain.from_config\(config\)"):
        Plain.from_config({"type": "noop"}, None)


# --- other results ---


class Returns(base.Condenser):
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


@pytest.mark.parametrize("kind", [base.Condenser, Condenser])
def test_a_condenser_without_a_decision_is_told_what_to_define(kind):
    class Undecided(kind):
        async def acondense(self, view, agent_llm=None):
            return view

    assert Undecided().type == "Undecided"
    for decide in (Undecided().condense, Undecided().step):
        with pytest.raises(TypeError, match="Undecided must define 'condense' or 'step'"):
            decide(viewed())


def test_another_result_is_refused_with_the_condenser_and_what_to_return():
    view = "return the View to go on with, or a Condensation"
    for what, told in (
        (lambda: None, f"returned None; {view}"),
        (lambda: (1, 2), f"returned a tuple; {view}"),
        (_a_view, "returned a coroutine; define it with 'def', or as 'acondense'"),
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
    assert config.extra == {"top_p": 0.5, "aws_region_name": "eu", "user": "u", "extra_body": {"a": 1}}
    with pytest.raises(ValidationError, match="unknown key"):
        LLMConfig.model_validate({"model": "x", "top_p": 1, "tempratur": 0})
    condenser = from_config(
        {"kind": "LLMSummarizingCondenser", "llm": {"model": "openai/x", "top_k": 3}, "max_size": 80}
    )
    assert condenser.config.llm_config.extra == {"top_k": 3}


# --- wishes that cannot be fulfilled, and other models ---


@pytest.mark.parametrize("condenser", ["amortized", "conversation_window"])
def test_a_wish_on_a_short_view_is_declined_in_the_log_and_the_view_returned(condenser):
    with foldlog.open("memory:", condenser=condenser) as histories:
        history = histories["c1"]
        history.append([Message(source="user", content="hi"), Message(source="agent", content="hello")])
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
    with foldlog.open("memory:", condenser={"type": "llm"}, agent_llm=ScriptedAgent(100_000)) as histories:
        history = histories["c1"]
        history.append([Message(source=who, content="x" * 100) for _ in range(10) for who in ("user", "agent")])
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
    with foldlog.open("memory:", condenser=LLMSummarizingCondenser(summarizer, max_size=10)) as histories:
        histories["c1"].append(messages(11))
        for llm in (None, Small(100_000), None, Small(90_000)):
            assert len(histories["c1"].prepare(llm=llm)) == 11
        assert len(summarizer.calls) == 1, "a model that failed is asked again some events later"


def test_a_ported_condenser_is_told_of_the_agents_model_and_not_of_the_estimate_in_its_place():
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
    assert seen == [None, model]
