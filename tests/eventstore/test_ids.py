"""What a condensation forgets is the list of ids whenever it is read, however it is given and stored."""

from __future__ import annotations

import json
import pickle

import msgspec
import pytest

from foldlog.eventstore import CondensationAction, InvalidEvent, Message, open_store
from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import EventIds

HUGE = 10**30


def test_a_range_reads_as_its_ids():
    with open_store("memory:") as store:
        store.append("c1", [Message(source="user", content=str(n)) for n in range(6)], expected_version=0)
        range_form = CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=4)
        list_form = CondensationAction(forgotten_event_ids=[1, 0])
        store.append("c1", [range_form, list_form], expected_version=6)
        for one, ids in zip(store.events("c1", 6), ([2, 3, 4], [1, 0]), strict=True):
            assert isinstance(one, CondensationAction)
            assert one.forgotten_event_ids == ids
            assert ids == one.forgotten_event_ids
            assert one.forgotten_event_ids == tuple(ids)
            assert json.loads(json.dumps(one.forgotten_event_ids)) == ids
        stored = encode(range_form).body
        assert b'"forgotten_event_ids"' not in stored or b'"forgotten_event_ids":null' in stored


def test_the_forms_stay_two():
    range_form = CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=3)
    list_form = CondensationAction(forgotten_event_ids=[2, 3])
    assert range_form.forgotten_event_ids == list_form.forgotten_event_ids
    assert range_form != list_form, "they are stored differently"
    assert (range_form.given_ids, list_form.given_ids) == (None, (2, 3))
    assert msgspec.structs.replace(range_form, id=7).forgotten_event_ids == [2, 3]
    assert pickle.loads(pickle.dumps(range_form)) == range_form
    assert list_form.forgotten == range_form.forgotten
    with pytest.raises(InvalidEvent, match="both given"):
        CondensationAction(forgotten_event_ids=[2], forgotten_events_start_id=2, forgotten_events_end_id=3)


def test_nothing_is_declined_as_ever():
    declined = CondensationAction(forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "no"})
    assert declined.forgotten_event_ids == []


def test_a_huge_range_is_not_written_out():
    action = CondensationAction(forgotten_events_start_id=5, forgotten_events_end_id=HUGE)
    assert action.forgotten_event_ids == range(5, HUGE + 1)


def test_ids_as_a_tuple_are_equal_to_the_list():
    ids = EventIds([3, 1])
    assert ids == [3, 1]
    assert ids != [1, 3]
    assert ids == (3, 1)
    assert hash(ids) == hash((3, 1))
    assert ids != "31"
