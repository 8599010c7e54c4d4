"""Laws of the View, on histories that nobody wrote: one fold, and what ``well_formed`` gives can be
sent to a model.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, strategies as st

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Event,
    Observation,
    Origin,
    summary_id,
)
from foldlog.projections import View, contains, intervals_kept, well_formed
from foldlog.projections.fold import fold
from foldlog.projections.messages import BEGINNING
from foldlog.projections.units import units
from tests.how_many import examples
from tests.properties.histories import histories, long_histories, ordered_histories
from tests.properties.slow_fold import slow_loops
from tests.said import ids

many = examples(300)


# --- one fold ---


@many
@given(histories)
def test_folding_in_two_parts_at_any_cut_is_folding_at_once(events: list[Event]) -> None:
    whole = fold(events)
    for cut in range(len(events) + 1):
        before = fold(events[:cut])
        after = fold(events[cut:], before.state)
        assert after.state == whole.state
        older = before.condensations if after.older is None else after.older
        assert (*older, *after.condensations) == tuple(whole.condensations)


@many
@given(histories)
def test_a_view_that_grows_is_the_view_of_the_whole(events: list[Event]) -> None:
    view = View.from_events(())
    for start in range(0, len(events), 3):
        view = view.then(events[start : start + 3])
    assert view == View.from_events(events)
    kept = intervals_kept(events, len(events))
    made = [
        event
        for event in events
        if isinstance(event, CondensationAction) and contains(kept, event.id)
    ]
    assert list(view.condensations) == made


# --- fit for a model ---


@many
@given(histories)
def test_every_call_that_is_kept_has_one_later_answer_and_every_answer_one_earlier_call(
    events: list[Event],
) -> None:
    fit = well_formed(View.from_events(events))
    waiting: list[Action] = []
    for event in fit:
        if isinstance(event, Action):
            waiting.append(event)
        elif isinstance(event, Observation):
            call = next(
                call
                for call in waiting
                if (
                    call.id == event.cause
                    if event.call_id is None
                    else call.call_id == event.call_id
                )
            )
            waiting.remove(call)
    assert waiting == []


@many
@given(histories)
def test_no_batch_is_kept_by_half_and_no_loop_is_kept_broken(events: list[Event]) -> None:
    view = View.from_events(events)
    kept = set(ids(well_formed(view)))
    found = units(view.events, view.left_behind)
    for calls in found.parallel_calls:
        assert len({view[place].id in kept for place in calls.members}) == 1
    for loop in found.loops:
        shown = [view[place].id in kept for place in loop]
        assert shown == sorted(shown, reverse=True), "what is kept of a loop is its beginning"


@many
@given(st.one_of(histories, long_histories))
def test_loops_are_what_their_definition_says(events: list[Event]) -> None:
    view = View.from_events(events)
    found = units(view.events, view.left_behind)
    assert found.loops == slow_loops(view.events, view.left_behind, found.orphans)


def without_their_followers(view: View) -> set[int]:
    """Places of events that stay with the next, where the next of the agent's did not come."""
    there = [place for place, event in enumerate(view) if event.id not in view.left_behind]
    alone: set[int] = set()
    for place, after in zip(reversed(there), [None, *reversed(there)], strict=False):
        follows = after is not None and view[after].source == "agent" and after not in alone
        if view[place].stays_with_next and not follows:
            alone.add(place)
    return alone


@many
@given(histories)
def test_nothing_is_dropped_without_need(events: list[Event]) -> None:
    view = View.from_events(events)
    kept = set(ids(well_formed(view)))
    found = units(view.events, view.left_behind)
    needed = set(found.orphans) | {
        place for place, event in enumerate(view) if event.id in view.left_behind
    }
    reasons = {
        place for calls in found.parallel_calls if calls.unanswered for place in calls.members
    }
    reasons |= without_their_followers(view)
    together = [calls.members for calls in found.parallel_calls] + found.loops + found.bonds
    grown = -1
    while grown < len(reasons):  # whatever hangs together with a call that has no answer
        grown = len(reasons)
        reasons.update(*(members for members in together if not reasons.isdisjoint(members)))
    for place, event in enumerate(view):
        assert event.id in kept or place in needed or place in reasons


@many
@given(histories)
def test_what_is_well_formed_stays_as_it_is(events: list[Event]) -> None:
    fit = well_formed(View.from_events(events))
    assert well_formed(fit) == fit


# --- cutting ---


@examples(200)
@given(st.one_of(ordered_histories, histories), st.data())
def test_forgetting_between_two_cut_points_takes_nothing_away_from_what_stays(
    events: list[Event], data: st.DataObject
) -> None:
    view = View.from_events(events)
    for start, stop in drawn_cuts(view, data):
        assert_nothing_else_goes(
            view, start, stop, {"summary": "in short", "summary_offset": start}
        )


