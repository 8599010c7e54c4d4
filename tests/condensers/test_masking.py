"""Masks: what is old and bulky is shown as a line, and everything else about it stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from foldlog.condensers.strategies.showing import (
    BrowserOutputCondenser,
    ObservationMaskingCondenser,
    is_masked,
)
from foldlog.eventstore.events import CondensationSummary
from tests.condensers.made import REQUEST, answer, condensed, message, messages, pair, shown, viewed
from tests.said import ids


def masked(view):
    return [place for place, event in enumerate(view) if is_masked(event)]


@pytest.mark.parametrize("window, places", [(0, [1, 3]), (1, [1]), (2, [1]), (3, []), (9, [])])
def test_observations_outside_the_window_are_masked(window, places):
    view = viewed(pair(1), pair(2))
    result = shown(ObservationMaskingCondenser(window).condense(view))
    assert masked(result) == places
    assert [result[place].content for place in places] == ["<MASKED>"] * len(places)


def test_a_masked_event_keeps_its_id_its_call_and_its_place_and_can_be_told_from_a_summary():
    view = viewed(pair(1), messages(3))
    result = shown(ObservationMaskingCondenser(1).condense(view))
    assert ids(result) == ids(view)
    assert (result[1].call_id, result[1].tool) == (view[1].call_id, view[1].tool)
    assert result[1].meta["masked_by"] == "observation_masking"
    assert not isinstance(result[1], CondensationSummary)
    assert view[1].content == "done", "the View that was given is as it was"


def test_a_summary_is_not_masked():
    view = viewed(messages(3), condensed(0, 1, summary="S", offset=0), pair(1))  # M1
    result = shown(ObservationMaskingCondenser(0).condense(view))
    assert result[0].content == "S"


def test_a_request_survives_a_mask():
    view = viewed(pair(1), REQUEST)  # P1
    for condenser in (ObservationMaskingCondenser(0), BrowserOutputCondenser(0)):
        assert shown(condenser.condense(view)).unhandled_condensation_request


def browsed(number, url="http://h/1", **fields):
    return [
        *pair(number, tool="browse", url=url)[:1],
        answer("<html>", f"call {number}", "browse", **fields),
    ]


def test_only_browser_outputs_are_counted_and_only_older_ones_masked():
    view = viewed(browsed(1), pair(2), browsed(3), message(), browsed(4))
    result = shown(BrowserOutputCondenser(2).condense(view))
    assert masked(result) == [1]
    assert result[1].content == "Visited URL http://h/1\nContent omitted"
    assert masked(shown(BrowserOutputCondenser(0).condense(view))) == [1, 5, 8]
    assert BrowserOutputCondenser(3).condense(view) is view


def test_the_address_is_the_outputs_own_or_its_calls_or_else_the_tool_is_named():
    called, said = browsed(1)
    # as models write it, and imports keep it
    again = [replace(called, arguments='{"url": "http://again"}'), said]
    view = viewed(
        browsed(1, extras={"url": "http://own"}),
        pair(2, tool="browser_click", index=3),
        browsed(1),
        again,
    )
    result = shown(BrowserOutputCondenser(0).condense(view))
    told = [event.content.partition("\n")[0] for event in result[1::2]]
    visited = [f"Visited URL http://{address}" for address in ("own", "h/1", "again")]
    assert told == [visited[0], "Output of browser_click", *visited[1:]]


def test_what_is_masked_is_reported_and_nothing_is_where_nothing_is():
    view = viewed(pair(1), pair(2))
    _, reports = ObservationMaskingCondenser(1).step(view)
    rule = {"attention_window": 1}
    assert reports == (
        {"condenser": "observation_masking", "rule": rule, "masked": 1, "newest_masked": 1},
    )
    assert ObservationMaskingCondenser(9).step(view).reports == ()


def test_a_view_that_grew_shows_the_masks_of_the_step_before():
    view = viewed(pair(1), pair(2), pair(3))
    before = ObservationMaskingCondenser(2).condense(view)
    after = ObservationMaskingCondenser(2).condense(view.then(pair(4)))
    masks = [(one, other) for one, other in zip(before, after, strict=False) if is_masked(one)]
    assert masks
    assert all(one is other for one, other in masks)
    assert not is_masked(ObservationMaskingCondenser(20).condense(view)[1])
