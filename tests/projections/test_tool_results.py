"""Which open call a result answers, and when an append of results must begin again."""

from types import SimpleNamespace

import pytest

from foldlog.eventstore import Action, Observation, Retraction, VersionConflict
from foldlog.projections import View
from foldlog.projections.tool_results import _find_open_call, check_still_open, why_no_result
from tests.said import said

OPEN = [
    Action(id=1, tool="t", call_id="a", response_id="r"),
    Action(id=2, tool="t", call_id="a", response_id="s"),
    Action(id=3, tool="t", call_id="a", response_id="s"),
    Action(id=4, tool="t", call_id="b"),
    Action(id=5, tool="t", call_id="b"),
    Action(id=6, tool="t"),
]


@pytest.mark.parametrize(
    "call, found",
    [("a", 2), ("b", 5), ("c", None), (OPEN[0], 1), (OPEN[5], 6), (Action(id=7, tool="t"), None)],
)
def test_the_open_call_with_an_id(call, found):
    open_call = _find_open_call(OPEN, call)
    assert found == (open_call and open_call.id)


CALLED = [said("go", id=0), Action(id=1, tool="t", call_id="a")]


@pytest.mark.parametrize(
    "newer, is_open",
    [
        ((), True),
        ((said("wait", id=2),), True),
        ((Observation(id=2, content="done", call_id="a"),), False),
        ((Action(id=2, tool="t", call_id="b"),), False),
        ((Retraction(id=2, version=2),), False),
    ],
)
def test_results_are_appended_only_while_the_same_calls_are_open(newer, is_open):
    reading = SimpleNamespace(events=lambda start: newer, conversation="c", version=3)
    view = View.from_events(CALLED)
    if is_open:
        check_still_open(view, reading)
    else:
        with pytest.raises(VersionConflict, match="'c'"):
            check_still_open(view, reading)


def waits_for(*call_ids):
    calls = [Action(id=n, tool="t", call_id=call_id) for n, call_id in enumerate(call_ids)]
    return View.from_events(calls)


@pytest.mark.parametrize(
    "call, view, why",
    [
        ("x", waits_for(), "the View shows no open call 'x'; no call is open"),
        (
            "x",
            waits_for("a", None),
            "the View shows no open call 'x'; the open calls are 'a', event 1",
        ),
        (
            Action(tool="t", call_id="x"),
            waits_for(*"abcde"),
            "the View shows no open call 'x'; the open calls are 'a', 'b', 'c', 'd', 'e'",
        ),
        (
            "x",
            waits_for(*"abcdef"),
            "the View shows no open call 'x'; the open calls are 'a', 'b', 'c', 'd', 'e', …",
        ),
        (
            "a",
            View.from_events(
                [
                    *CALLED,
                    Observation(id=2, content="first", call_id="a"),
                    Action(id=3, tool="t", call_id="a"),
                    Observation(id=4, content="second", call_id="a"),
                ]
            ),
            "call 'a' already has a result, event 4; no call is open",
        ),
        (
            Action(id=1, tool="t"),
            View.from_events(
                [
                    said("go", id=0),
                    Action(id=1, tool="t"),
                    Observation(id=2, content="first", cause=1),
                    Action(id=3, tool="t"),
                    Observation(id=4, content="second", cause=3),
                ]
            ),
            "call of event 1 already has a result, event 2; no call is open",
        ),
        (
            Action(id=9, tool="t"),
            waits_for(),
            "the View shows no open call of event 9; no call is open",
        ),
    ],
)
def test_an_error_names_the_open_calls(call, view, why):
    assert why_no_result("c", call, view) == f"conversation 'c': {why}; nothing was appended"
