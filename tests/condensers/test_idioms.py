"""Own condensers may leave out arguments, rules, reasons and results."""

from dataclasses import fields, replace

import pytest
from msgspec import structs

import foldlog
from foldlog.condensers import (
    Condensation,
    Condenser,
    InvalidCondenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    PipelineCondenser,
    Requirement,
    RollingCondenser,
    Step,
)
from foldlog.condensers.base import Overrun, run_step
from foldlog.eventstore import CondensationAction, InvalidEvent
from tests.condensers.made import (
    REQUEST,
    condensed,
    message,
    messages,
    new_history,
    plan,
    reason_of,
    viewed,
)
from tests.condensers.scripted import AskableAgent, Scripted, failed
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


class Required(RollingCondenser):
    """Decides with a requirement."""

    def __init__(self, most):
        self.most = most

    def condensation_requirement(self, view, agent_llm=None):
        return Requirement.HARD if len(view) > self.most else None

    get_condensation = Asked.get_condensation


class Larger(LLMSummarizingCondenser):
    """A strategy of ours with another rule."""

    def should_condense(self, view):
        return super().should_condense(view) and len(view) > 20


@pytest.mark.parametrize("kind", [Asked, Required])
def test_a_strategy_decides_when_to_condense(kind):
    view = viewed(messages(4))
    assert kind(4).condense(view) is view
    made = plan(kind(3).condense(view))
    assert made.forgotten_event_ids == (1,)
    assert reason_of(made) == "a rule of its own"


def test_only_a_required_condensation_must_be_available():
    short = viewed(messages(1))
    assert Asked(0).condense(short) is short
    for condenser, view in ((Required(0), short), (Asked(0), viewed(messages(1), REQUEST))):
        with pytest.raises(NoCondensationAvailable, match="too short"):
            condenser.condense(view)


def test_a_subclass_decides_when_to_condense():
    condenser = Larger(Scripted("all of it"), max_size=10)
    assert condenser.condense(viewed(messages(15))) == viewed(messages(15))
    assert plan(condenser.condense(viewed(messages(25)))).summary == "all of it"


def test_a_condensation_takes_an_action_or_its_fields():
    action = CondensationAction(forgotten_event_ids=[2, 1], summary="so far", summary_offset=1)
    match Condensation(forgotten_event_ids={2, 1}, summary="so far", summary_offset=1):
        case Condensation(action=CondensationAction(summary="so far", summary_offset=1) as made):
            assert made.forgotten == action.forgotten
        case _:
            pytest.fail("it does not match")
    assert Condensation(action) == Condensation(action=action)
    assert Condensation(action).action is action
    for beside in ({"forgotten_event_ids": [2]}, {"summary": "S", "summary_offset": 0}):
        with pytest.raises(InvalidEvent, match="give either the action or these fields"):
            Condensation(action, **beside)


def test_an_own_condensation_has_its_reason():
    class Middle(RollingCondenser):
        max_size = 30

        def get_condensation(self, view):
            return Condensation(forgotten_event_ids=ids(view[2:20]))

    with new_history(Middle()) as history:
        history.append(messages(31))
        history.prepare()
        (condensation,) = history.view().condensations
        assert condensation.metadata == {
            "condenser": "Middle",
            "outcome": "condensed",
            "reason": "events",
            "events_before": 31,
            "events_after": 13,
            "events_max": 30,
        }
        assert reason_of(condensation) == "View of 31 events exceeded 30"


# --- other results ---


class Returns(Condenser):
    def __init__(self, what):
        self.what = what

    def condense(self, view, agent_llm=None):
        return self.what()


class RollingReturns(Asked):
    def __init__(self, what):
        super().__init__(most=0)
        self.what = what

    def get_condensation(self, view):
        return self.what()


async def _a_view():
    return viewed()


def test_a_condenser_must_define_condense_or_step():
    class Undecided(Condenser):
        """Defines nothing."""

    for decide in (Undecided().condense, Undecided().step):
        with pytest.raises(TypeError, match="Undecided must define 'condense' or 'step'"):
            decide(viewed())


def test_a_wrong_result_names_its_condenser():
    view = "return the View to continue with, or a Condensation"
    for what, problem in (
        (lambda: None, f"returned None; {view}"),
        (lambda: (1, 2), f"returned a tuple; {view}"),
        (_a_view, "returned a coroutine; define it with 'def'"),
        (lambda: condensed(1), r"returned a CondensationAction; return Condensation\(action\)"),
        (lambda: viewed(messages(1)), r"returned a View; return view.with_events\(events\)"),
    ):
        for condenser in (Returns(what), RollingReturns(what), PipelineCondenser([Returns(what)])):
            with new_history(condenser) as history:
                history.append(messages(3))
                with pytest.raises(TypeError, match=f"the condenser (Rolling)?Returns {problem}"):
                    history.step()
                assert history.version() == 3


# --- wishes that cannot be fulfilled, and other models ---


@pytest.mark.parametrize("condenser", ["amortized_forgetting", "conversation_window"])
def test_a_request_for_a_short_view_is_declined(condenser):
    with new_history(condenser) as history:
        history.append(messages(2))
        history.request_condensation("the model asked for it")
        assert ids(history.prepare()) == [0, 1]
        declined = list(history.events())[-1]
        assert declined.metadata["outcome"] == "declined"
        assert declined.metadata["reason"]
        history.request_condensation("the server refused the prompt")
        with pytest.raises(NoCondensationAvailable):
            history.prepare()
        history.append(message("on", "agent"))
        history.request_condensation("again")
        assert ids(history.prepare())[-1] == 6


