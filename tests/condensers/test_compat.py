"""Condensers and calls as people wrote them for OpenHands."""

from __future__ import annotations

import threading

import pytest

from foldlog.condensers.base import Condensation
from foldlog.condensers.compat import (
    Condenser,
    RollingCondenser,
    get_condensation_metadata,
)
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.reports import CONDENSER_METADATA_KEY
from foldlog.condensers.selection import forget
from foldlog.condensers.strategies.summarizing import SummarizingCondenser
from foldlog.eventstore import Annotation
from foldlog.projections import View
from tests.condensers.made import messages, plan, viewed


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
        assert isinstance(history.view(), View)
        super().write_metadata(history)


class ForgetsTheFirst(RollingCondenser):
    """Written as for the reference: ``should_condense`` and ``get_condensation``."""

    def should_condense(self, view, agent_llm=None):
        return len(view) > 2

    def get_condensation(self, view, agent_llm=None):
        self.add_metadata("why", "first come, first gone")
        return Condensation(forget(view[:1], {}))


def test_what_a_step_without_a_condensation_reports_is_kept_in_an_annotation():
    history = Kept(messages(3))
    assert Talkative().condensed_history(history) == viewed(messages(3))
    assert history.appended == [Annotation(name=CONDENSER_METADATA_KEY, data=[{"seen": 3}])]
    assert get_condensation_metadata(history) == [{"seen": 3}]


def test_what_a_step_with_a_condensation_reports_is_kept_in_it():
    history = Kept(messages(3))
    action = plan(ForgetsTheFirst().condensed_history(history))
    assert action.metadata[CONDENSER_METADATA_KEY] == [{"why": "first come, first gone"}]
    assert history.appended == [], "the caller appends it"
    history.append(action)
    assert get_condensation_metadata(history) == [{"why": "first come, first gone"}]


def test_the_report_is_kept_also_where_condensing_fails():
    history = Kept(messages(3))
    for error in (NoCondensationAvailable("nothing"), RuntimeError("boom")):
        with pytest.raises(type(error)):
            Talkative(error).condensed_history(history)
    assert get_condensation_metadata(history) == [{"seen": 3}, {"seen": 3}]


def test_an_empty_report_is_not_written_and_a_written_one_is_followed_by_a_new_one():
    history, condenser = Kept(), Talkative()
    condenser.write_metadata(history)
    assert history.appended == []
    condenser.add_metadata("a", 1)
    condenser.add_metadata("b", 2)
    condenser.write_metadata(history)
    condenser.write_metadata(history)
    assert get_condensation_metadata(history) == [{"a": 1, "b": 2}]


def test_reports_of_two_condensers_and_of_two_threads_do_not_mix():
    one, two, seen = Talkative(), Talkative(), []
    one.add_metadata("a", 1)
    two.add_metadata("b", 2)

    def elsewhere():
        history = Kept()
        one.add_metadata("c", 3)
        one.write_metadata(history)
        seen.extend(get_condensation_metadata(history))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    history = Kept()
    one.write_metadata(history)
    assert (seen, get_condensation_metadata(history)) == ([{"c": 3}], [{"a": 1}])


def test_other_annotations_and_metadata_of_another_shape_are_no_reports():
    history = Kept()
    history.append(Annotation(name="state", data=[{"a": 1}]))
    history.append(Annotation(name=CONDENSER_METADATA_KEY, data="text"))
    assert get_condensation_metadata(history) == []


def test_a_summarizing_condenser_that_cannot_summarize_cannot_be_made():
    class Speechless(SummarizingCondenser):
        """Selects, and has no words."""

    with pytest.raises(TypeError, match="summarize"):
        Speechless()


# --- signatures ---


def test_the_report_of_a_step_that_failed_is_not_mixed_with_the_next():
    condenser = Talkative(RuntimeError("boom"))
    with pytest.raises(RuntimeError):
        condenser.step(viewed(messages(3)))
    condenser.answer = None
    assert condenser.step(viewed(messages(2))).reports == ({"seen": 2},)