@examples(200)
@given(st.one_of(ordered_histories, histories), st.data())
def test_without_a_summary_too_unless_that_joins_a_loop_with_a_call_that_was_never_answered(
    events: list[Event], data: st.DataObject
) -> None:
    view = View.from_events(events)
    found = units(view.events, view.left_behind)
    of_loops = {place for loop in found.loops for place in loop}
    # it would stay with what comes after the gap
    alone = any(len(bond) == 1 for bond in found.bonds)
    if not (
        alone
        or any(
            each.unanswered
            for each in found.parallel_calls
            if not of_loops.isdisjoint(each.members)
        )
    ):
        for start, stop in drawn_cuts(view, data):
            assert_nothing_else_goes(view, start, stop, {})


def drawn_cuts(view: View, data: st.DataObject) -> list[tuple[int, int]]:
    found = units(view.events, view.left_behind)
    calls = found.parallel_calls
    of_loops = {place for loop in found.loops for place in loop}
    abandoned = (each.members for each in calls if each.unanswered and len(each.members) > 1)
    if any(not of_loops.isdisjoint(members) for members in abandoned):
        # a cut may part them, and a loop without one of its calls begins or ends elsewhere
        return []
    responses = [view[each.members[0]].response_id for each in calls]  # type: ignore[union-attr]
    unanswered = {
        response for each, response in zip(calls, responses, strict=True) if each.unanswered
    }
    # A call that was never answered may take along the calls of a response with the same id.
    joined = any(responses.count(response) > 1 for response in unanswered - {None})
    pairs = [] if joined else list(combinations(view.cut_points, 2))
    return data.draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []


def assert_nothing_else_goes(view: View, start: int, stop: int, summary: dict[str, Any]) -> None:
    gone = set(ids(view[start:stop]))
    action = CondensationAction(id=view.version, forgotten_event_ids=tuple(sorted(gone)), **summary)
    after = view.then([action])
    assert [event_id for event_id in ids(after) if event_id != summary_id(action.id)] == [
        event_id for event_id in ids(view) if event_id not in gone
    ]
    # More may be fit than before: a summary that parts a broken loop makes its end whole.
    assert set(ids(well_formed(after))) >= set(ids(well_formed(view))) - gone


@many
@given(ordered_histories)
def test_a_view_may_be_cut_before_its_first_event_and_no_call_that_waits_at_its_end_may_be_cut_off(
    events: list[Event],
) -> None:
    waiting = Action(tool="run", call_id="new", response_id="new")
    view = View.from_events(events).then([waiting])
    assert view.cut_points[0] == 0
    assert view.cut_points[-1] < len(view)


@many
@given(ordered_histories, st.integers(1, 4), st.data())
def test_parallel_calls_wait_until_each_has_its_observation_whatever_is_delivered_twice(
    events: list[Event], count: int, data: st.DataObject
) -> None:
    calls = [Action(tool="run", call_id=f"new {n}", response_id="new") for n in range(count)]
    observed = data.draw(st.lists(st.integers(0, count - 2), unique=True)) if count > 1 else []
    deliveries = [Observation(content="done", call_id=f"new {n}") for n in observed]
    others = [
        *deliveries,
        Observation(content="?", call_id="unknown"),
        Annotation(name="state", shown=True, origin=Origin(format="openai-responses")),
    ]
    arriving = [*deliveries, *data.draw(st.lists(st.sampled_from(others), max_size=4))]
    before = View.from_events(events)
    assert before.then([*calls, *arriving]).cut_points[-1] <= len(before)


# --- messages ---


@many
@given(histories)
def test_every_event_that_a_model_may_see_goes_into_one_message(events: list[Event]) -> None:
    view = View.from_events(events)
    rendered = view.rendered()
    assert [message for message, _ in rendered] == view.to_messages()
    made = [positions for message, positions in rendered if message["content"] != BEGINNING]
    places = [place for positions in made for place in positions]
    assert len(places) == len(set(places))
    seen = set(units(view.events, view.left_behind).seen)
    missing = seen.intersection(view.fit_positions).difference(places)
    assert set(places) <= seen.intersection(view.fit_positions)
    assert all(
        isinstance(view[place], CondensationSummary) and not view[place].content
        for place in missing
    )


# --- units of a View that grows ---


def _plainly(view: View) -> tuple[Any, ...]:
    found = view.units
    return (
        [(list(calls.members), calls.unanswered) for calls in found.parallel_calls],
        *map(_copied, found[1:]),
    )


def _copied(part: Any) -> Any:
    if isinstance(part, int):
        return part
    return (
        dict(part)
        if isinstance(part, dict)
        else [list(each) if isinstance(each, list) else each for each in part]
    )


@many
@given(histories, st.sets(st.integers(0, 40)))
def test_units_are_the_same_whether_they_were_found_before_the_view_grew_or_not(
    events: list[Event], asked_at: set[int]
) -> None:
    """They are carried on from one View to the next; the units of an earlier View stay as they are."""
    view, asked = View.from_events([]), []
    for event in events:
        view = view.then([event])
        if view.version in asked_at:
            asked.append((view, _plainly(view)))
    asked.append((view, _plainly(view)))
    for earlier, found in asked:
        assert _plainly(earlier) == found
        assert _plainly(View.from_events(events[: earlier.version])) == found
