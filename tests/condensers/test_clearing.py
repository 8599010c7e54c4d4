"""Clearing of old tool results and of old thinking: what stays, when it happens, and what it
leaves.
"""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from foldlog.condensers import (
    ClearThinkingCondenser,
    ClearToolUsesCondenser,
    CondenseHandler,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
    condenser_from_config,
    is_masked,
    reports_of,
)
from foldlog.condensers.models.estimate import event_size
from foldlog.condensers.strategies.clearing import _MARK_TOKENS
from foldlog.condensers.strategies.hiding import mask_events
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    CondensationAction,
    Observation,
    open_store,
)
from foldlog.eventstore.events import summary_id
from foldlog.projections import View, Views
from foldlog.projections.call_states import MARK, in_doubt
from foldlog.projections.messages.turns import turns
from tests.condensers.made import (
    answer,
    call,
    message,
    messages,
    new_history,
    pair,
    plan,
    shown,
    viewed,
)
from tests.said import ids

BIG = "word " * 400
BLOCK = ({"type": "thinking", "thinking": "so it is", "signature": "s"},)
ONE = event_size(pair(0, content=BIG)[1])
"""The tokens of one result. Its call has only a few."""


@pytest.mark.parametrize("at_least", [0, 4 * ONE])
def test_prompts_change_only_when_enough_is_cleared(at_least):
    condenser = ClearToolUsesCondenser(trigger=6 * ONE, keep=2, clear_at_least=at_least)
    view = viewed(message("do it"))
    before = viewed()
    batches = []
    for n in range(60):
        view = view.then(viewed(view, pair(n, content=BIG))[-2:])
        now = shown(condenser.condense(view))
        changed = [event for event, other in zip(now, before, strict=False) if event is not other]
        assert all(map(is_masked, changed)), "what was cleared stays cleared"
        if changed:
            batches.append(len(changed))
        before = now
    if at_least == 0:
        assert len(batches) >= 40
    else:
        assert 10 <= len(batches) <= 15
    assert min(batches) * ONE >= at_least


def test_unseen_parallel_results_stay():
    with open_store("memory:") as store:
        handler = CondenseHandler(store, Views(store), condenser_from_config(CONFIG | {"keep": 0}))
        for n in range(6):
            names = [f"{n} {place}" for place in range(3)]
            calls = [call(call_id=name, response_id=f"r{n}") for name in names]
            results = [answer(BIG, name) for name in names]
            store.append("c", [message(), *calls, *results], expected_version=ANY_VERSION)
            view = handler.handle("c")
            assert [is_masked(event) for event in view if isinstance(event, Observation)] == [
                True
            ] * 3 * n + [False] * 3
        (note,) = (event for event in store.events("c") if isinstance(event, Annotation))
        assert reports_of(note)[0]["rule"]["exclude_tools"] == ["look"], (
            "the rule is recorded, once"
        )


CONFIG = {"type": "clear_tool_uses", "trigger": 2 * ONE, "exclude_tools": ["look"]}


def test_a_digest_reads_cleared_results():
    failed = "Traceback (most recent call last):\n" + BIG + "\nValueError: month 13"
    view = viewed(
        message("do it"),
        *(
            [call("run", f"{n}", command="make"), answer(failed, f"{n}", is_error=True)]
            for n in range(12)
        ),
    )
    digest = {"type": "digest", "max_size": 20}
    both = condenser_from_config({"type": "pipeline", "condensers": [CONFIG | {"keep": 1}, digest]})
    alone = condenser_from_config(digest)
    assert "month 13" in plan(both.condense(view)).summary
    assert plan(both.condense(view)).summary == plan(alone.condense(view)).summary


# --- thinking ---


def thought(number):
    call, result = pair(number)
    return [
        Action(
            tool=call.tool,
            arguments={},
            call_id=call.call_id,
            thinking=BLOCK,
            response_id=f"r{number}",
        ),
        result,
    ]


def test_a_loop_stays_whole_without_its_thinking():
    view = viewed(message("1"), thought(1), pair(2), pair(3), message("2"), thought(4))
    result = shown(ClearThinkingCondenser().condense(view))
    assert is_masked(result[1])
    assert [turn.thinking for turn in turns(result, result.fit_positions) if turn.calls] == [
        (),
        (),
        (),
        BLOCK,
    ]
    assert result.with_events(result.events).cut_points == view.cut_points


