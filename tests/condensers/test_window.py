"""Strategies without a summary: recent events, amortized forgetting, the conversation window."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
)
from foldlog.condensers.strategies.showing import RecentEventsCondenser
from foldlog.eventstore.events import Action, CondensationSummary, Message, Observation
from foldlog.projections import View, well_formed
from tests.condensers.made import (
    REQUEST,
    SYSTEM,
    after,
    answer,
    call,
    condensed,
    history,
    message,
    messages,
    pair,
    plan,
    shown,
    viewed,
)
from tests.condensers.scripted import Scripted
from tests.said import ids

THINKING = ({"type": "thinking", "thinking": "hm"},)

# --- recent events ---


@pytest.mark.parametrize(
    "count, keep_first, max_events, right",
    [
        (5, 1, 3, [0, 3, 4]),
        (5, 1, 5, [0, 1, 2, 3, 4]),
        (3, 1, 10, [0, 1, 2]),  # R1: the head is not shown twice
        (5, 3, 3, [0, 1, 2]),  # R2: no tail is no tail
        (5, 4, 2, [0, 1, 2, 3]),  # R2: the head wins
        (3, 0, 0, []),  # R2
        (5, 2, 3, [0, 1, 4]),
    ],
)
def test_recent_events_are_the_head_and_exactly_the_rest_from_the_end(
    count, keep_first, max_events, right
):
    whole = viewed(messages(count))
    view = shown(RecentEventsCondenser(max_events, keep_first).condense(whole))
    assert ids(view) == right
    assert (view is whole) == (count <= max_events)


def test_recent_events_keep_a_call_with_its_answer_on_either_border():
    view = viewed(message(), pair(1), messages(3), pair(2), message())
    recent, (report,) = RecentEventsCondenser(max_events=4, keep_first=2).step(view)
    assert ids(recent) == [0, 1, 2, 6, 7, 8], "head and tail both grow by the rest of a unit"
    assert report["events_kept_whole"] == 2


def test_a_head_that_ends_in_a_unit_costs_the_newest_events_no_place():
    calls = [call(call_id=f"c{n}", response_id="r") for n in range(4)]
    view = viewed(
        messages(2),
        calls,
        [answer(call_id=f"c{n}") for n in range(4)],
        pair(5),
        pair(6),
        message("STOP"),
    )
    recent, (report,) = RecentEventsCondenser(max_events=5, keep_first=3).step(view)
    assert ids(recent) == [*range(10), 12, 13, 14]
    assert (report["hidden"], report["events_kept_whole"]) == (2, 8)


def test_where_a_loop_runs_on_from_the_head_nothing_is_hidden_and_the_report_says_so():
    view = viewed(messages(2), running_loop(20), message("STOP"))
    recent, (report,) = RecentEventsCondenser(max_events=10, keep_first=3).step(view)
    assert recent is view
    assert (report["hidden"], report["events_kept_whole"]) == (0, len(view) - 10)


# --- amortized forgetting ---


def test_a_request_on_a_short_view_is_declined_not_an_accident():
    with pytest.raises(NoCondensationAvailable, match="within half of max_size"):  # A1
        AmortizedForgettingCondenser(max_size=10).condense(viewed(messages(3), REQUEST))


def running_loop(calls):
    """A tool loop that goes on: thinking at its first call only, as models without interleaved
    thinking write it.
    """
    first, answered = pair(0)
    return [
        replace(first, thinking=THINKING),
        answered,
        *(event for n in range(1, calls) for event in pair(n)),
    ]


def test_a_loop_that_is_running_stays_though_the_view_is_then_above_its_size():
    condenser = AmortizedForgettingCondenser(max_size=10, keep_first=1)
    view = viewed(messages(3), running_loop(5))
    action = plan(condenser.condense(view))
    assert action.forgotten.intervals == ((1, 2),), "what its rule forgets and no unit keeps"
    assert (action.metadata["events_after"], action.metadata["events_kept_whole"]) == (11, 6)
    larger, (report,) = condenser.step(view.then([action]))
    assert ids(larger) == [0, *range(3, 13)], "nothing more can go"
    assert (report["outcome"], report["events"]) == ("above size", 11)
    assert "6 events stay because a part of their call or tool loop is kept" in report["problem"]
    with pytest.raises(NoCondensationAvailable, match="6 events stay because a part"):
        condenser.condense(view.then([action, REQUEST]))


def test_a_summary_in_the_middle_never_costs_the_head():
    view = viewed(messages(12), condensed(1, 2, summary="S", offset=3), messages(4))
    result = AmortizedForgettingCondenser(max_size=10, keep_first=2).condense(view)
    assert ids(after(view, result))[:2] == [0, 3], "A2"
    assert -14 in plan(result).forgotten.summaries, "A4: it goes with the rest, by its id"
    assert ids(after(view, result)) == [0, 3, 14, 15, 16]


# --- the conversation window; ids as in a history that begins with 0 ---

RECALL = [
    Action(tool="recall", arguments={"query": "hello"}),
    Observation(content="known", tool="recall", cause=2),
]
STEPS = [*pair(1), *pair(2), *pair(3)]


def window(*events):
    view = viewed(*events, REQUEST)
    return view, ConversationWindowCondenser().condense(view)


def test_the_window_keeps_what_is_essential_and_the_newer_half():
    view, result = window(SYSTEM, message(), RECALL, STEPS)
    assert (plan(result).forgotten_events_start_id, plan(result).forgotten_events_end_id) == (4, 7)
    assert ids(after(view, result)) == [0, 1, 2, 3, 8, 9]


def test_only_what_was_recalled_for_the_first_message_is_essential():
    later = [
        Action(tool="recall", arguments={"query": "more"}),
        Observation(content="known", tool="recall", cause=7),
    ]
    events = history(SYSTEM, message(), RECALL, pair(1), message("more"), later, pair(2))
    view = viewed(events, REQUEST)
    assert ids(after(view, ConversationWindowCondenser().condense(view))) == [0, 1, 2, 3, 9, 10]


@pytest.mark.parametrize(
    "content",
    [
        "hello",
        (
            {"type": "text", "text": "hello"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ),
        ({"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": "hello"}),
        ({"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}),
    ],
    ids=["a text", "a text and an image", "an image and a text", "two texts"],
)
def test_a_recall_belongs_to_the_first_message_whatever_the_form_of_its_content(content):
    view, result = window(SYSTEM, Message(source="user", content=content), RECALL, STEPS)
    assert ids(after(view, result)) == [0, 1, 2, 3, 8, 9]


def test_a_recall_for_a_message_without_a_text_is_one_without_a_query():
    asked = Message(source="user", content=({"type": "image_url", "image_url": {"url": "data:,"}},))
    recall = [Action(tool="recall", arguments={"query": ""}), RECALL[1]]
    view, result = window(SYSTEM, asked, recall, STEPS)
    assert ids(after(view, result)) == [0, 1, 2, 3, 8, 9]
    view, result = window(SYSTEM, asked, RECALL, STEPS)
    assert ids(after(view, result)) == [0, 1, 6, 7, 8, 9], "this one is for another message"


def test_the_window_does_not_begin_with_answers_to_what_is_outside():
    orphans = [answer(call_id="x"), answer(call_id="y")]
    view, result = window(SYSTEM, message(), RECALL, orphans, STEPS[:4])
    assert ids(after(view, result)) == [0, 1, 2, 3, 8, 9]
    with pytest.raises(NoCondensationAvailable, match="essential or recent, or never sent"):
        # no model is sent them: the prompt would stay as long
        window(SYSTEM, message(), RECALL, orphans)


def test_parallel_calls_are_kept_or_forgotten_together():
    """W1: V0 keeps the first output of these parallel calls without its call."""
    calls = [call(call_id=f"p{n}", response_id="r") for n in range(3)]
    answers = [answer(call_id=f"p{n}") for n in range(3)]
    view, result = window(SYSTEM, message(), pair(1), calls, answers, messages(2))
    assert ids(after(view, result)) == [0, 1, 10, 11]


def test_a_batch_that_fills_the_window_is_kept_while_something_else_can_be_forgotten():
    """W1: V0 forgets everything but what is essential here."""
    calls = [call(call_id=f"p{n}", response_id="r") for n in range(4)]
    answers = [answer(call_id=f"p{n}") for n in range(4)]
    view, result = window(SYSTEM, message(), pair(1), calls, answers)
    assert ids(after(view, result)) == [0, 1, *range(4, 12)]


def test_parallel_calls_that_fill_the_window_go_where_nothing_else_can_but_not_with_a_tool_loop():
    first, *calls = [call(call_id=f"p{n}", response_id="r") for n in range(4)]
    answers = [answer(call_id=f"p{n}") for n in range(4)]
    view, result = window(SYSTEM, message(), first, calls, answers)
    assert ids(after(view, result)) == [0, 1], "as V0 does"
    with pytest.raises(NoCondensationAvailable, match="4 events stay because a part"):
        window(SYSTEM, message(), replace(first, thinking=THINKING), calls, answers)


def test_a_summary_that_a_log_holds_is_an_event_like_any_other():
    stored = CondensationSummary(content="an imported one")
    view = viewed(message(), stored, messages(5), REQUEST)
    assert 1 not in ids(after(view, ConversationWindowCondenser().condense(view)))
    assert 1 not in ids(
        after(view, LLMAttentionCondenser(Scripted('{"ids": []}'), max_size=4).condense(view))
    )


def test_the_window_keeps_summaries_and_never_writes_an_id_of_nothing():
    view, result = window(
        message(), messages(6), condensed(1, 2, summary="S", offset=1), messages(4)
    )
    assert -9 in ids(after(view, result)), "W3"
    assert plan(result).forgotten.summaries == ()
    assert all(event_id >= 0 for event_id in plan(result).forgotten_event_ids or ())


@pytest.mark.parametrize(
    "events",
    [[], [SYSTEM], pair(1), [SYSTEM, message(), *RECALL], [message()]],
    ids=["empty", "system prompt", "no user message", "essentials only", "one message"],
)
def test_a_window_without_anything_to_forget_says_so(events):
    # W2, W4: an empty condensation would answer and change nothing
    with pytest.raises(NoCondensationAvailable):
        window(events)


# --- parameters ---


def abandoned_loop():
    """A tool loop with a call that was never answered, the message that ended it, and work behind
    that.
    """
    loop = [
        replace(call(call_id="a"), thinking=THINKING),
        answer(call_id="a"),
        call(call_id="never"),
    ]
    return [message(), *loop, message("go on"), pair(1), pair(2)]


@pytest.mark.parametrize(
    "condenser",
    [
        RecentEventsCondenser(max_events=6, keep_first=2),
        AmortizedForgettingCondenser(max_size=8, keep_first=2),
        LLMAttentionCondenser(Scripted('{"ids": [1, 7, 8]}'), max_size=8, keep_first=1),
    ],
    ids=lambda condenser: condenser.type,
)
def test_the_event_that_ends_a_loop_stays_where_the_loop_would_take_along_what_is_behind_it(
    condenser,
):
    view = viewed(*abandoned_loop())
    result = condenser.condense(view)
    seen = result if isinstance(result, View) else after(view, result)
    assert 4 in ids(seen)
    assert {7, 8} <= set(ids(well_formed(seen)))


def test_what_recent_events_hide_is_reported():
    view = viewed(messages(5))
    (report,) = RecentEventsCondenser(max_events=3, keep_first=1).step(view).reports
    assert report == {
        "condenser": "recent_events",
        "rule": {"keep_first": 1, "max_events": 3},
        "hidden": 2,
    }
    assert RecentEventsCondenser(max_events=5).step(view).reports == ()


def test_where_a_call_that_waits_reaches_into_the_head_nothing_is_forgotten():
    parallel = [call(call_id=f"c{n}", response_id="r") for n in range(8)]
    view = viewed(message(), parallel, [answer(call_id=f"c{n}") for n in range(7)])
    for condenser in (
        AmortizedForgettingCondenser(max_size=10, keep_first=2),
        RecentEventsCondenser(10, keep_first=2),
    ):
        same, (report,) = condenser.step(view)
        assert same is view
        assert "rule" in report, "it is recorded once"


@pytest.mark.parametrize(
    "view, reason", [(viewed(messages(11)), "events"), (viewed(messages(9), REQUEST), "request")]
)
def test_a_condensation_says_why_it_was_made(view, reason):
    metadata = plan(AmortizedForgettingCondenser(max_size=10).condense(view)).metadata
    assert metadata["reason"] == reason
    assert (
        plan(AmortizedForgettingCondenser().get_condensation(viewed(messages(60)))).metadata[
            "reason"
        ]
        == "asked for"
    )
