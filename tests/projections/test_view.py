"""The View as people use it: a small, immutable sequence, and what the fold refuses."""

import pytest
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    InvalidEvent,
    Message,
    Observation,
    Retraction,
    SystemMessage,
    UnknownEvent,
    UnknownEventType,
)
from foldlog.eventstore.events import Origin
from foldlog.projections import View
from foldlog.projections.call_states import trace
from foldlog.projections.units import awaited_positions
from tests.said import ids


def messages(*texts):
    return [
        Message(id=event_id, source="user", content=text) for event_id, text in enumerate(texts)
    ]


def test_a_view_cannot_be_changed():
    view = View.from_events(messages("a"))
    with pytest.raises(AttributeError):
        view.state = View.from_events(()).state
    with pytest.raises(AttributeError):
        view.version = 7
    assert isinstance(view.events, tuple)


def test_summary_event_is_the_newest_summary():
    one = CondensationAction(forgotten_event_ids=[0], summary="one", summary_offset=0)
    two = CondensationAction(forgotten_event_ids=[1], summary="two", summary_offset=1)
    events = [Message(source="user", content=text) for text in "abc"]
    view = View.from_events([*events, one, two])
    assert [event.content for event in view] == ["one", "two", "c"]
    assert view.summary_event is view[1]
    assert View.from_events(events).summary_event is None


def test_summary_of_an_imported_history_is_an_ordinary_event():
    imported = CondensationSummary(content="so far")
    view = View.from_events([imported, *(Message(source="user", content=text) for text in "ab")])
    assert ids(view) == [0, 1, 2]
    assert view.summary_event is None


def test_condensations_of_a_growing_view():
    forget = [
        CondensationAction(forgotten_events_start_id=0, forgotten_events_end_id=1),
        CondensationAction(forgotten_event_ids=[2], summary="x", summary_offset=0),
        CondensationAction(forgotten_event_ids=[-6]),
    ]
    view = View.from_events(messages("a", "b", "c"))
    assert view.forgotten_event_ids == frozenset()
    for number, action in enumerate(forget, 1):
        view = view.then([action])
        assert [event.id for event in view.condensations] == [3, 4, 5][:number]
    assert view.forgotten_event_ids == {0, 1, 2, -6}
    assert len(view) == 0
    assert len(view.then([Retraction(version=4)]).condensations) == 1


def test_condensations_beside_events_that_are_not_shown():
    said = Message(source="user", content="x")
    events = [said, said, CondensationAction(forgotten_event_ids=[0]), said, Annotation(name="n")]
    events += [said, CondensationAction(forgotten_event_ids=[5]), Annotation(name="n"), said]
    view = View.from_events([*events, CondensationAction(forgotten_event_ids=[8])])
    assert ids(view) == [1, 3]


@pytest.mark.parametrize("answered, responses", [(True, [2, 2]), (False, [2])])
def test_summary_ends_a_response_whose_calls_are_answered(answered, responses):
    results = [Observation(content="x", call_id=name) for name in "kl"]
    summary = CondensationSummary(content="so far")
    events = [CALL, results[0], summary, OTHER, results[1]] if answered else [CALL, summary, OTHER]
    view = View.from_events(events)
    assert [len(calls.members) for calls in view.units.parallel_calls] == responses


def test_calls_that_wait_and_calls_that_were_left():
    """A later reply, to a prompt with something new, leaves the open calls before it."""
    a, b, c = (Action(tool="run", call_id=name, response_id=f"r{name}") for name in "abc")
    by_user = Action(tool="ls", call_id="u", source="user")
    ask = Message(source="user", content="?")
    view = View.from_events([ask, a, ask, by_user, b, ask, c])
    assert [call.call_id for call in view.open_calls] == ["a", "b", "c"]
    assert [view[place].call_id for place in awaited_positions(view, view.units)] == ["c"]
    first = View.from_events([ask, a, replace(b, response_id="ra")])
    assert awaited_positions(first, first.units) == [1, 2]
    without_calls = View.from_events([ask])
    assert awaited_positions(without_calls, without_calls.units) == []


