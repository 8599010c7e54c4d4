"""What a condensation forgets is the list of ids whenever it is read, however it is given and stored."""

from __future__ import annotations

import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import CondensationAction, InvalidEvent, Message, open_store
from eventstore.codec import encode
from eventstore.events import EventIds, IdRange, ids_of_range
from tests.how_many import examples

HUGE = 10**30


@pytest.mark.parametrize("store_url", ["memory:", "sqlite"])
def test_a_range_reads_as_its_ids(store_url: str, tmp_path):
    url = f"sqlite:///{tmp_path}/h.db" if store_url == "sqlite" else store_url
    with open_store(url) as store:
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
    ids = CondensationAction(forgotten_events_start_id=5, forgotten_events_end_id=HUGE).forgotten_event_ids
    assert ids
    assert ids is not None
    assert HUGE in ids
    assert HUGE + 1 not in ids
    assert "5" not in ids
    assert (ids.count("5"), ids.count(HUGE)) == (0, 1)
    assert ids.index(HUGE) == HUGE - 5
    with pytest.raises(ValueError, match="not among the ids"):
        ids.index("5")
    assert (ids[0], ids[1], ids[-1]) == (5, 6, HUGE)
    assert ids[2:4] == (7, 8)
    assert ids != [5, 6]
    assert next(iter(reversed(ids))) == HUGE
    assert repr(ids) == f"IdRange(5, {HUGE})"


@examples(25)
@given(st.integers(0, 40_000), st.integers(-3, 12_000), st.data())
def test_a_range_behaves_as_the_list_of_its_ids(start: int, width: int, data: st.DataObject):
    plain = list(range(start, start + width))
    for ids in (ids_of_range(start, start + width - 1), IdRange(start, start + width - 1)):
        assert ids == plain
        assert plain == ids
        assert ids == tuple(plain)
        assert EventIds(plain) == ids
        assert ids != [*plain, 1]
        assert ids != [-1, *plain[1:]] or not plain
        assert ids != [*map(str, plain)] or not plain
        assert (len(ids), bool(ids), list(ids)) == (len(plain), bool(plain), plain)
        part = data.draw(st.slices(max(1, len(plain))))
        assert ids[part] == tuple(plain[part])
        if plain:
            wanted = data.draw(st.sampled_from(plain))
            assert wanted in ids
            assert ids.index(wanted) == wanted - start
            assert ids.count(wanted) == 1


def test_ids_as_a_tuple_are_equal_to_the_list():
    ids = EventIds([3, 1])
    assert ids == [3, 1]
    assert ids != [1, 3]
    assert ids == (3, 1)
    assert hash(ids) == hash((3, 1))
    assert ids != "31"