def test_a_grown_view_shares_the_earlier_masks():
    view = viewed(pair(1), pair(2), pair(3))
    before = ObservationMaskingCondenser(2).condense(view)
    after = ObservationMaskingCondenser(2).condense(view.then(pair(4)))
    masks = [
        (earlier, later)
        for earlier, later in zip(before, after, strict=False)
        if is_masked(earlier)
    ]
    assert len(masks) == 2
    assert all(earlier is later for earlier, later in masks)
    assert not is_masked(ObservationMaskingCondenser(20).condense(view)[1])
    assert view[1].content == "done", "the View itself is not changed"


def test_a_prompt_of_exactly_the_trigger_stays():
    view = viewed(message("do it"), pair(1, content=BIG), pair(2, content=BIG))
    total = sum(map(event_size, view))
    gain = ONE - _MARK_TOKENS

    def cleared(**settings):
        result = shown(ClearToolUsesCondenser(keep=1, **settings).condense(view))
        return [event.id for event in result if is_masked(event)]

    assert cleared(trigger=total, clear_at_least=0) == []
    assert cleared(trigger=total - 1, clear_at_least=0) == [2]
    assert cleared(trigger=total - 1, clear_at_least=gain) == [2]
    assert cleared(trigger=total - 1, clear_at_least=gain + 1) == []


@dataclass
class Masking:
    """Only its name and its settings are in a report."""

    words: str
    type = "masking"


def masked_by(view, words, *indices):
    result = mask_events(Masking(words), view, dict.fromkeys(indices, ("content", words)))
    return result.result, result.reports


def test_a_mask_is_made_again_only_for_another_event_or_text():
    view = viewed(message("do it"), *pair(1), *pair(2))
    first, reports = masked_by(view, "A", 2, 4)
    assert [event.content for event in first if is_masked(event)] == ["A", "A"]
    assert reports == (
        {"condenser": "masking", "rule": {"words": "A"}, "masked": 2, "newest_masked": 4},
    )
    again, _ = masked_by(view, "A", 2)
    assert again[2] is first[2]
    assert again[4] is view[4]
    other_text, _ = masked_by(view, "B", 2)
    assert (other_text[2].content, other_text[2].meta) == ("B", {"masked_by": "masking"})
    failed = replace(view[2], is_error=True)
    other_event = view.with_events([*view[:2], failed, *view[3:]])
    assert masked_by(other_event, "B", 2)[0][2].is_error
    assert masked_by(view, "A")[1] == ()


def test_unseen_results_and_results_in_doubt_are_not_masked():
    unknown = {MARK: {"state": "unknown", "key": "k"}}
    doubtful = [call(call_id="x"), answer("?", "x", extras=unknown, cause=1)]
    view = viewed(message("do it"), doubtful, pair(2), pair(3))
    assert [*in_doubt(view.events)] == [2, 1]
    results = range(2, len(view), 2)

    def masked(view):
        return [event.id for event in masked_by(view, "A", *results)[0] if is_masked(event)]

    assert masked(view) == [4, 6]
    assert masked(View(view.state, (), kept_from=5)) == [4]


def test_recent_events_hide_summaries_in_between():
    forgetting = CondensationAction(forgotten_event_ids=[1, 2], summary="earlier", summary_offset=1)
    with new_history() as history:
        history.append([*messages(4), forgetting, *messages(2, 4)])
        view = history.view()
    assert ids(view.events) == [0, summary_id(4), 3, 5, 6]
    for most, first, expected in (
        (2, 1, [0, 6]),
        (3, 2, [0, summary_id(4), 6]),
        (4, 1, [0, 3, 5, 6]),
    ):
        step = RecentEventsCondenser(max_events=most, keep_first=first).step(view)
        assert ids(step.result.events) == expected
        assert step.result.events == tuple(event for event in view.events if event.id in expected)
        (report,) = step.reports
        assert report == {
            "condenser": "recent_events",
            "rule": {"max_events": most, "keep_first": first},
            "hidden": 5 - most,
        }
