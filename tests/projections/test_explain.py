"""What a person reads about an event of a View: why it is shown, sent, forgotten or never shown."""

import pytest
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    Retraction,
)
from foldlog.eventstore.events import Origin
from foldlog.projections import View
from foldlog.projections.explain import explain_difference, explain_event
from foldlog.projections.fold import ViewState, fold
from foldlog.projections.lifetimes.fold import LifetimesFold
from tests.condensers.made import answer, call, condensed, message
from tests.properties.definition import structural_since

IMPORTED = Origin(format="openai-chat")
THINKING = ({"type": "thinking", "thinking": "hm", "signature": "s"},)
NOT_SENT = "the View shows it at index {}, but it is not sent to a model: {}"
NOT_WHOLE = "its tool loop is not whole"
UNANSWERED = "its call or another call of the same response has no observation"
LEFT_BEHIND = (
    "a condensation forgot another call of the same response, or another part of its tool loop"
)


def numbered(*events):
    return [replace(event, id=event_id) for event_id, event in enumerate(events)]


def reasons(events):
    """Return each event's fate, whether it is sent, and the reason."""
    view = View.from_events(events)
    explained = [explain_event(event, view, structural_since(events)) for event in events]
    assert [why.event.id for why in explained] == list(range(len(events)))
    return [(why.fate, why.sent, why.reason) for why in explained]


def shown(place, why=None):
    if why is None:
        return "shown", True, f"the View shows it at index {place}"
    return "shown", False, NOT_SENT.format(place, why)


def test_shown_events_that_no_model_gets():
    assert reasons(
        numbered(
            message(),
            answer(call_id="of nothing"),
            call(call_id="a", response_id="r"),
            call(call_id="b", response_id="r"),
            answer(call_id="a"),
            Annotation(name="note", origin=IMPORTED, shown=True),
            Annotation(name="note", shown=True),
        )
    ) == [
        shown(0),
        shown(1, "its call is not shown"),
        *(shown(place, UNANSWERED) for place in (2, 3, 4)),
        shown(5, "it cannot be written as a message"),
        shown(6),
    ]


def test_part_of_a_response_that_a_condensation_left_behind():
    assert reasons(
        numbered(
            message(),
            call(call_id="a", response_id="r"),
            call(call_id="b", response_id="r"),
            answer(call_id="a"),
            answer(call_id="b"),
            condensed(2, 4),
            CondensationRequest(),
        )
    ) == [
        shown(0),
        shown(1, LEFT_BEHIND),
        ("forgotten", False, "condensation 5 forgot it at version 6"),
        shown(2, LEFT_BEHIND),
        ("forgotten", False, "condensation 5 forgot it at version 6"),
        *2
        * [
            (
                "never shown",
                False,
                "condensations, requests and retractions change a View; a View never shows them",
            )
        ],
    ]


def test_event_that_was_forgotten_without_a_summary():
    events = numbered(message(), message(), condensed(0), Retraction(version=1))
    view = View.from_events(events[:3])
    why = explain_event(events[0], view, structural_since(events[:3]))
    assert (why.by, why.forgotten_at, why.summary, why.stands_in) == (events[2], 3, None, None)
    back = explain_event(events[1], View.from_events(events), structural_since(events))
    assert (back.fate, back.by, back.forgotten_at) == ("taken back", events[3], 4)


def test_tool_loop_with_a_call_without_result():
    loop = [replace(call(call_id="a"), thinking=THINKING), answer(call_id="a"), call(call_id="b")]
    further = [call(call_id="c"), answer(call_id="c")]
    places = [(1, NOT_WHOLE), (2, NOT_WHOLE), (3, UNANSWERED), (4, NOT_WHOLE), (5, NOT_WHOLE)]
    assert reasons(numbered(message(), *loop, *further, message())) == [
        shown(0),
        *(shown(place, why) for place, why in places),
        shown(6),
    ]


def test_an_event_that_must_stay_with_no_event_of_the_agent():
    thought = Annotation(name="note", data="hm", shown=True, stays_with_next=True)
    why = "it must stay with the agent's next event, and another event or none follows it"
    assert reasons(numbered(message(), thought)) == [shown(0), shown(1, why)]
    assert reasons(numbered(message(), thought, message())) == [shown(0), shown(1, why), shown(2)]


