"""``when_cheaper``: a condensation is due as soon as it saves more than it costs."""

import pytest
from msgspec import structs

from foldlog.condensers import (
    ESTIMATE,
    DigestCondenser,
    LLMSummarizingCondenser,
    Reason,
    Requirement,
)
from foldlog.condensers.models.caches import CacheRule
from foldlog.condensers.strategies.savings import REPLY, SUMMARY, saves
from foldlog.eventstore import Message
from tests.condensers.made import (
    after,
    answer,
    call,
    condensed,
    message,
    messages,
    plan,
    reason_of,
    viewed,
)
from tests.condensers.scripted import Scripted, Weights

CHEAP = CacheRule(models="", least=0, read=0.1)
HUNDREDS = Weights(100, 100)


def sums_of(view):
    return HUNDREDS.token_sums(view)


def turns(count, **meta):
    return [
        Message(source="agent" if n % 2 else "user", content=f"m{n}", meta=meta)
        for n in range(count)
    ]


def test_it_is_due_when_calls_paid_its_cost():
    # 20 events of 100 tokens, with 10 calls. The condensation removes 7/8 of 1,500 tokens, so the
    # calls have paid 10 / 2 * 0.1 * 1,312.5 = 656.25. The 687.5 tokens after the head are written
    # again at 0.9 of the price: 618.75.
    view = viewed(turns(20))
    span = slice(0, 15)
    assert saves(view, sums_of(view), span, 37, CHEAP)
    assert not saves(view, sums_of(view), span, 38, CHEAP)


def test_events_before_the_forgotten_ones_are_not_written_again():
    # 20 calls have paid 20 / 2 * 0.1 * 2,625. Of the 3,500 tokens after the head, 875 are written
    # again at 0.9 of the price: 787.5.
    view = viewed(turns(40))
    assert saves(view, sums_of(view), slice(5, 35), 1_837, CHEAP)
    assert not saves(view, sums_of(view), slice(5, 35), 1_838, CHEAP)


def test_usage_tells_what_the_cache_reads():
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1, "cached_tokens": 0}
    view = viewed(turns(20, usage=usage))
    # Without a cache, nothing is lost, and each repeated token has the full price.
    assert saves(view, sums_of(view), slice(0, 15), 6_562, CHEAP)
    assert not saves(view, sums_of(view), slice(0, 15), 6_563, CHEAP)


@pytest.mark.parametrize(
    "usage, most",
    [
        ({"prompt_tokens": 1_000, "cached_tokens": 500}, 3_300),
        ({"prompt_tokens": 1_000, "cached_tokens": 3_000}, 37.5),
        ({"prompt_tokens": 1_000}, 37.5),
        ({"prompt_tokens": 0, "cached_tokens": 0}, 37.5),
    ],
)
def test_a_cache_may_read_a_part_of_each_prompt(usage, most):
    # With half of each prompt from the cache, a repeated token costs 0.55. The calls have paid
    # 10 / 2 * 0.55 * 1,312.5, and 687.5 tokens are written again at 0.45 of the price.
    events = turns(20, usage=usage)
    others = {"usage": {"prompt_tokens": 9, "cached_tokens": 9}}
    events[::2] = [structs.replace(event, meta=others) for event in events[::2]]
    view = viewed(events)
    assert saves(view, sums_of(view), slice(0, 15), most - 0.1, CHEAP)
    assert not saves(view, sums_of(view), slice(0, 15), most + 0.1, CHEAP)


def test_a_cache_that_is_written_at_a_low_price_costs_nothing_more():
    rule = CacheRule(models="", least=0, read=0.1, write=0.05)
    view = viewed(turns(20))
    assert saves(view, sums_of(view), slice(0, 15), 656, rule)
    assert not saves(view, sums_of(view), slice(0, 15), 657, rule)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_parallel_calls_are_one_call_of_the_model(order):
    rule = CacheRule(models="", least=0, read=0.1, write=0.1)
    events = [message()]
    for number in range(10):
        response = [call(call_id=f"{name}{number}", response_id=f"r{number}") for name in "ab"]
        response += [answer(call_id=f"{name}{number}") for name in "ab"]
        events += [response[place] for place in order]
    view = viewed(events)
    assert len(view) == 41
    # Ten calls have paid 10 / 2 * 0.1 for 7/8 of 3,000 tokens.
    assert saves(view, sums_of(view), slice(1, 31), 1_312, rule)
    assert not saves(view, sums_of(view), slice(1, 31), 1_313, rule)


def test_only_calls_since_the_last_condensation_count():
    nothing_lost = CacheRule(models="", least=0, read=0.1, write=0.1)
    view = viewed(turns(20))
    assert saves(view, sums_of(view), slice(2, 15), 0, nothing_lost)
    view = viewed(turns(20), condensed(2, 3, summary="s", offset=2))
    assert not saves(view, sums_of(view), slice(2, 15), 0, nothing_lost)


def test_a_condensation_for_savings_has_its_reason():
    condenser = DigestCondenser(when_cheaper=True, max_size=1_000)
    view = viewed(
        [message("word " * 300, source) for _ in range(20) for source in ("user", "agent")]
    )
    assert condenser.reasons(view, ESTIMATE) == {Reason.COST}
    assert condenser.condensation_requirement(view, ESTIMATE) == Requirement.SOFT
    assert DigestCondenser(max_size=1_000).reasons(view, ESTIMATE) == set()
    result = condenser.condense(view, ESTIMATE)
    assert plan(result).metadata["reason"] == "cost"
    assert reason_of(plan(result)) == "it saves more than it costs"
    assert condenser.reasons(after(view, result), ESTIMATE) == set()


def test_a_quarter_of_the_tokens_stays():
    # 41 events of 100 tokens follow the first one, and 10 of them fit into a quarter of 4,100 tokens.
    view = viewed(turns(42))
    condenser = DigestCondenser(when_cheaper=True, max_size=1_000, keep_first=1)
    assert condenser.reasons(view, HUNDREDS) == {Reason.COST}
    assert len(plan(condenser.condense(view, HUNDREDS)).forgotten_event_ids) == 31


def test_a_quarter_of_the_tokens_after_a_long_head_stays():
    view = viewed(turns(52))
    condenser = DigestCondenser(when_cheaper=True, max_size=1_000, keep_first=12)
    assert condenser.reasons(view, HUNDREDS) == {Reason.COST}
    assert len(plan(condenser.condense(view, HUNDREDS)).forgotten_event_ids) == 31


def test_a_continued_prompt_is_due_earlier():
    def due_at(prompt):
        condenser = LLMSummarizingCondenser(
            Scripted(), prompt=prompt, when_cheaper=True, max_size=10_000, keep_first=1
        )
        events = []
        for number in range(300):
            events += [message("w " * 200), message("w " * 200, "agent")]
            if condenser.reasons(viewed(events), ESTIMATE):
                return number
        raise AssertionError("never due")

    assert due_at("continue") < due_at("events")


@pytest.mark.parametrize("prompt, tokens", [("events", 80), ("continue", 0.1 * 100)])
def test_call_costs_its_prompt_and_its_reply(prompt, tokens):
    condenser = LLMSummarizingCondenser(Scripted(), prompt=prompt)
    cost = condenser.prompt_cost([0, 10, 90, 100], slice(1, 2), CHEAP)
    assert cost == tokens + REPLY * SUMMARY * 80


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_short_view_saves_nothing(count):
    condenser = DigestCondenser(when_cheaper=True)
    assert condenser.reasons(viewed(messages(count))) == set()
