"""What a condenser reports with ``add_metadata``, and what ``condensed_history`` takes and
writes.
"""

import copy
import pickle
import threading
from types import SimpleNamespace

import pytest

from foldlog.condensers import (
    CONDENSER_METADATA_KEY,
    Condensation,
    Condenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    ObservationMaskingCondenser,
    RollingCondenser,
    get_condensation_metadata,
)
from foldlog.condensers.base import run_step
from foldlog.condensers.reports import RULES_COUNT_FOR, annotation, reports_of
from foldlog.condensers.selection import forget
from foldlog.condensers.states import view_of, write_reports
from foldlog.condensers.strategies.summarizing import SummarizingCondenser
from foldlog.eventstore import Annotation, InvalidEvent
from foldlog.projections import View
from tests.condensers.made import answer, call, messages, plan, viewed
from tests.condensers.scripted import Scripted
from tests.said import ids


class Kept:
    """A history in memory."""

    def __init__(self, *parts):
        self._view = viewed(*parts)
        self.appended = []

    def view(self):
        return self._view

    def append(self, event):
        self.appended.append(event)
        self._view = self._view.then([event])

    def events(self):
        return self.appended

    def tail(self, count):
        return self.appended[-count:]


class State:
    """A history as a step in OpenHands has it: a list of events, and a dictionary."""

    def __init__(self, *parts):
        self.history = list(viewed(*parts))
        self.extra_data = {}


class Talkative(Condenser):
    """Written as for the reference: it overrides ``condense`` and adds metadata."""

    def __init__(self, answer=None):
        self.answer = answer

    def condense(self, view, agent_llm=None):
        self.add_metadata("seen", len(view))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or view

    def write_metadata(self, history):
        assert isinstance(view_of(history), View)
        super().write_metadata(history)


class ForgetsTheFirst(RollingCondenser):
    """Written as for the reference: ``should_condense`` and ``get_condensation``."""

    def should_condense(self, view, agent_llm=None):
        return len(view) > 2

    def get_condensation(self, view, agent_llm=None):
        self.add_metadata("why", "first come, first gone")
        return Condensation(forget(view[:1], {}))


def test_reports_of_a_step_become_an_annotation():
    history = Kept(messages(3))
    assert Talkative().condensed_history(history) == viewed(messages(3))
    assert history.appended == [Annotation(name=CONDENSER_METADATA_KEY, data=[{"seen": 3}])]
    assert get_condensation_metadata(history) == [{"seen": 3}]


def test_reports_are_stored_in_the_condensation():
    history = Kept(messages(3))
    action = plan(ForgetsTheFirst().condensed_history(history))
    assert action.metadata[CONDENSER_METADATA_KEY] == [{"why": "first come, first gone"}]
    assert action.metadata["reason"] == "a rule of its own"
    assert history.appended == [], "the caller appends it"
    history.append(action)
    assert get_condensation_metadata(history) == [{"why": "first come, first gone"}]


@pytest.mark.parametrize("history_type", [Kept, State])
def test_a_failed_step_stores_its_report(history_type):
    history = history_type(messages(3))
    for error in (NoCondensationAvailable("nothing"), RuntimeError("boom")):
        with pytest.raises(type(error)):
            Talkative(error).condensed_history(history)
    assert get_condensation_metadata(history) == [{"seen": 3}, {"seen": 3}]


def test_only_new_reports_are_written():
    history = Kept()
    condenser = Talkative()
    condenser.write_metadata(history)
    assert history.appended == []
    condenser.add_metadata("a", 1)
    condenser.add_metadata("b", 2)
    condenser.write_metadata(history)
    condenser.write_metadata(history)
    assert get_condensation_metadata(history) == [{"a": 1, "b": 2}]


def test_reports_of_condensers_and_threads_do_not_mix():
    first = Talkative()
    second = Talkative()
    reports = []
    first.add_metadata("a", 1)
    second.add_metadata("b", 2)

    def elsewhere():
        history = Kept()
        first.add_metadata("c", 3)
        first.write_metadata(history)
        reports.extend(get_condensation_metadata(history))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    history = Kept()
    first.write_metadata(history)
    assert (reports, get_condensation_metadata(history)) == ([{"c": 3}], [{"a": 1}])


