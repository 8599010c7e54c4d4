"""A condensation that is required and cannot be made: told at each step, and recorded once."""

from __future__ import annotations

import pytest

from foldlog.condensers.errors import ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.handler import CondenseHandler
from foldlog.condensers.reports import Usage, reports_of
from foldlog.condensers.strategies.model_summaries import LLMSummarizingCondenser
from foldlog.eventstore import ANY_VERSION, Annotation, CondensationAction, open_store
from foldlog.projections import Views
from tests.condensers.made import REQUEST, condensed, message, messages
from tests.condensers.scripted import Characters

STEPS = 40


class Unstable:
    """A model that is never there, and takes another time to say so at each call."""

    model, supports_function_calling, supports_response_schema = "m", False, False

    def __init__(self, metrics=None):
        self.calls, self._metrics = 0, metrics or {}

    def complete(self, prompt, **how):
        self.calls += 1
        metrics = {"latency_s": self.calls, **self._metrics}
        report = {"model": "m", "failure": "unavailable", "problem": "boom", "metrics": metrics}
        raise ModelCallFailed("m", "unavailable", "boom", report)


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        opened.append("c1", messages(11), expected_version=0)
        yield opened


def handler(store, model):
    views = Views(store)
    return CondenseHandler(
        store, views, LLMSummarizingCondenser(model, max_size=1_000, keep_first=1), Characters(60)
    )


def stepped(handling, store, steps=STEPS):
    """The agent goes on between the steps, as one does whose model takes more than it says."""
    for _ in range(steps):
        with pytest.raises(NoCondensationAvailable, match="boom"):
            handling.handle("c1")
        store.append("c1", message("more"), expected_version=ANY_VERSION)


def stored(store, kind):
    return [event for event in store.events("c1") if isinstance(event, kind)]


def test_a_model_that_fails_for_ever_is_declined_once(store):
    model = Unstable()
    stepped(handler(store, model), store)
    (declined,) = stored(store, CondensationAction)
    assert declined.metadata["outcome"] == "declined"
    assert stored(store, Annotation) == []
    assert model.calls == STEPS


def test_calls_that_cost_something_are_recorded_at_each_step(store):
    stepped(handler(store, Unstable(metrics={"usage": {"total_tokens": 7}, "cost": 0.5})), store)
    assert len(stored(store, CondensationAction)) == 1
    spent = Usage.of(report for event in store.events("c1") for report in reports_of(event))
    assert (spent.attempts, spent.cost) == (STEPS, STEPS * 0.5)


def test_a_handler_that_is_new_to_a_conversation_knows_that_it_was_declined(store):
    stepped(handler(store, Unstable()), store, 3)
    stepped(handler(store, Unstable()), store, 3)
    assert len(stored(store, CondensationAction)) == 1


def test_a_request_is_always_answered(store):
    handling = handler(store, Unstable())
    stepped(handling, store, 2)
    store.append("c1", REQUEST, expected_version=ANY_VERSION)
    stepped(handling, store, 5)
    assert [action.metadata["outcome"] for action in stored(store, CondensationAction)] == [
        "declined"
    ] * 2
    assert not Views(store).current("c1").unhandled_condensation_request


def test_after_another_condensation_a_decline_is_recorded_again(store):
    handling = handler(store, Unstable())
    stepped(handling, store, 2)
    store.append("c1", condensed(1, 2), expected_version=ANY_VERSION)
    stepped(handling, store, 2)
    outcomes = [action.metadata.get("outcome") for action in stored(store, CondensationAction)]
    assert outcomes == ["declined", None, "declined"]
