"""Tokens in the place of the default number of events, and how much of the tail stays."""

import pytest

from foldlog.condensers import (
    Condensation,
    DigestCondenser,
    InvalidCondenser,
    LLMSummarizingCondenser,
    Reason,
    Requirement,
    StructuredSummaryCondenser,
    condenser_from_config,
)
from foldlog.condensers.models.estimate import ESTIMATE, counting
from foldlog.eventstore import SystemMessage
from tests.condensers.made import answer, call, message, messages, new_history, plan, viewed
from tests.condensers.scripted import Characters, Scripted, said

WINDOW = 1_000_000


def many(count):
    """Return a View of ``count`` messages of 800 characters."""
    return viewed(message("x" * 800) for _ in range(count))


def test_a_token_limit_replaces_the_default_size():
    view = many(121)
    model = Characters(WINDOW)
    assert DigestCondenser().condense(view, model) is view
    assert condenser_from_config({"type": "digest"}).condense(view, model) is view
    assert DigestCondenser(max_tokens=WINDOW).condense(view, counting(None)) is view


def test_without_a_token_limit_events_count():
    view = many(241)
    condenser = LLMSummarizingCondenser(Scripted(*[said("a short summary " * 9)] * 2))
    for model in (None, Characters()):
        assert condenser.reasons(view, model) == {Reason.EVENTS}
        assert isinstance(condenser.condense(view, model), Condensation)
    assert condenser.reasons(many(240)) == frozenset()
    other = StructuredSummaryCondenser(Scripted())
    assert (other.reasons(many(100)), other.reasons(many(101))) == (frozenset(), {Reason.EVENTS})


@pytest.mark.parametrize(
    "head",
    [(), [SystemMessage(content="You know this. " * 20_000)]],
    ids=["no head", "a large head"],
)
def test_a_digest_always_counts_tokens(
    head,
):
    condenser = DigestCondenser()
    small = viewed(head, messages(500))
    assert condenser.condense(small) is small
    view = viewed(head, [message("word " * 700, source) for source in ("user", "agent") * 100])
    assert condenser.condensation_requirement(view) is Requirement.SOFT
    after = view.then([plan(condenser.condense(view))])
    tokens = ESTIMATE.token_sums(after)[-1] - ESTIMATE.token_sums(viewed(head))[-1]
    assert 14_000 < tokens < 20_000, "half of the tokens, and the digest"
    assert condenser.condense(after) is after


def test_without_any_limit_nothing_is_shortened():
    with new_history() as history:
        long = message("word " * 90_000)
        history.append([message(), long])
        assert [event.content for event in history.prepare()] == ["hello", long.content]
        history.append([message("on it", "agent"), long])
        assert [event.content for event in history.prepare()][-1] == long.content


def test_a_size_that_is_given_always_counts():
    view = many(121)
    for model in (None, Characters(WINDOW)):
        assert DigestCondenser(max_size=100).reasons(view, model) == {Reason.EVENTS}
        assert DigestCondenser(max_size=121).reasons(view, model) == frozenset()


@pytest.mark.parametrize("limit", [10_000, 20_000, 50_000])
def test_head_and_tail_take_half_the_limit(limit):
    view = many(200)
    model = Characters(limit)
    condenser = LLMSummarizingCondenser(Scripted("a short summary " * 9), keep_first=1)
    tokens = model.token_sums(view.then([plan(condenser.condense(view, model))]))[-1]
    assert limit * 0.9 / 3 < tokens <= limit * 0.9 / 2 + 1_000


@pytest.mark.parametrize("ratio, stay", [(0.5, 50), (0.3, 30), (0.1, 10)])
def test_a_condensation_leaves_the_part_of_the_limit_that_is_asked_for(ratio, stay):
    view = many(200)
    summary = "a short summary " * 9
    by_events = LLMSummarizingCondenser(Scripted(summary), max_size=100, keep_ratio=ratio)
    assert len(view.then([plan(by_events.condense(view))])) == stay
    limit = 50_000
    model = Characters()
    by_tokens = LLMSummarizingCondenser(
        Scripted(summary), max_tokens=limit, token_margin_ratio=0, keep_ratio=ratio
    )
    tokens = model.token_sums(view.then([plan(by_tokens.condense(view, model))]))[-1]
    assert limit * ratio - 1_000 < tokens <= limit * ratio + 1_000


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"keep_ratio": 0.6}, "keep_ratio.*at most 0.5"),
        ({"keep_ratio": 0}, r"keep_ratio \(0\) of max_size"),
        (
            {"keep_ratio": 0.1, "max_size": 100, "keep_first": 9},
            r"keep_first \(9\) must be less than keep_ratio \(0.1\) of max_size \(100\) minus 1",
        ),
    ],
)
def test_a_part_that_cannot_stay_is_refused(settings, problem):
    with pytest.raises(InvalidCondenser, match=problem):
        LLMSummarizingCondenser(Scripted("a summary"), **settings)


@pytest.mark.parametrize(
    "result, newest",
    [(100, 7), (300, 3), (420, 0), (600, 4), (850, 0), (5_000, 10)],
    ids=["small", "fits", "almost half", "above half", "no room", "above the limit"],
)
def test_a_large_result_in_the_head_does_not_empty_the_tail(result, newest):
    """The head of two events ends in the middle of a call, whose result stays too."""
    head = [message("find the file"), call(), answer("x" * result)]
    view = viewed(head, [message(f"{n:040}") for n in range(40)])
    condenser = LLMSummarizingCondenser(
        Scripted("a summary"), keep_first=2, max_tokens=1_000, token_margin_ratio=0
    )
    after = view.then([plan(condenser.condense(view, Characters()))])
    assert [event.id for event in after if event.id in (0, 1, 2)] == [0, 1, 2]
    assert len(after) == 3 + 1 + newest
