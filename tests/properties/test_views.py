"""Laws of the View on random histories: a View may be folded in parts, and ``well_formed`` returns
events that can be sent to a model. ``definition.py`` defines what a View shows.
"""

from itertools import combinations

from hypothesis import given, strategies as st

from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    CondensationSummary,
    Observation,
    summary_id,
)
from foldlog.projections import View, contains, intervals_kept, well_formed
from foldlog.projections.fold import fold
from foldlog.projections.messages.growing import BEGINNING
from foldlog.projections.units import units
from tests.how_many import examples
from tests.properties.histories import histories, ordered_histories
from tests.said import ids

many = examples(300)


# --- one fold ---


@many
@given(histories)
def test_a_fold_may_be_in_two_parts(events):
    at_once = fold(events)
    for cut in range(len(events) + 1):
        before = fold(events[:cut])
        after = fold(events[cut:], before.state)
        assert after.state == at_once.state
        older = before.condensations if after.older is None else after.older
        assert (*older, *after.condensations) == tuple(at_once.condensations)


@many
@given(histories)
def test_a_grown_view_is_the_whole_view(events):
    view = View.from_events(())
    for start in range(0, len(events), 3):
        view = view.then(events[start : start + 3])
    assert view == View.from_events(events)
    intervals = intervals_kept(events, len(events))
    condensations = [
        event
        for event in events
        if isinstance(event, CondensationAction) and contains(intervals, event.id)
    ]
    assert list(view.condensations) == condensations


# --- fit for a model ---


@many
@given(histories)
def test_every_call_has_one_answer(
    events,
):
    fit = well_formed(View.from_events(events))
    waiting = []
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


# --- cutting ---


@examples(200)
@given(st.one_of(ordered_histories, histories), st.data())
def test_forgetting_between_cut_points_takes_nothing_else(events, data):
    view = View.from_events(events)
    for start, stop in draw_cuts(view, data):
        assert_nothing_else_goes(view, start, stop)


def draw_cuts(view, data):
    parts = units(view.events, view.left_behind)
    calls = parts.parallel_calls
    in_loops = {place for loop in parts.loops for place in loop}
    unanswered = [group for group in calls if group.unanswered]
    if any(
        len(group.members) > 1 and not in_loops.isdisjoint(group.members) for group in unanswered
    ):
        # a cut may part these calls, and the loop would then begin or end at another event
        return []
    responses = [view[group.members[0]].response_id for group in calls]
    # an unanswered call is dropped together with the calls of all responses with the same id
    open_responses = {view[group.members[0]].response_id for group in unanswered} - {None}
    if any(responses.count(response) > 1 for response in open_responses):
        return []
    pairs = list(combinations(view.cut_points, 2))
    return data.draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []


def assert_nothing_else_goes(view, start, stop):
    forgotten = set(ids(view[start:stop]))
    action = CondensationAction(
        id=view.version,
        forgotten_event_ids=tuple(sorted(forgotten)),
        summary="in short",
        summary_offset=start,
    )
    after = view.then([action])
    assert [event_id for event_id in ids(after) if event_id != summary_id(action.id)] == [
        event_id for event_id in ids(view) if event_id not in forgotten
    ]
    # More may be sent than before: a summary may separate a complete end from a broken loop.
    assert set(ids(well_formed(after))) >= set(ids(well_formed(view))) - forgotten


# --- messages ---


@many
@given(histories)
def test_every_visible_event_is_in_one_message(events):
    view = View.from_events(events)
    rendered = view.rendered()
    assert [message for message, _ in rendered] == view.to_messages()
    groups = [positions for message, positions in rendered if message["content"] != BEGINNING]
    places = [place for positions in groups for place in positions]
    assert len(places) == len(set(places))
    visible = set(units(view.events, view.left_behind).seen)
    missing = visible.intersection(view.fit_positions).difference(places)
    assert set(places) <= visible.intersection(view.fit_positions)
    assert all(
        isinstance(view[place], CondensationSummary) and not view[place].content
        for place in missing
    )


# --- units of a View that grows ---


def _copy_units(view):
    parts = view.units
    return (
        [(list(calls.members), calls.unanswered) for calls in parts.parallel_calls],
        *map(_copy_part, parts[1:]),
    )


def _copy_part(part):
    if isinstance(part, int):
        return part
    if isinstance(part, dict):
        return dict(part)
    return [list(member) if isinstance(member, list) else member for member in part]


@many
@given(histories, st.sets(st.integers(0, 40)))
def test_units_do_not_change_when_a_view_grows(events, versions):
    """A View gets the units of the View that it grew from, and does not change them there."""
    view = View.from_events([])
    moments = []
    for event in events:
        view = view.then([event])
        if view.version in versions:
            moments.append((view, _copy_units(view)))
    moments.append((view, _copy_units(view)))
    for earlier, expected in moments:
        assert _copy_units(earlier) == expected
        assert _copy_units(View.from_events(events[: earlier.version])) == expected
