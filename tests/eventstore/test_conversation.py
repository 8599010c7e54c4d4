"""The aggregate, by given, when and then: no store, no clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    Event,
    InvalidEvent,
    Message,
    VersionConflict,
    summary_id,
)
from foldlog.eventstore.conversation import Append, State, decide, evolve, summaries_named


def said(text: str) -> Message:
    return Message(source="user", content=text)


def given(*events: Event) -> State:
    state = State("c1")
    for event in events:
        state = evolve(state, event)
    return state


def when(state: State, events: Sequence[Event], expected_version: int) -> tuple[Event, ...]:
    return decide(state, Append(events, expected_version))


def test_given_nothing_when_said_then_it_is_event_zero():
    assert when(given(), [said("hi")], 0) == (Message(id=0, source="user", content="hi"),)


def test_given_events_when_appended_then_ids_go_on():
    assert [e.id for e in when(given(said("a"), said("b")), [said("c"), said("d")], 2)] == [2, 3]


def test_given_events_when_a_stale_version_is_expected_then_conflict():
    with pytest.raises(VersionConflict):
        when(given(said("a")), [said("b")], 0)


def test_deciding_leaves_the_command_as_it_was():
    command = Append([said("a")], ANY_VERSION)
    decide(given(), command)
    assert command.events[0].id == -1


def test_the_state_stays_small_however_long_the_history():
    state = given(*(said("x") for _ in range(1_000)))
    assert state == State("c1", 1_000, frozenset())


def test_only_the_summaries_that_a_command_names_matter():
    forgets = CondensationAction(forgotten_event_ids=[3, summary_id(7), summary_id(2)])
    assert summaries_named([said("a"), forgets]) == {summary_id(7), summary_id(2)}


def test_given_a_summary_when_it_is_forgotten_then_recorded_else_refused():
    condensed = given(said("a"), CondensationAction(forgotten_event_ids=[0], summary="s", summary_offset=0))
    assert when(condensed, [CondensationAction(forgotten_event_ids=[summary_id(1)])], 2)
    plain = given(said("a"), CondensationAction(forgotten_event_ids=[0]))
    with pytest.raises(InvalidEvent, match="event 1 is not a condensation with a summary"):
        when(plain, [CondensationAction(forgotten_event_ids=[summary_id(1)])], 2)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "neither given"),
        ({"forgotten_event_ids": [1], "forgotten_events_start_id": 1, "forgotten_events_end_id": 2}, "both given"),
        ({"forgotten_events_start_id": 1}, "only one end"),
        ({"forgotten_events_start_id": 4, "forgotten_events_end_id": 2}, "runs backwards, from 4 to 2"),
        ({"forgotten_event_ids": [1], "summary": "s"}, "together or not at all"),
        ({"forgotten_event_ids": [1], "summary_offset": 1}, "together or not at all"),
        ({"forgotten_event_ids": []}, "must be declined"),
        ({"forgotten_event_ids": [], "metadata": {"outcome": "declined"}}, "says why"),
    ],
)
def test_a_malformed_condensation_cannot_be_built(fields: dict[str, object], message: str):
    with pytest.raises(InvalidEvent, match=message):
        CondensationAction(**fields)  # type: ignore[arg-type]


def test_a_declined_condensation_forgets_nothing_and_says_why():
    declined = CondensationAction(
        forgotten_event_ids=[], metadata={"outcome": "declined", "reason": "nothing can be forgotten"}
    )
    assert declined.forgotten == ((), ())
    assert when(given(said("a")), [declined], 1)


def test_what_is_forgotten_comes_as_intervals_and_summaries():
    action = CondensationAction(forgotten_event_ids=[9, 2, 3, 3, -7, 4, -1, -2], summary="s", summary_offset=0)
    assert action.forgotten == (((2, 4), (9, 9)), (-2, -7))
    assert CondensationAction(forgotten_events_start_id=3, forgotten_events_end_id=8).forgotten == (((3, 8),), ())


@pytest.mark.parametrize(
    "fields",
    [
        {"forgotten_event_ids": 5},
        {"forgotten_event_ids": "12"},
        {"forgotten_event_ids": [1, "2"]},
        {"forgotten_event_ids": [True]},
        {"forgotten_events_start_id": "1", "forgotten_events_end_id": 2},
        {"forgotten_event_ids": [1], "summary": 7, "summary_offset": 0},
        {"forgotten_event_ids": [1], "summary": "s", "summary_offset": 0.5},
        {"forgotten_event_ids": [1], "metadata": None},
    ],
    ids=str,
)
def test_a_condensation_of_wrong_types_is_refused_when_it_is_built(fields: dict[str, object]):
    with pytest.raises(InvalidEvent, match="a condensation's"):
        CondensationAction(**fields)  # type: ignore[arg-type]
