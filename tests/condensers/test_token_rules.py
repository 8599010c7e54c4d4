"""Tokens in the place of the default number of events, and how much of the tail stays."""

from __future__ import annotations

import pytest

from foldlog.condensers import Condensation, DigestCondenser, LLMSummarizingCondenser, condenser_from_config
from foldlog.condensers.base import Reason
from foldlog.condensers.models.estimate import counting
from foldlog.projections import View
from tests.condensers.made import message, plan, viewed
from tests.condensers.scripted import Characters, Scripted, said

WINDOW = 1_000_000


def many(count: int) -> View:
    """Return a View of ``count`` messages of 800 characters."""
    return viewed(message("x" * 800) for _ in range(count))


def test_a_known_token_limit_replaces_the_default_number_of_events():
    view, model = many(121), Characters(WINDOW)
    assert DigestCondenser().condense(view, model) is view
    assert condenser_from_config({"type": "digest"}).condense(view, model) is view
    assert DigestCondenser(max_tokens=WINDOW).condense(view, counting(None)) is view


def test_without_a_token_limit_a_hundred_events_are_the_default():
    view = many(121)
    for model in (None, Characters()):
        assert DigestCondenser().reasons(view, model) == {Reason.EVENTS}
        assert isinstance(DigestCondenser().condense(view, model), Condensation)
    assert DigestCondenser().reasons(many(100)) == frozenset()


def test_a_size_that_is_given_always_counts():
    view = many(121)
    for model in (None, Characters(WINDOW)):
        assert DigestCondenser(max_size=100).reasons(view, model) == {Reason.EVENTS}
        assert DigestCondenser(max_size=121).reasons(view, model) == frozenset()


def test_a_request_and_too_many_tokens_are_due_whatever_the_number_of_events():
    view = many(20)
    assert DigestCondenser().reasons(view, Characters(5_000)) == {Reason.TOKENS}
    assert isinstance(DigestCondenser().condense(view, Characters(5_000)), Condensation)


@pytest.mark.parametrize("limit", [10_000, 20_000, 50_000])
def test_as_much_tail_as_fits_stays_and_the_prompt_fits(limit):
    view, model = many(200), Characters(limit)
    kept = {}
    for rule in ("half", "fits"):
        action = plan(LLMSummarizingCondenser(Scripted("a short summary " * 9), tail=rule).condense(view, model))
        after = view.then([action])
        kept[rule] = model.token_sums(after)[-1]
        assert kept[rule] <= limit * 0.9
    assert kept["half"] <= limit * 0.9 / 2 + 1_000
    assert kept["fits"] > limit * 0.9 * 3 / 4


def test_where_a_summary_does_not_fit_beside_the_tail_the_next_step_forgets_more_of_the_tail():
    view, model = many(200), Characters(20_000)
    condenser = LLMSummarizingCondenser(Scripted(said("y" * 9_000), said("a short summary " * 9)), tail="fits")
    view = view.then([plan(condenser.condense(view, model))])
    last = view[-1]
    view = view.then([plan(condenser.condense(view, model))])
    assert 5_000 < model.token_sums(view)[-1] <= 18_000
    assert view[-1] == last
