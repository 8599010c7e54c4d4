"""Messages that are made while a View grows are the same as the messages of the whole View."""

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, strategies as st
from msgspec.structs import replace

from foldlog.condensers import NoOpCondenser, ObservationMaskingCondenser
from foldlog.eventstore import Action, Message, Observation
from foldlog.projections import View, render_events
from foldlog.projections.messages import growing
from foldlog.projections.messages.turns import DIALECTS
from tests.how_many import examples
from tests.properties.histories import histories

MARKED = ({"type": "text", "text": "marked ", "cache_control": {"type": "ephemeral"}},)
BLANK = (" ", "\n")


def _varied(event, draw):
    """Return the event, or with content that is blank or marked for a prompt cache."""
    if not isinstance(event, Message | Observation):
        return event
    return replace(
        event, content=draw(st.sampled_from([event.content, MARKED, event.content, *BLANK]))
    )


def _clear(value):
    """Empty a value and all dicts and lists within it."""
    for member in list(value.values() if isinstance(value, dict) else value):
        if isinstance(member, dict | list):
            _clear(member)
    value.clear()


@examples(150)
@given(histories, st.data())
def test_grown_messages_are_the_fresh_messages(events, data):
    events = [_varied(event, data.draw) for event in events]
    condenser = ObservationMaskingCondenser(2)
    views = [View.from_events([])]
    while views[-1].version < len(events):
        # an earlier View may grow too, as in a fork
        earlier = data.draw(st.sampled_from([views[-1], views[-1], *views[-3:]]))
        to = earlier.version + data.draw(st.integers(1, 3))
        views.append(earlier.then(events[earlier.version : to]))
        for view in (views[-1], condenser.condense(views[-1])):
            dialect = data.draw(st.sampled_from(DIALECTS))
            grown = view.rendered(dialect)
            fresh = render_events(view.events, view.fit_positions, dialect)
            assert json.dumps(grown) == json.dumps(fresh)
            for message, _ in grown:
                _clear(message)
            assert json.dumps(view.to_messages(dialect)) == json.dumps([sent for sent, _ in fresh])


def turn(number):
    call = Action(tool="run", call_id=f"c{number}", response_id=f"r{number}", thought="so")
    return [call, Observation(call_id=f"c{number}", content="done")]


def test_only_the_newest_messages_are_made_again(monkeypatch):
    counts = []
    real = growing.turns

    def counted_turns(events, positions, call_ids):
        counts.append(len(positions))
        return real(events, positions, call_ids)

    monkeypatch.setattr(growing, "turns", counted_turns)
    steps = [(dialect, NoOpCondenser(), {4}) for dialect in DIALECTS]
    for dialect, condenser, later_counts in (
        *steps,
        ("litellm", ObservationMaskingCondenser(4), {4, 6}),
    ):
        view = View.from_events([Message(source="user", content="do")])
        for number in range(20):
            view = view.then(turn(number))
            shown = condenser.condense(view)
            shown.to_messages(dialect)
            shown.to_messages(dialect)
        assert (len(counts), counts[0], set(counts[1:])) == (20, 3, later_counts), dialect
        counts.clear()


def test_messages_are_freed_with_their_view():
    view = View.from_events([Message(source="user", content="do"), *turn(1)])
    view.to_messages()
    reference = weakref.ref(view.state.items.renderings["litellm"])
    assert reference() is not None
    del view
    gc.collect()
    assert reference() is None
    assert not View.from_events([]).state.items.renderings


def test_threads_get_the_messages_of_their_view():
    views = [View.from_events([Message(source="user", content="do")])]
    for number in range(30):
        views.append(views[-1].then(turn(number)))
    fresh = [render_events(view.events, view.fit_positions) for view in views]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda place: views[place].rendered(), [*range(31)] * 4))
    assert answers == fresh * 4
