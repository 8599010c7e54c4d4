"""The items of a View: equal to a plain list of them, and shared with the Views before it."""

import threading

from hypothesis import given, strategies as st

from foldlog.eventstore.events import Message
from foldlog.projections import View
from foldlog.projections.items import Items
from tests.at_once import at_once
from tests.said import ids


def message(event_id):
    return Message(id=event_id, source="user", content="said")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=12))
def test_items_grown_from_any_others(steps):
    grown = [(Items([]), [])]
    for step, (back, count) in enumerate(steps):
        items, plain = grown[max(0, len(grown) - 1 - back)]
        added = [message(100 * step + n) for n in range(count)]
        grown.append((items.plus(added), plain + added))
    for items, plain in grown:
        assert list(items) == plain
        assert len(items) == len(plain)
        assert items[1:3] == tuple(plain[1:3])
        assert items[-2:] == tuple(plain[-2:])
        assert items == Items(list(plain))


def test_equal_items_have_equal_hashes():
    assert hash(Items([])) == hash(View.from_events(()).state.items)


def test_a_growing_view_holds_its_events_once():
    view = View.from_events([message(0)])
    first = view.state.items._events
    for event_id in range(1, 500):
        view = view.then([message(event_id)])
    assert view.state.items._events is first
    assert len(first) == 500


def test_only_one_thread_grows_a_list():
    start = Items([message(0)])
    grown = []
    ready = threading.Barrier(8)

    def grow(number):
        ready.wait()
        grown.append(start.plus([message(number)] * number))

    at_once(grow, range(1, 9))
    assert sorted(map(ids, grown)) == [[0, *[n] * n] for n in range(1, 9)]
    assert len({id(items._events) for items in grown}) == 8
