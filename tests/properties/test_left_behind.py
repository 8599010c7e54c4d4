"""Where a piece of a View is forgotten that is apart from the rest, no event is left behind, as the
definition says.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, strategies as st
from msgspec.structs import replace

from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    Origin,
)
from foldlog.projections import View
from foldlog.projections.intervals import contains, normalize
from foldlog.projections.left_behind import left_behind_after, left_behind_by_ids
from tests.how_many import examples
from tests.properties.histories import THINKING, histories, long_histories
from tests.properties.slow_fold import slow_fold


@examples(500)
@given(histories, st.data())
def test_a_forgotten_piece_leaves_behind_what_the_definition_says(
    events: list[Event], data: st.DataObject
) -> None:
    view = View.from_events(events)
    start = data.draw(st.integers(0, len(view)))
    gone = view[start : data.draw(st.integers(start, len(view)))]
    assume(gone)
    ids = {event.id for event in gone}
    expected = (view.left_behind | left_behind_by_ids(view.events, view.left_behind, ids)) - ids
    assert left_behind_after(view.events, view.left_behind, start, gone) == expected


@examples(1_000)
@given(long_histories, st.data())
def test_a_long_fold_is_what_its_definition_says(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    view, in_two = View.from_events(events), View.from_events(events[:cut]).then(events[cut:])
    slow = slow_fold(events)
    assert list(view) == slow.events
    assert view.unhandled_condensation_request == slow.requested
    assert view.left_behind == slow.left_behind
    assert view == in_two
    assert view.condensations == in_two.condensations


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=12))
def test_intervals_hold_what_their_pairs_hold(pairs: list[tuple[int, int]]) -> None:
    intervals = normalize(pairs)
    members = {value for first, last in pairs for value in range(first, last + 1)}
    assert [value for value in range(-25, 25) if contains(intervals, value)] == sorted(members)
    assert all(after - last > 1 for (_, last), (after, _) in pairwise(intervals))


def test_a_view_emptied_after_many_condensations_that_then_loses_an_answer_leaves_its_call_behind() -> (
    None
):
    def forget(first: int, last: int) -> CondensationAction:
        origin = Origin(format="test")
        return CondensationAction(
            origin=origin, forgotten_events_start_id=first, forgotten_events_end_id=last
        )

    events: list[Event] = [Message(source="user", content="x") for _ in range(1_100)]
    events += [forget(n, n) for n in range(6)]
    events.append(forget(0, 1_099))
    events += [Action(tool="t", call_id="k"), Observation(content="o", call_id="k")]
    events.append(forget(1_108, 1_108))
    numbered = [replace(event, id=event_id) for event_id, event in enumerate(events)]
    assert View.from_events(numbered).left_behind == {1_107}


def test_what_stands_between_two_pieces_that_are_forgotten_may_be_left_behind() -> None:
    origin = Origin(format="test")
    events: list[Event] = [
        CondensationAction(
            id=0, origin=origin, forgotten_event_ids=(), summary="", summary_offset=0
        ),
        Action(id=1, tool="t", call_id="k"),
        Observation(id=2, content="o", call_id="k"),
        CondensationAction(id=3, origin=origin, forgotten_event_ids=(-2, 2)),
    ]
    assert View.from_events(events).left_behind == {1}


ORIGIN = Origin(format="test")


def _call(call: str, response: str | None = None, *, thinks: bool = False) -> Action:
    return Action(tool="t", call_id=call, response_id=response, thinking=THINKING if thinks else ())


def _answer(call: str) -> Observation:
    return Observation(content="o", call_id=call)


def _said(*, stays: bool = False) -> Message:
    return Message(source="agent", content="x", stays_with_next=stays)


def _replies(call: str) -> tuple[Event, ...]:
    """Return a call with thinking, its result, and what the reply "r" says before its calls."""
    words = Message(source="agent", content="x", meta={"reply": "r"})
    return _call(call, thinks=True), _answer(call), words


def _forget(*ids: int) -> CondensationAction:
    return CondensationAction(origin=ORIGIN, forgotten_event_ids=ids)


def _of_v0(source_id: int) -> Message:
    return Message(source="user", content="x", origin=Origin(format="openhands-v0", id=source_id))


def _forget_v0(source_id: int) -> CondensationAction:
    origin = Origin(format="openhands-v0", id=9)
    return CondensationAction(
        origin=origin, forgotten_event_ids=(source_id,), summary="s", summary_offset=0
    )


@pytest.mark.parametrize(
    "events, expected",
    [
        ([_call("a", "r"), _answer("a"), _call("b", "r"), _answer("b"), _forget(2, 3)], {0, 1}),
        ([_call("a"), _said(), _answer("a"), _forget(2)], {0}),
        ([_said(), _said(stays=True), _said(), _forget(1)], {2}),
        ([_said(), _said(stays=True), _said(), _forget(2)], {1}),
        ([_said(), _call("a"), _said(), _answer("a"), _forget(1), _forget(2)], {3}),
        (
            [_said(), _call("a"), _said(), _answer("a"), _said(), _said(), _forget(5), _forget(1)],
            {3},
        ),
        (
            [_said(), _call("a"), _said(), _answer("a"), _said(), _said(), _forget(1), _forget(4)],
            {3},
        ),
        (
            [
                _said(),
                _call("a", thinks=True),
                _answer("a"),
                _call("b"),
                _answer("b"),
                _forget(1, 2),
            ],
            {3, 4},
        ),
        ([_call("a", thinks=True), _answer("a"), _call("b"), _answer("b"), _forget(2, 3)], {0, 1}),
        ([*_replies("a"), _call("b", "r"), _answer("b"), _forget(0, 1)], {2, 3, 4}),
        ([*_replies("a"), _call("b", "s"), _answer("b"), _forget(0, 1)], set()),
        ([_said(stays=True), _said(), _call("b"), _answer("b"), _forget(2, 3)], {0, 1}),
        ([_said(stays=True), _said(), _call("b"), _answer("b"), _forget(0, 1)], {2, 3}),
        ([_call("a"), _said(stays=True), _answer("a"), _said(), _forget(0), _forget(1, 2)], {3}),
        ([_call("a"), _said(), _answer("a"), _forget(2), _said(), _forget(1)], {0}),
        ([_said(), _call("a"), _answer("a"), _said(), _forget(1, 2), _said(), _forget(3)], set()),
        ([_of_v0(7), _of_v0(8), _forget_v0(7), _of_v0(7), _said(), _forget(4)], set()),
        ([_of_v0(7), _forget_v0(7), _said(), _forget(2), _of_v0(7), _said(), _forget(5)], set()),
        ([_call("a"), _said(), _answer("a"), _forget(2), _said(), _forget(0)], set()),
    ],
)
def test_a_fold_finds_the_events_left_behind(events: list[Event], expected: set[int]) -> None:
    numbered = [replace(event, id=event_id) for event_id, event in enumerate(events)]
    for cut in range(len(numbered)):
        view = View.from_events(numbered[:cut]).then(numbered[cut:])
        assert view.left_behind == slow_fold(numbered).left_behind == expected
        assert list(view) == slow_fold(numbered).events
