"""Attention: the model chooses what stays, and a bad choice costs as little as no choice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from foldlog._words.reasons import because
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.reports import reports_of
from foldlog.condensers.strategies.forgetting import LLMAttentionCondenser
from tests.condensers.made import (
    REQUEST,
    after,
    answer,
    call,
    condensed,
    message,
    messages,
    pair,
    plan,
    shown,
    viewed,
)
from tests.condensers.scripted import Scripted, failed, said
from tests.said import ids


def attention(reply, **parameters):
    answer = f'{{"ids": {reply}}}' if isinstance(reply, list) else reply
    return LLMAttentionCondenser(
        Scripted(answer), **{"max_size": 10, "keep_first": 1, **parameters}
    )


def left(reply, *events, **parameters):
    view = viewed(*(events or messages(11)))
    return ids(after(view, attention(reply, **parameters).condense(view)))


@pytest.mark.parametrize(
    "chosen, right",
    [
        ([3, 5, 7, 9], [0, 3, 5, 7, 9]),
        ([9, 7, 5, 3, 2, 1], [0, 3, 5, 7, 9]),
        ([3, 3, 3, 3], [0, 3, 8, 9, 10]),  # T2
        ([100, 101, 102, -5], [0, 7, 8, 9, 10]),  # T3
        ([0, 0, 0, 4], [0, 4, 8, 9, 10]),  # T4
        ([], [0, 7, 8, 9, 10]),  # T4: the backfill is of what is not in the head
        ("not json", [0, 7, 8, 9, 10]),  # T5
        ('{"ids": ["a"]}', [0, 7, 8, 9, 10]),  # T5
        ('{"ids": [true]}', [0, 7, 8, 9, 10]),  # T5
        (None, [0, 7, 8, 9, 10]),  # T5
        ("[1]", [0, 7, 8, 9, 10]),  # T5
        ('{"ids": ' + "[" * 100_000, [0, 7, 8, 9, 10]),
        (said('{"ids": [3, 5', finish_reason="length"), [0, 7, 8, 9, 10]),  # T5
    ],
)
def test_the_head_the_first_ids_that_there_are_and_then_the_newest_stay(chosen, right):
    assert left(chosen) == right


def test_a_call_stays_or_goes_with_its_answer():
    assert left([2], message(), pair(1), messages(9), max_size=4) == [0, 1, 2]  # T8


def test_a_summary_is_shown_to_the_model_by_its_own_id_and_stays():
    view = viewed(messages(4), condensed(1, 2, summary="OLD", offset=1), messages(10))  # T6
    condenser = attention([5])
    result = condenser.condense(view)
    assert "<EVENT id=-6>" in condenser.llm.prompt()
    assert -6 in ids(after(view, result))
    assert plan(result).forgotten.summaries == ()


def test_nobody_is_asked_where_nothing_can_go():
    condenser = attention([1])
    with pytest.raises(NoCondensationAvailable, match="fit half of max_size"):  # T7
        condenser.get_condensation(viewed(messages(5)))
    assert condenser.llm.calls == []


def test_the_head_counts_event_by_event_and_then_grows_by_its_unit():
    parallel = [call(call_id=f"c{n}", response_id="r") for n in range(4)] + [
        answer(call_id=f"c{n}") for n in range(4)
    ]
    condenser = attention([9], max_size=10, keep_first=1)
    view = viewed(parallel, messages(6))
    assert ids(after(view, condenser.condense(view))) == [*range(8), 9, 11, 12, 13]
    assert len(condenser.llm.calls) == 1


def test_nobody_is_asked_where_every_unit_stays_whatever_is_chosen():
    thinking = ({"type": "thinking", "thinking": "hm"},)
    loop = [
        replace(call(call_id="c0"), thinking=thinking),
        answer(call_id="c0"),
        *pair(1),
        *pair(2),
        *pair(3),
    ]
    condenser = attention([2], max_size=6, keep_first=1)
    view = viewed(message(), loop)
    result, (report,) = condenser.step(view)
    assert (result, condenser.llm.calls) == (view, [])
    assert report["outcome"] == "above size"
    assert "6 events stay because a part of their call or tool loop is kept" in report["problem"], (
        "two are the newest"
    )
    with pytest.raises(NoCondensationAvailable):
        condenser.condense(viewed(message(), loop, REQUEST))


def test_where_no_reply_comes_nothing_is_forgotten_unless_it_must_be():
    view = viewed(messages(11))
    assert shown(attention(failed()).condense(view)) is view  # L5
    must = viewed(messages(11), REQUEST)
    assert ids(after(must, attention(failed()).condense(must))) == [0, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "reply", ["", "ok", "I cannot help", said('{"ids": [3, 5', finish_reason="length")]
)
def test_why_says_that_the_newest_stay_because_no_reply_chose_others(reply):
    made = plan(attention(reply).condense(viewed(messages(11))))
    (report,) = reports_of(made)
    assert because(made) == f"View of 11 events exceeded 10; the model failed: {report['problem']}"


def test_the_model_is_shown_every_event_and_held_to_a_schema():
    condenser = attention([1])
    condenser.condense(viewed(messages(11)))
    assert len(condenser.llm.calls[0]) == 12
    assert condenser.llm.asked_how[0]["response_schema"]["properties"]["ids"]["items"] == {
        "type": "integer"
    }


def test_a_model_that_follows_no_schema_is_refused_after_the_numbers_were_checked():
    free = Scripted(response_schema=False)
    with pytest.raises(InvalidCondenser, match="has response_schema"):
        LLMAttentionCondenser(free)
    with pytest.raises(InvalidCondenser, match=r"keep_first \(2\)"):
        LLMAttentionCondenser(free, max_size=4, keep_first=2)


def test_what_the_choice_cost_is_recorded():
    metadata = plan(attention([3]).condense(viewed(messages(11)))).metadata
    assert metadata["model"] == "scripted"
    assert metadata["prompt"] == "attention"
    assert list(metadata["condenser_meta"][0]) == ["metrics"]


def test_a_choice_that_lets_nothing_go_was_paid_for_all_the_same():
    parallel = [call(call_id=f"c{n}", response_id="r") for n in range(3)] + [
        answer(call_id=f"c{n}") for n in range(3)
    ]
    events = [*parallel, *pair(4)]
    view = viewed(events)
    result, reports = attention([1, 6], max_size=4, keep_first=0).step(view)
    assert result is view
    assert [report["metrics"]["cost"] for report in reports] == [0.01]
    result, _ = attention([1, 6], max_size=4, keep_first=0).step(viewed(events, REQUEST))
    assert plan(result).forgotten.intervals == ((0, 5),), "the newest stay"
    assert len(reports_of(plan(result))) == 1