def test_a_step_condenses_for_another_model():
    with foldlog.open("memory:", condenser="llm", agent_llm=AskableAgent(100_000)) as histories:
        history = histories["c1"]
        history.append([message("x" * 100, source) for source in ("user", "agent") * 10])
        assert (len(history.prepare()), history.prepare().dialect) == (20, "litellm")
        small = AskableAgent(1_000, "by the small one", dialect="anthropic")
        view = history.prepare(llm=small)
        assert len(view) < 20
        assert view.dialect == "anthropic"
        assert history.view().condensations[-1].summary.startswith("by the small one\n\n# Digest")
        assert isinstance(history.step(llm=small), foldlog.View)
        with pytest.raises(InvalidCondenser, match="agent_llm is of type str"):
            history.prepare(llm="gpt")
        assert len(histories["c2"].prepare(llm=AskableAgent(1))) == 0


class Masking(Condenser):
    """Shortens the first event, and keeps two events."""

    def step(self, view, agent_llm=None):
        masked = view.with_masks({0: structs.replace(view[0], content="short")})
        return Step(replace(masked, kept=frozenset({1, 2})), ())


def test_another_model_changes_only_the_dialect():
    with new_history(Masking()) as history:
        history.append(messages(4))
        view = history.step()
        assert (view.kept, view.units_before_masks) == (frozenset({1, 2}), history.view().units)
        other = history.step(llm=AskableAgent(1_000, dialect="anthropic"))
        assert other.dialect == "anthropic"
        for field in fields(view):
            if field.name != "dialect":
                assert getattr(other, field.name) == getattr(view, field.name), field.name


def test_several_models_share_the_wait():
    summarizer = Scripted(failed())
    with new_history(LLMSummarizingCondenser(summarizer, max_size=10, keep_first=1)) as history:
        history.append(messages(11))
        for llm in (None, AskableAgent(100_000), None, AskableAgent(90_000)):
            assert len(history.prepare(llm=llm)) == 11
        assert len(summarizer.calls) == 1, "a model that failed is asked again some events later"


# --- what a condenser is given, and what it returns ---


def test_events_alone_are_no_view():
    with pytest.raises(TypeError, match=r"takes a View, not a list; write condenser\.condense"):
        Asked(3).condense(messages(4))


def test_a_view_in_place_of_a_step_is_refused():
    class Eager(Condenser):
        def step(self, view, agent_llm=None):
            return view

    with pytest.raises(TypeError, match="Eager returned a View; return the View to continue"):
        run_step(Eager(), viewed(messages(1)), None)


@pytest.mark.parametrize("is_over", [True, False])
def test_a_required_condensation_of_kept_events_is_unavailable(is_over):
    class Forgets(Condenser):
        def overrun(self, view, agent_llm):
            return Overrun([0, 1, 2], 1, None) if is_over else None

        def condense(self, view):
            return Condensation(forgotten_event_ids=ids(view))

    view = replace(viewed(messages(2)), kept_from=0)
    if is_over:
        with pytest.raises(NoCondensationAvailable, match="nothing can be forgotten"):
            run_step(Forgets(), view, None)
    else:
        result, (report,) = run_step(Forgets(), view, None)
        assert result is view
        assert (report["condenser"], report["outcome"]) == ("Forgets", "above size")


def test_a_strategy_with_its_own_rule_need_not_name_the_earlier_summary():
    class Middle(Asked):
        def get_condensation(self, view):
            return Condensation(
                forgotten_event_ids=[view[2].id], summary="so far", summary_offset=1
            )

    class NamesIt(Asked):
        def get_condensation(self, view):
            return Condensation(
                forgotten_event_ids=ids(view[1:3]), summary="so far", summary_offset=1
            )

    view = viewed(messages(4), condensed(1, summary="before", offset=1))
    for kind in (Middle, NamesIt):
        made = plan(kind(3).condense(view))
        assert set(made.forgotten_event_ids) == {2, view[1].id}
        assert [getattr(event, "content", "") for event in view.then([made])] == [
            "m0",
            "so far",
            "m3",
        ]
    without = plan(Asked(3).condense(view))
    assert without.forgotten_event_ids == (view[1].id,)


def test_parts_of_a_pipeline_as_arguments():
    parts = [Asked(3), Asked(4), Asked(5)]
    for pipeline in (
        PipelineCondenser(*parts),
        PipelineCondenser(parts[0], parts[1:]),
        PipelineCondenser(iter(parts)),
        PipelineCondenser(condensers=parts),
        PipelineCondenser(parts[0], condensers=parts[1:]),
    ):
        assert pipeline.condensers == tuple(parts)
    assert not PipelineCondenser(parts).asks_a_model
    assert PipelineCondenser(parts, [LLMSummarizingCondenser(Scripted())]).asks_a_model
    assert PipelineCondenser().condense(viewed(messages(1))) == viewed(messages(1))


@pytest.mark.parametrize("offset, place", [(0, 0), (1, 2), (2, 3), (3, 3)])
def test_summary_behind_hidden_events(offset, place):
    """A later part of a pipeline sees fewer events, and its summary stands before the same one."""

    class Hides(Condenser):
        def step(self, view, agent_llm=None):
            shown = view.with_events([*view[:1], *view[2:]])
            return Step(shown, ({"rule": {}},))

    class Last(Condenser):
        def condense(self, view):
            return Condensation(forgotten_event_ids=[3], summary="x", summary_offset=offset)

    view = viewed(messages(4))
    made = plan(PipelineCondenser(Hides(), Last()).condense(view))
    assert made.summary_offset == place
    assert plan(PipelineCondenser(Last()).condense(view)).summary_offset == offset
