"""The aggregate, by given, when and then: no store, no clock."""

from __future__ import annotations

import pytest

from foldlog.eventstore import (
    CondensationAction,
    InvalidEvent,
    Message,
    summary_id,
)
from foldlog.eventstore.conversation import Append, State, decide, evolve, summaries_named


def said(text: str) -> Message:
    return Message(source="user", content=text)


def test_the_state_stays_small_however_long_the_history():
    state = State("c1")
    for _ in range(1_000):
        state = evolve(state, said("x"))
    assert state == State("c1", 1_000, frozenset())


def test_only_the_summaries_that_a_command_names_matter():
    forgets = CondensationAction(forgotten_event_ids=[3, summary_id(7), summary_id(2)])
    assert summaries_named([said("a"), forgets]) == {summary_id(7), summary_id(2)}


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
        ({"forgotten_event_ids": 5}, "a condensation's"),
        ({"forgotten_event_ids": "12"}, "a condensation's"),
        ({"forgotten_event_ids": [1, "2"]}, "a condensation's"),
        ({"forgotten_event_ids": [True]}, "a condensation's"),
        ({"forgotten_events_start_id": "1", "forgotten_events_end_id": 2}, "a condensation's"),
        ({"forgotten_event_ids": [1], "summary": 7, "summary_offset": 0}, "a condensation's"),
        ({"forgotten_event_ids": [1], "summary": "s", "summary_offset": 0.5}, "a condensation's"),
        ({"forgotten_event_ids": [1], "metadata": None}, "a condensation's"),
    ],
)
def test_a_malformed_condensation_cannot_be_built(fields: dict[str, object], message: str):
    with pytest.raises(InvalidEvent, match=message):
        CondensationAction(**fields)  # type: ignore[arg-type]


def test_a_declined_condensation_forgets_nothing_and_says_why():
    reason = {"outcome": "declined", "reason": "nothing can be forgotten"}
    declined = CondensationAction(forgotten_event_ids=[], metadata=reason)
    assert declined.forgotten == ((), ())
    assert decide(State("c1", 1), Append([declined], 1))


def test_what_is_forgotten_comes_as_intervals_and_summaries():
    action = CondensationAction(forgotten_event_ids=[9, 2, 3, 3, -7, 4, -1, -2], summary="s", summary_offset=0)
    assert action.forgotten == (((2, 4), (9, 9)), (-2, -7))
    assert CondensationAction(forgotten_events_start_id=3, forgotten_events_end_id=8).forgotten == (((3, 8),), ())
