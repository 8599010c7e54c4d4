"""The ids that a condensation forgets, whether they are given and stored as a list or as a range."""

import json
import pickle

import msgspec
import pytest

from foldlog.eventstore import CondensationAction, InvalidEvent, open_store, summary_id
from foldlog.eventstore.append_rules import Append, State, decide, summaries_named
from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import EventIds
from tests.golden.rows import rows
from tests.said import said, say


def test_summaries_named_by_a_command():
    forgets = CondensationAction(forgotten_event_ids=[3, summary_id(7), summary_id(2)])
    assert summaries_named([said("a"), forgets]) == {summary_id(7), summary_id(2)}


@pytest.mark.parametrize("fields, problem", rows("refusals.json", "malformed condensations"))
def test_malformed_condensation_is_refused(fields, problem):
    with pytest.raises(InvalidEvent, match=problem):
        CondensationAction(**fields)


def test_declined_condensation_forgets_nothing():
    reason = {"outcome": "declined", "reason": "nothing can be forgotten"}
    declined = CondensationAction(forgotten_event_ids=[], metadata=reason)
    assert (declined.forgotten, declined.forgotten_event_ids) == (((), ()), [])
    assert decide(State("c1", 1), Append([declined], 1))


def test_forgotten_intervals_and_summaries():
    action = CondensationAction(
        forgotten_event_ids=[9, 2, 3, 3, -7, 4, -1, -2], summary="s", summary_offset=0
    )
    assert action.forgotten == (((2, 4), (9, 9)), (-2, -7))
    assert CondensationAction(forgotten_events_start_id=3, forgotten_events_end_id=8).forgotten == (
        ((3, 8),),
        (),
    )


HUGE = 10**30


def test_a_range_reads_as_its_ids():
    with open_store("memory:") as store:
        say(store, "c1", *[str(n) for n in range(6)])
        range_form = CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=4)
        list_form = CondensationAction(forgotten_event_ids=[1, 0])
        store.append("c1", [range_form, list_form], expected_version=6)
        for event, ids in zip(store.events("c1", 6), ([2, 3, 4], [1, 0]), strict=True):
            assert event.forgotten_event_ids == ids
            assert ids == event.forgotten_event_ids
            assert event.forgotten_event_ids == tuple(ids)
            assert json.loads(json.dumps(event.forgotten_event_ids)) == ids
        assert b'"forgotten_event_ids"' not in encode(range_form).body


def test_the_forms_stay_two():
    range_form = CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=3)
    list_form = CondensationAction(forgotten_event_ids=[2, 3])
    assert range_form.forgotten_event_ids == list_form.forgotten_event_ids
    assert range_form != list_form, "they are stored differently"
    assert (range_form.given_ids, list_form.given_ids) == (None, (2, 3))
    assert msgspec.structs.replace(range_form, id=7).forgotten_event_ids == [2, 3]
    assert pickle.loads(pickle.dumps(range_form)) == range_form
    assert list_form.forgotten == range_form.forgotten


def test_huge_range_is_not_written_out():
    action = CondensationAction(forgotten_events_start_id=5, forgotten_events_end_id=HUGE)
    assert action.forgotten_event_ids == range(5, HUGE + 1)


def test_ids_equal_list_and_tuple():
    ids = EventIds([3, 1])
    assert ids == [3, 1]
    assert ids != [1, 3]
    assert ids == (3, 1)
    assert hash(ids) == hash((3, 1))
    assert ids != "31"


@pytest.mark.parametrize(
    "fields, unknown",
    [
        ({"forgotten_event_ids": [4, 5, 6]}, 6),
        ({"forgotten_event_ids": [5, 6]}, 5),
        ({"forgotten_event_ids": [6, 7]}, 6),
        ({"forgotten_event_ids": [0, 5]}, 5),
        ({"forgotten_events_start_id": 5, "forgotten_events_end_id": 8}, 5),
        ({"forgotten_events_start_id": 1, "forgotten_events_end_id": 8}, 8),
    ],
)
def test_a_condensation_names_the_first_event_that_is_missing(fields, unknown):
    forgets = CondensationAction(**fields)
    words = f"event 0 of this append to conversation 'c1' forgets event {unknown}; it may forget"
    with pytest.raises(InvalidEvent, match=f"^{words} earlier events"):
        decide(State("c1", 5), Append([forgets], 5))


def test_a_range_of_one_event():
    def forgotten(start, end):
        action = CondensationAction(forgotten_events_start_id=start, forgotten_events_end_id=end)
        return action.forgotten.intervals

    assert (forgotten(3, 3), forgotten(3, 4)) == (((3, 3),), ((3, 4),))
