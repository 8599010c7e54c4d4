"""The history that is shipped: what it must have for the demo, and for whoever tries things on it."""

from itertools import pairwise

import pytest

from foldlog._cli.demo import SAMPLE
from foldlog.eventstore import Action, CondensationAction, CondensationRequest, Message, Observation
from foldlog.formats import open_sources
from foldlog.projections import View, cut_points, well_formed


@pytest.fixture(scope="module")
def events():
    (source,) = open_sources([SAMPLE])
    events = list(source.events())
    assert source.findings == []
    return events


@pytest.fixture(scope="module")
def condensations(events):
    return [event for event in events if isinstance(event, CondensationAction)]


def test_it_has_some_three_hundred_events_and_five_condensations(events, condensations):
    assert 250 <= len(events) <= 350
    assert len(condensations) == 5
    assert 75 <= condensations[0].id <= 100


def test_it_has_everything_that_a_real_history_has(events, condensations):
    responses = [event.response_id for event in events if isinstance(event, Action)]
    assert len(set(responses)) < len(responses), "parallel calls"
    assert any(event.thinking for event in events if isinstance(event, Action))
    assert any(event.is_error for event in events if isinstance(event, Observation))
    assert any(isinstance(event, CondensationRequest) for event in events)
    assert any(event.forgotten.summaries for event in condensations)
    assert any(not event.shown for event in events if not isinstance(event, CondensationAction | CondensationRequest))
    assert sum(isinstance(event, Message) and event.source == "user" for event in events) >= 5
    assert {"terminal", "file_editor", "task_tracker", "think", "finish"} == {
        event.tool for event in events if isinstance(event, Action)
    }


def test_every_call_is_answered_once(events):
    calls = [event.call_id for event in events if isinstance(event, Action)]
    assert sorted(calls) == sorted(event.call_id for event in events if isinstance(event, Observation))


def test_no_condensation_parts_a_call_from_its_answer(events, condensations):
    for condensation in condensations:
        before = View.from_events(events[: condensation.id])
        after = View.from_events(events[: condensation.id + 1])
        assert len(well_formed(after)) == len(after)
        kept = {event.id for event in after}
        cuts = [i for i, (a, b) in enumerate(pairwise(before), 1) if (a.id in kept) != (b.id in kept)]
        assert set(cuts) <= set(cut_points(before))


def test_the_words_of_the_demo_are_true(events, condensations):
    shown_before = [len(View.from_events(events[: condensation.id])) for condensation in condensations]
    assert shown_before == [90, 93, 75, 67, 58]
    assert not any(View.from_events(events[: c.id]).unhandled_condensation_request for c in condensations[:3])
    assert View.from_events(events[: condensations[3].id]).unhandled_condensation_request
