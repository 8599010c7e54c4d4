"""A retraction shows the View of an earlier version again. It can be taken back itself, and it
answers no request for a condensation.
"""

from dataclasses import replace

import pytest

from foldlog import Retraction
from foldlog.eventstore import InvalidEvent
from foldlog.projections import View
from tests.condensers.made import condensed, new_history
from tests.said import all_said, ids


@pytest.fixture
def history():
    with new_history() as history:
        history.append(all_said(*"012345"))
        yield history


def test_the_view_is_again_what_it_was(history):
    recorded = history.retract(2, "the user went back")
    assert ids(history.view()) == [0, 1]
    assert history.at(6) == View.from_events(history.events(0, 6))
    history.append(all_said("another way"))
    assert ids(history.view()) == [0, 1, 7]
    assert ids(history.events()) == list(range(8))
    assert recorded.event == Retraction(
        id=6, version=2, reason="the user went back", timestamp=recorded.recorded_at
    )


def test_why_and_lifetimes_name_the_retraction(history):
    first = history.retract(3)
    history.append(all_said("another way"))
    history.retract(2)
    assert history.why(4).by == first.event
    assert history.lifetimes().of(4).at(history.version()) == "taken back"


def test_a_retraction_answers_no_request(history):
    history.request_condensation("too long")
    history.retract(3)
    assert ids(history.view()) == [0, 1, 2]
    assert history.view().unhandled_condensation_request


def test_what_takes_nothing_back_is_refused(history):
    for version in (6, 7, 2**70):
        refused = f"no event {version} to take back: its newest event is 5; give 0 to 5"
        with pytest.raises(InvalidEvent, match=refused):
            history.retract(version)
    for version in (-1, None, 1.0, True):
        with pytest.raises(InvalidEvent, match="whole number from 0"):
            Retraction(version=version)
    with pytest.raises(InvalidEvent, match="no event 0 to take back: it is empty"):
        history._histories["new"].retract(0)
    assert history.version() == 6


def test_a_view_without_a_past_says_so():
    view = View.from_events(all_said(*"abc"))
    alone = View(replace(view.state, past=None))
    with pytest.raises(LookupError, match=r"returns to version 1.*made without the earlier events"):
        alone.then([Retraction(id=3, version=1)])
    masked = view.with_events(view[:2])
    assert list(masked.then([Retraction(id=3, version=1)])) == list(view[:1])


def test_why_and_difference_skip_retracted_condensations(history):
    history.append(condensed(1, summary="taken back", offset=0))
    history.retract(6)
    history.append(condensed(1, 2, summary="stays", offset=0))
    why = history.why(1)
    assert (why.by.id, why.stands_in.content) == (8, "stays")
    difference = history.difference(6, 9)
    assert ids(difference.left) == [1, 2]
    (summarized,) = difference.summarized
    assert (summarized.condensation.id, ids(summarized.events)) == (8, [1, 2])
