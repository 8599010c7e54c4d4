"""A condensation that is required and cannot be made: told at each step, and recorded ever more rarely."""

from __future__ import annotations

import pytest

from foldlog.condensers.errors import ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.reports import Usage, reports_of
from foldlog.condensers.strategies.llm_summary import LLMSummarizingCondenser
from foldlog.eventstore import ANY_VERSION, Annotation, CondensationAction, SystemMessage, open_store
from foldlog.projections import Views
from tests.condensers.made import REQUEST, condensed, message, messages
from tests.condensers.scripted import Characters, Scripted

STEPS = 40
CALLS = 6
"""Calls of the model in one step: the condensation, and five tries of the hard reset."""


class Unstable:
    """A model that is never there, and takes another time to say so at each call."""

    model, supports_function_calling, supports_response_schema = "m", False, False

    def __init__(self, *, comes_back_at: int | None = None) -> None:
        self.calls, self._comes_back_at = 0, comes_back_at

    def complete(self, prompt, **how):
        self.calls += 1
        if self.calls == self._comes_back_at:
            return Scripted("NEW").complete(prompt)
        report = {"model": "m", "failure": "unavailable", "problem": "boom", "metrics": {"latency_s": self.calls}}
        raise ModelCallFailed("m", "unavailable", "boom", report)


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        opened.append("c1", messages(11), expected_version=0)
        yield opened


def handler(store, model):
    views = Views(store)
    return CondenseHandler(store, views, LLMSummarizingCondenser(model, max_size=1_000), Characters(60))


def stepped(handling, store, steps=STEPS):
    """The agent goes on between the steps, as one does whose model takes more than it says."""
    for _ in range(steps):
        with pytest.raises(NoCondensationAvailable, match="boom"):
            handling.handle("c1")
        store.append("c1", message("more"), expected_version=ANY_VERSION)


def stored(store, kind):
    return [event for event in store.events("c1") if isinstance(event, kind)]


def told(store):
    return [report for event in store.events("c1") for report in reports_of(event)]


def attempts(store):
    return Usage.of(told(store)).attempts


def test_a_model_that_fails_for_ever_is_declined_once_and_what_it_cost_is_added_up(store):
    model = Unstable()
    stepped(handler(store, model), store)
    (declined,) = stored(store, CondensationAction)
    assert declined.metadata["outcome"] == "declined"
    notes = stored(store, Annotation)
    assert [reports_of(note)[0]["repeated"] for note in notes] == [1, 1, 2, 4, 8, 16]
    assert model.calls == STEPS * CALLS
    assert attempts(store) == 33 * CALLS, "those after the 32nd repeat wait for the next report"
    last = reports_of(notes[-1])[0]
    assert last["failures"] == {"unavailable": 16 * CALLS}
    assert last["metrics"]["latency_s"] == sum(range(17 * CALLS + 1, 33 * CALLS + 1))
    assert "boom" in last["problem"]


def test_what_is_not_recorded_yet_goes_into_the_condensation_that_comes_at_last(store):
    model = Unstable(comes_back_at=20 * CALLS + 1)
    handling = handler(store, model)
    stepped(handling, store, 20)
    action = handling.handle("c1").action
    assert action.summary == "NEW"
    assert reports_of(action)[0]["repeated"] == 3
    assert attempts(store) == 20 * CALLS + 1


def test_a_handler_that_is_new_to_a_conversation_knows_that_it_was_declined(store):
    stepped(handler(store, Unstable()), store, 3)
    stepped(handler(store, Unstable()), store, 3)
    assert len(stored(store, CondensationAction)) == 1


def test_a_request_is_always_answered(store):
    handling = handler(store, Unstable())
    stepped(handling, store, 2)
    store.append("c1", REQUEST, expected_version=ANY_VERSION)
    stepped(handling, store, 5)
    assert [action.metadata["outcome"] for action in stored(store, CondensationAction)] == ["declined"] * 2
    assert not Views(store).current("c1").unhandled_condensation_request


def test_after_another_condensation_a_decline_is_recorded_again(store):
    handling = handler(store, Unstable())
    stepped(handling, store, 2)
    store.append("c1", condensed(1, 2), expected_version=ANY_VERSION)
    stepped(handling, store, 2)
    outcomes = [action.metadata.get("outcome") for action in stored(store, CondensationAction)]
    assert outcomes == ["declined", None, "declined"]


def test_where_no_model_was_asked_nothing_is_recorded_but_the_first_decline(store):
    store.append("c2", SystemMessage(content="x" * 100), expected_version=0)
    handling = handler(store, Unstable())
    for _ in range(STEPS):
        with pytest.raises(NoCondensationAvailable):
            handling.handle("c2")
    assert store.version("c2") == 2
