"""If a piece of a View is forgotten, the definition says which events are left behind.
``tests/golden/views`` has a case for each kind of unit; ``python -m
tests.properties.test_left_behind`` writes the expected answers again.

``scripts/test`` runs this also for the modules ``foldlog.projections.fold`` and
``foldlog.projections.units``.
"""

from itertools import pairwise

import pytest
from hypothesis import assume, given, strategies as st
from msgspec.structs import replace

from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    Message,
    Observation,
    Origin,
)
from foldlog.projections import View, contains, normalize, well_formed
from foldlog.projections.left_behind import left_behind_after, left_behind_by_ids
from tests.golden.cases import cases_in, write_anew
from tests.how_many import examples
from tests.properties.definition import assert_as_defined
from tests.properties.histories import histories, long_histories
from tests.said import ids

CASES = [case for cases in cases_in("views").values() for case in cases]


@examples(500)
@given(histories, st.data())
def test_events_left_behind_by_a_forgotten_piece(events, data):
    view = View.from_events(events)
    start = data.draw(st.integers(0, len(view)))
    piece = view[start : data.draw(st.integers(start, len(view)))]
    assume(piece)
    forgotten = set(ids(piece))
    left_behind = left_behind_by_ids(view.events, view.left_behind, forgotten)
    expected = (view.left_behind | left_behind) - forgotten
    assert left_behind_after(view.events, view.left_behind, start, piece) == expected


@examples(4_000)
@given(long_histories, st.data())
def test_a_long_fold_agrees_with_its_definition(events, data):
    cut = data.draw(st.integers(0, len(events)))
    view = View.from_events(events)
    in_two = View.from_events(events[:cut]).then(events[cut:])
    assert_as_defined(view, events)
    assert view == in_two
    assert view.condensations == in_two.condensations


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=12))
def test_intervals_hold_what_their_pairs_hold(pairs):
    intervals = normalize(pairs)
    members = {value for first, last in pairs for value in range(first, last + 1)}
    assert [value for value in range(-25, 25) if contains(intervals, value)] == sorted(members)
    assert all(after - last > 1 for (_, last), (after, _) in pairwise(intervals))


def test_an_emptied_view_leaves_a_call_behind():
    def forget(first, last):
        origin = Origin(format="test")
        return CondensationAction(
            origin=origin, forgotten_events_start_id=first, forgotten_events_end_id=last
        )

    events = [Message(source="user", content="x") for _ in range(1_100)]
    events += [forget(n, n) for n in range(6)]
    events.append(forget(0, 1_099))
    events += [Action(tool="t", call_id="k"), Observation(content="o", call_id="k")]
    events.append(forget(1_108, 1_108))
    numbered = [replace(event, id=event_id) for event_id, event in enumerate(events)]
    assert View.from_events(numbered).left_behind == {1_107}


def render_case(case, output):
    """Return the ids of the events that the View of a case shows and leaves behind or that are
    sent, its cut points, or the calls of each response.
    """
    view = View.from_events(case.events())
    if output == "sent":
        return written(ids(well_formed(view)))
    if output == "cut points":
        return written(view.cut_points)
    if output == "responses":
        return "\n".join(written(calls.members) for calls in view.units.parallel_calls)
    return f"shows {written(ids(view))}\nleft behind {written(sorted(view.left_behind))}".rstrip()


def written(numbers):
    return " ".join(map(str, numbers))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_views_agree_with_their_definition(case):
    events = case.events()
    for output, text in case.outputs.items():
        assert render_case(case, output) == text, "python -m tests.properties.test_left_behind"
    for cut in range(len(events)):
        assert_as_defined(View.from_events(events[:cut]).then(events[cut:]), events)


if __name__ == "__main__":
    write_anew("views", render_case)