def test_tail_with_a_summary_that_has_no_fixed_place():
    v0 = [Origin(format="openhands-v0", id=number) for number in range(5)]
    said = [Message(source="user", content=text, origin=v0[n]) for n, text in enumerate("abc")]
    forget = CondensationAction(
        forgotten_event_ids=(0,), summary="so far", summary_offset=-1, origin=v0[3]
    )
    view = View.from_events([*said, forget])
    assert [event.content for event in view] == ["b", "so far", "c"]
    for number in range(5):
        assert view.tail(number) == view.events[3 - min(number, 3) :]


def test_new_events_get_the_next_ids():
    view = View.from_events([replace(event, id=-1) for event in messages("a", "b")])
    assert ids(view.then([Message(source="user", content="c")])) == [0, 1, 2]


@pytest.mark.parametrize("first, last", [(5, 6), (0, 2), (-2, 1)])
def test_events_with_a_gap_are_no_conversation(first, last):
    event, other = messages("a", "b")
    with pytest.raises(InvalidEvent, match=f"2 events with ids {first} to {last} cannot follow"):
        View.from_events([replace(event, id=first), replace(other, id=last)])


@pytest.mark.parametrize("later", [(), (Retraction(id=2, version=1),)], ids=["last", "taken back"])
@pytest.mark.parametrize("shown", [True, False])
def test_an_unknown_structural_event_is_refused(shown, later):
    unknown = UnknownEvent(
        id=1, stored_kind="pin", stored_schema=3, body=b"{}", is_structural=True, shown=shown
    )
    with pytest.raises(UnknownEventType, match=r"event 1 is of kind 'pin'.*upgrade"):
        View.from_events([*messages("a"), unknown, *later])


def test_other_events_keep_version_and_request():
    view = View.from_events([*messages("a", "b"), CondensationRequest(id=2)])
    masked = view.with_events([view[1]])
    assert ids(masked) == [1]
    assert masked.version == 3
    assert masked.unhandled_condensation_request
    assert ids(view) == [0, 1]


CALL = Action(tool="run", call_id="k", response_id="r")
OTHER = Action(tool="run", call_id="l", response_id="r")
RESULT = Observation(content="done", call_id="k", tool="run")
SAID = Message(source="agent", content="it works")
ASKED = Message(source="user", content="why?")


@pytest.mark.parametrize(
    "events, due",
    [
        ([], False),
        ([SystemMessage(content="Be brief.")], False),
        ([ASKED], True),
        ([ASKED, SystemMessage(content="Be brief.")], True),
        ([Message(source="environment", content="a file changed")], True),
        ([ASKED, Annotation(name="usage"), CondensationRequest()], True),
        ([ASKED, SAID], False),
        ([ASKED, SAID, Annotation(name="usage")], False),
        ([ASKED, CALL], False),
        ([ASKED, CALL, RESULT], True),
        ([ASKED, CALL, OTHER, RESULT], False),
        ([ASKED, CALL, ASKED], False),
        ([ASKED, CALL, RESULT, SAID], False),
        ([ASKED, SAID, Retraction(version=1)], True),
        (
            [
                ASKED,
                SAID,
                CondensationAction(forgotten_event_ids=[0, 1], summary="x", summary_offset=0),
            ],
            False,
        ),
        ([ASKED, SAID, ASKED, CondensationAction(forgotten_event_ids=[0, 1])], True),
    ],
)
def test_a_reply_is_due_after_what_the_model_has_not_answered(events, due):
    assert View.from_events(events).reply_due is due


def test_call_with_the_id_of_an_open_call_is_a_call_of_its_own():
    pay = Action(tool="pay", call_id="k")
    both = [replace(pay, id=0), replace(pay, id=1)]
    traces = trace((event, bytes([event.id]) * 32) for event in both)
    assert [traces[number].call.id for number in (0, 1)] == [0, 1]
    assert traces[0].key != traces[1].key