def test_other_annotations_are_no_reports():
    history = Kept()
    history.append(Annotation(name="state", data=[{"a": 1}]))
    history.append(Annotation(name=CONDENSER_METADATA_KEY, data="text"))
    assert get_condensation_metadata(history) == []


def test_a_summarizing_condenser_must_define_summary():
    class Speechless(SummarizingCondenser):
        """Selects, and has no words."""

    with pytest.raises(TypeError, match="summary"):
        Speechless()


def test_a_failed_steps_report_does_not_stay():
    condenser = Talkative(RuntimeError("boom"))
    with pytest.raises(RuntimeError):
        run_step(condenser, viewed(messages(3)), None)
    condenser.answer = None
    assert run_step(condenser, viewed(messages(2)), None).reports == ({"seen": 2},)


# --- a state in memory ---


def test_a_state_stores_reports_in_extra_data():
    state = State(messages(3))
    assert Talkative().condensed_history(state) == viewed(messages(3))
    assert state.extra_data[CONDENSER_METADATA_KEY] == [{"seen": 3}]
    assert get_condensation_metadata(state) == [{"seen": 3}]
    assert len(state.history) == 3, "nothing is appended"
    assert get_condensation_metadata(State()) == []


def test_a_state_may_list_condensations():
    state = State(messages(4))
    result = ForgetsTheFirst().condensed_history(state)
    state.history.append(result)
    assert ids(Talkative().condensed_history(state)) == [1, 2, 3]
    with pytest.raises(InvalidEvent, match="a View is made of events, not of 5;"):
        View.from_events([*state.history, 5])


@pytest.mark.parametrize(
    "state, problem",
    [
        (list(viewed(messages(2))), "a list is neither"),
        (SimpleNamespace(history=[]), "a SimpleNamespace has no 'extra_data'"),
    ],
)
def test_an_object_without_a_history_is_refused(state, problem):
    with pytest.raises(
        TypeError, match=f"accepts a History, or an object with 'history', .*{problem}.*from_events"
    ):
        Talkative().condensed_history(state)


def test_the_report_of_a_summary_is_stored_twice():
    state = State(messages(9))
    condenser = LLMSummarizingCondenser(Scripted("all of it"), max_size=8, keep_first=1)
    condensation = condenser.condensed_history(state)
    (report,) = get_condensation_metadata(state)
    assert report["metrics"]["attempts"] == 1
    assert plan(condensation).metadata[CONDENSER_METADATA_KEY] == [report]


def test_the_rule_of_a_mask_is_logged_once():
    condenser = ObservationMaskingCondenser(1)
    turn = [call(), answer()]
    history = Kept(turn, messages(2))
    state = State(turn, messages(2))
    for _ in range(3):
        assert condenser.condensed_history(history)[1].content == "<MASKED>"
        assert condenser.condensed_history(state)[1].content == "<MASKED>"
    assert len(history.appended) == 1
    assert state.extra_data == {}


RULE = {"condenser": "observation_masking", "rule": {"attention_window": 1}}
OTHER_RULE = {**RULE, "rule": {"attention_window": 2}}


@pytest.mark.parametrize(
    "recorded, reports, written",
    [
        ([], [RULE], [RULE]),
        ([RULE], [RULE], []),
        ([OTHER_RULE], [RULE], [RULE]),
        ([RULE, OTHER_RULE], [RULE], []),
        ([RULE], [RULE, {"seen": 1}], [{"seen": 1}]),
    ],
)
def test_a_rule_that_the_log_has_is_not_logged_again(recorded, reports, written):
    history = Kept()
    history.append(annotation(recorded))
    write_reports(history, reports)
    assert [report for event in history.appended[1:] for report in reports_of(event)] == written


@pytest.mark.parametrize("others, is_written", [(49, False), (50, True)])
def test_a_rule_is_logged_again_after_half_of_the_events_for_which_it_counts(others, is_written):
    assert RULES_COUNT_FOR == 100
    history = Kept()
    history.append(annotation([RULE]))
    for event in messages(others):
        history.append(event)
    write_reports(history, [RULE])
    assert (len(history.appended) == 1 + others + 1) is is_written


def test_a_used_condenser_can_be_pickled():
    condenser = Talkative()
    run_step(condenser, viewed(*messages(3)), None)
    for copied in (copy.deepcopy(condenser), pickle.loads(pickle.dumps(condenser))):
        assert run_step(copied, viewed(*messages(2)), None).reports[-1] == {"seen": 2}
