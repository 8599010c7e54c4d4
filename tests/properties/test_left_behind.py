"""Looking at the borders of what is forgotten finds the same as looking at everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventstore.events import Action, CondensationAction, Event, Message, Observation, Origin
from projections import View, fold, left_behind
from projections.intervals import contains, normalize
from projections.left_behind import left_behind_by_ids, left_behind_by_piece
from tests.properties.histories import histories, long_histories
from tests.properties.slow_fold import slow_fold


@settings(max_examples=500, deadline=None)
@given(histories, st.data())
def test_the_borders_of_a_piece_tell_who_is_left_behind(events: list[Event], data: st.DataObject) -> None:
    view = View.from_events(events)
    start = data.draw(st.integers(0, len(view)))
    stop = data.draw(st.integers(start, len(view)))
    gone = {event.id for event in view[start:stop]}
    expected = left_behind_by_ids(view.events, view.left_behind, gone)
    assert left_behind_by_piece(view.events, view.left_behind, start, stop) == expected


@settings(max_examples=1_000, deadline=None)
@given(long_histories, st.integers(0, 2), st.integers(0, 2))
def test_a_fold_that_hopes_for_the_best_knows_when_it_was_wrong(events: list[Event], trials: int, recent: int) -> None:
    with patched(fold, MANY=0), patched(left_behind, TRIALS=trials, RECENT=recent):
        assert View.from_events(events).left_behind == slow_fold(events).left_behind


@contextmanager
def patched(module: ModuleType, **values: int) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    vars(module).update(values)
    try:
        yield
    finally:
        vars(module).update(before)


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=12))
def test_intervals_hold_what_their_pairs_hold(pairs: list[tuple[int, int]]) -> None:
    intervals = normalize(pairs)
    members = {value for first, last in pairs for value in range(first, last + 1)}
    assert [value for value in range(-25, 25) if contains(intervals, value)] == sorted(members)
    assert all(after - last > 1 for (_, last), (after, _) in pairwise(intervals))


def test_a_view_emptied_after_many_condensations_that_then_loses_an_answer_leaves_its_call_behind() -> None:
    """A long fold looks closer only where it must; what is left of the View may all be newer than its last cuts."""

    def forget(first: int, last: int) -> CondensationAction:
        origin = Origin(format="test")
        return CondensationAction(origin=origin, forgotten_events_start_id=first, forgotten_events_end_id=last)

    events: list[Event] = [Message(source="user", content="x") for _ in range(1_100)]
    events += [forget(n, n) for n in range(6)]
    events.append(forget(0, 1_099))
    events += [Action(tool="t", call_id="k"), Observation(content="o", call_id="k")]
    events.append(forget(1_108, 1_108))
    numbered = [replace(event, id=event_id) for event_id, event in enumerate(events)]
    assert View.from_events(numbered).left_behind == slow_fold(numbered).left_behind == {1_107}


def test_what_stands_between_two_pieces_that_are_forgotten_may_be_left_behind() -> None:
    origin = Origin(format="test")
    events: list[Event] = [
        CondensationAction(id=0, origin=origin, forgotten_event_ids=(), summary="", summary_offset=0),
        Action(id=1, tool="t", call_id="k"),
        Observation(id=2, content="o", call_id="k"),
        CondensationAction(id=3, origin=origin, forgotten_event_ids=(-2, 2)),
    ]
    with patched(fold, MANY=0), patched(left_behind, TRIALS=0, RECENT=0):
        assert View.from_events(events).left_behind == {1}