def test_events_that_no_view_shows():
    thought = Annotation(name="thinking", data=list(THINKING))
    assert reasons(
        numbered(
            Message(source="user", content="x", shown=False),
            Message(source="user", content="x", shown=False, origin=IMPORTED),
            Annotation(name="usage", data={"tokens": 7}),
            thought,
            replace(call(call_id="a"), thinking=THINKING),
        )
    ) == [
        ("never shown", False, "its writer marked it as not shown"),
        (
            "never shown",
            False,
            "the agent did not see it in the openai-chat history from which it was imported",
        ),
        ("never shown", False, "annotations are never shown to a model"),
        (
            "never shown",
            False,
            "annotations are never shown to a model; its thinking is shown with event 4",
        ),
        shown(0, UNANSWERED),
    ]


def test_condensation_that_says_that_it_is_shown():
    (_, why) = reasons(numbered(message(), replace(condensed(0), shown=True)))
    assert why[2].startswith("condensations, requests and retractions change a View")


def test_event_that_a_view_of_another_log_does_not_show():
    (event,) = numbered(message())
    why = explain_event(event, View.from_events(()), structural_since([]))
    assert (why.fate, why.by, why.forgotten_at) == ("forgotten", None, None)
    assert why.reason == (
        "no event of the log forgets it, but the View does not show it: run 'foldlog store verify"
        " --views'"
    )


def test_event_that_v0_forgot_before_it_came():
    """A condensation from OpenHands V0 also forgets the events that come later with its ids."""
    v0 = [Origin(format="openhands-v0", id=number) for number in range(4)]
    other = CondensationAction(forgotten_event_ids=(2,), origin=v0[1])
    events = numbered(
        replace(message(), origin=v0[0]),
        CondensationAction(
            forgotten_events_start_id=2, forgotten_events_end_id=3, origin=v0[1], metadata={}
        ),
        replace(message(), origin=v0[2]),
        replace(other, origin=v0[3]),
        replace(message(), origin=v0[2]),
    )
    view = View.from_events(events)
    assert [event.id for event in view] == [0]
    for event_id in (2, 4):
        why = explain_event(events[event_id], view, structural_since(events))
        assert (why.fate, why.by) == ("never shown", events[1])
        assert why.reason.startswith(
            "imported condensation 1 forgot its source id before the event"
        )


def test_explanations_and_views_in_a_few_words():
    events = numbered(message(), message(), condensed(0, summary="x", offset=0))
    view = View.from_events([*events, CondensationRequest(id=3)])
    structural = structural_since(events)
    assert repr(view) == "<View of 2 events at version 4, condensation requested>"
    assert repr(view.then([condensed(1)])) == "<View of 1 event at version 5>"
    why = explain_event(events[0], view, structural)
    assert repr(why) == "<Why: event 0 at version 4: condensation 2 forgot it at version 3>"
    difference = explain_difference(View.from_events(events[:2]), view, structural)
    assert repr(difference) == "<Difference of versions 2 and 4: 1 entered, 1 left>"
    folding = LifetimesFold("c")
    folding.take(events)
    assert repr(folding.result()) == "<Lifetimes of 3 events and 1 summary of 'c'>"


def test_a_view_is_not_equal_to_what_is_no_view():
    view = View.from_events(numbered(message()))
    assert (view == 5) is False
    assert (view == [*view]) is False
    assert (view.state.items == [*view]) is False
    assert view.then(()) == view
    assert view != view.then([message()])


def test_retraction_to_what_is_not_in_memory():
    """A part of a log has a View only as far as no retraction goes behind it."""
    start = ViewState(version=3)
    retraction = Retraction(id=4, version=2)
    with pytest.raises(
        LookupError, match=r"returns to version 2, but this View, at version 3, was made without"
    ):
        fold([message(), retraction], start)
    kept = fold([message(), replace(retraction, version=3)], start).state
    assert kept.version == 5
    assert [event.id for event in kept.past.events(0, 9)] == [3, 4]
    assert fold([message(), replace(retraction, version=0)], start).state.count == 0
    folding = LifetimesFold("c", targets=[3])
    with pytest.raises(LookupError, match=r"retraction 2 returns to version 1, which is not one"):
        folding.take([*numbered(message(), message()), Retraction(id=2, version=1)])


def test_view_of_no_store_is_of_no_conversation():
    view = View.from_events(numbered(message(), Action(tool="run"), Observation(content="x")))
    past = view.then([CondensationAction(forgotten_event_ids=[0])]).state.past
    assert (past.conversation, past.key, past.redactions) == ("", 0, 0)
    assert past.document("attributes") is None
    assert view.request().conversation == ""
    bare = View(ViewState(version=3))
    assert bare.request().conversation == ""
    assert (bare.seen.version, bare.seen.redactions) == (3, 0)
    assert (view.seen.version, view.seen.redactions) == (3, 0)
