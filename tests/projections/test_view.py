"""The View as people use it: a small, immutable sequence, and what the fold refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationRequest,
    Event,
    InvalidEvent,
    Message,
    Observation,
    Retraction,
    UnknownEvent,
    UnknownEventType,
)
from foldlog.projections import View, well_formed
from tests.said import ids


def said(*texts: str) -> list[Event]:
    return [
        Message(id=event_id, source="user", content=text) for event_id, text in enumerate(texts)
    ]


def test_a_view_is_a_sequence_of_events():
    events = said("a", "b", "c", "d")
    view = View.from_events(events)
    assert len(view) == 4
    assert view[1:3] == tuple(events[1:3])
    assert view[-1] is events[3]
    assert list(view) == events
    assert view.events == tuple(events)
    assert view.version == 4
    assert not view.unhandled_condensation_request
    assert view.condensations == ()


def test_a_view_cannot_be_changed():
    view = View.from_events(said("a"))
    with pytest.raises(AttributeError):
        view.state = View.from_events(()).state  # type: ignore[misc]
    with pytest.raises(AttributeError):
        view.version = 7  # type: ignore[misc]
    assert isinstance(view.events, tuple)


def test_events_that_are_in_no_conversation_yet_get_the_next_ids():
    view = View.from_events([replace(event, id=-1) for event in said("a", "b")])
    assert ids(view.then([Message(source="user", content="c")])) == [0, 1, 2]


def test_events_with_a_gap_are_no_conversation():
    with pytest.raises(InvalidEvent, match="2 events with ids 5 to 6 do not follow version 0"):
        View.from_events([replace(event, id=event.id + 5) for event in said("a", "b")])


@pytest.mark.parametrize("later", [(), (Retraction(id=2, version=1),)], ids=["last", "taken back"])
@pytest.mark.parametrize("shown", [True, False])
def test_an_unknown_event_that_changes_a_view_is_not_passed_over(
    shown: bool, later: tuple[Event, ...]
):
    unknown = UnknownEvent(
        id=1, stored_kind="pin", stored_schema=3, body=b"{}", is_structural=True, shown=shown
    )
    with pytest.raises(UnknownEventType, match=r"event 1 is of kind 'pin'.*upgrade"):
        View.from_events([*said("a"), unknown, *later])


def test_an_observation_delivered_twice_does_not_end_the_waiting_of_the_other_calls():
    deployed = Observation(content="deployed", call_id="d1")
    calls = [
        Action(tool="deploy", call_id="d1", response_id="r"),
        Action(tool="watch", call_id="d2", response_id="r"),
    ]
    view = View.from_events([Message(source="user", content="deploy"), *calls, deployed])
    assert view.cut_points == view.then([deployed]).cut_points == (0, 1)
    assert view.then([deployed, Observation(content="up", call_id="d2")]).cut_points == (0, 1, 6)


def test_a_response_goes_on_though_another_one_with_the_same_call_id_was_answered():
    calls = [("x", "q"), ("y", "q"), ("z", "r"), None, ("y", "r")]
    made = [
        Action(tool="run", call_id=of[0], response_id=of[1])
        if of
        else Observation(content="o", call_id="y")
        for of in calls
    ]
    assert [each.members for each in View.from_events(made).units.parallel_calls] == [
        [0, 1, 3],
        [2, 4],
    ]


def test_a_view_of_other_events_is_as_old_and_keeps_the_flag():
    view = View.from_events([*said("a", "b"), CondensationRequest(id=2)])
    masked = view.with_events([view[1]])
    assert ids(masked) == [1]
    assert masked.version == 3
    assert masked.unhandled_condensation_request
    assert ids(view) == [0, 1]


REASONING = Annotation(name="reasoning", source="agent", shown=True, stays_with_next=True)


def test_no_cut_parts_an_event_from_the_one_that_it_stays_with():
    call, answer = Action(tool="run", call_id="a"), Observation(content="done", call_id="a")
    words = Message(source="agent", content="r")
    events = [*said("q"), REASONING, REASONING, call, answer, REASONING, words]
    assert View.from_events(events).cut_points == (0, 1, 5, 7)


def test_an_event_that_stays_with_the_next_is_not_sent_before_the_agents_next_event():
    view = View.from_events([*said("q"), REASONING])
    assert view.cut_points == (0, 1)
    assert ids(well_formed(view)) == [0]
    assert ids(well_formed(view.then([Message(source="user", content="next")]))) == [0, 2]
    assert ids(well_formed(view.then([Message(source="agent", content="next")]))) == [0, 1, 2]
