"""Whether a plan holds after what others did: the look at what came agrees with a look at
everything.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from msgspec.structs import replace

from foldlog.condensers.base import Condenser
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.handler import planned_before
from foldlog.condensers.selection import without_kept
from foldlog.eventstore.events import (
    Annotation,
    CondensationAction,
    Event,
    Observation,
    Origin,
    Retraction,
)
from foldlog.projections import View, well_formed
from foldlog.projections.units import pending_positions, units
from tests.condensers.made import REQUEST, answer, call, condensed, message, messages, pair, viewed
from tests.condensers.test_laws import condensers, loops, stepped, viewed as viewed_if_asked
from tests.how_many import examples
from tests.properties.histories import histories
from tests.said import ids

DECLINED = CondensationAction(
    forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "no"}
)


def outdated(plan: tuple[CondensationAction, View], meanwhile: list[Event]) -> str | None:
    try:
        planned_before(*plan, meanwhile)
    except NoCondensationAvailable as error:
        return str(error)
    return None


def following(view: View, events: list[Event]) -> list[Event]:
    """``events`` as they would come behind the View, but for condensations."""
    others = (event for event in events if not isinstance(event, CondensationAction))
    return [replace(event, id=view.version + place) for place, event in enumerate(others)]


@examples(150, HealthCheck.filter_too_much)
@given(loops | histories, loops | histories, condensers)
def test_a_plan_that_holds_takes_nothing_from_what_came_since_and_from_what_stays(
    events: list[Event], later: list[Event], condenser: Condenser
) -> None:
    view = viewed_if_asked(events, requested=True)
    action = stepped(condenser, view, None)
    if not isinstance(action, CondensationAction):
        return
    plan, came = (action, view), following(view, later)
    forgotten = set(ids(view)).difference(ids(view.then([action])))
    for n in range(len(came) + 1):
        now = view.then(came[:n])
        after = now.then([action])
        lost = set(ids(well_formed(now))) - forgotten - set(ids(well_formed(after)))
        waiting = {now[place].id for place in pending_positions(units(now.events, now.left_behind))}
        parted = waiting & (forgotten | after.left_behind - now.left_behind)
        returned = any(isinstance(event, Retraction) for event in came[:n])
        said = [
            any(each["role"] != "system" for each in view.to_messages("openai"))
            for view in (now, after)
        ]
        is_silent = said == [True, False]  # no message could be sent
        # Where ids of calls or of sources repeat, a plan may be refused that would take nothing.
        assert outdated(plan, came[:n]) or not (lost or parted or returned or is_silent)


@pytest.mark.parametrize(
    "came, problem",
    [
        ([message("more"), REQUEST, DECLINED], None),
        ([condensed(1, 2)], "condensation 11 was appended first"),
        ([condensed(summary="S", offset=0)], None),
        ([condensed(9)], None),
        ([answer(call_id="late")], "be separated"),
        ([answer(call_id=None, cause=1)], "be separated"),
        ([call(call_id="new", response_id="r"), answer(call_id="new")], None),
        ([*pair(9)], None),
    ],
)
def test_what_outdates_a_plan(came, problem):
    view = viewed(message(), call(call_id="late"), messages(9))
    plan = (condensed(1, 2, 3), view)
    told = outdated(
        plan, [replace(event, id=view.version + place) for place, event in enumerate(came)]
    )
    assert told is problem is None or problem in told


@pytest.mark.parametrize(
    "came, problem",
    [
        ([condensed(9)], None),
        ([condensed(0, summary="S", offset=0)], None),  # in the place of what it forgets
        ([condensed(0)], "before another event"),
        ([condensed(3, summary="S", offset=3)], "condensation 11 was appended first"),
        ([answer(call_id="late")], "inside a unit"),  # of the call that stays
    ],
)
def test_a_plan_with_a_summary_holds_where_that_stands_in_its_place(came, problem):
    view = viewed(message(), call(call_id="late"), messages(9))
    told = outdated((condensed(2, 3, 4, summary="S", offset=2), view), later(view, *came))
    assert told is problem is None or problem in told
    declined = outdated((DECLINED, view), later(view, *came))
    assert (declined is None) == isinstance(came[0], Observation)


def later(view, *events):
    return [replace(event, id=view.version + place) for place, event in enumerate(events)]


def test_a_call_that_came_late_of_a_response_that_is_forgotten_outdates_a_plan():
    view = viewed(message(), call(call_id="a", response_id="r"), answer(call_id="a"), messages(5))
    plan = (condensed(1, 2), view)
    more = later(view, call(call_id="b", response_id="r"), answer(call_id="b"))
    assert "nothing can be forgotten" in outdated(plan, more)
    assert (
        outdated(plan, later(view, call(call_id="b", response_id="q"), answer(call_id="b"))) is None
    )


def test_an_answer_that_completes_a_response_of_which_a_call_is_forgotten_outdates_a_plan():
    calls = call(call_id=None, response_id="r"), call(call_id="a", response_id="r")
    view = viewed(*calls, message(), answer(call_id="a", cause=1))
    assert "be separated" in outdated(
        (condensed(1, 2), view), later(view, answer(call_id=None, cause=0))
    )
    assert outdated((condensed(2), view), later(view, answer(call_id=None, cause=0))) is None


def test_a_tool_loop_that_goes_on_outdates_a_plan_that_forgets_it_to_its_end():
    thinking = replace(call(call_id="a"), thinking=({"type": "thinking", "thinking": "hm"},))
    note = Annotation(name="seen by no model", shown=True, origin=Origin(format="openai-responses"))
    view = viewed(message(), thinking, answer(call_id="a"), note)
    plan = (condensed(1, 2), view)
    assert "nothing can be forgotten" in outdated(
        plan, later(view, call(call_id="b"), answer(call_id="b"))
    )
    assert outdated(plan, later(view, message(), call(call_id="b"), answer(call_id="b"))) is None


THINKING = ({"type": "thinking", "thinking": "hm"},)


@pytest.mark.parametrize(
    "first, last, holds",
    [(0, 1, False), (0, 2, False), (0, 3, False), (1, 1, False), (2, 2, True), (2, 3, True)],
)
def test_orphans_behind_an_open_loop_do_not_hide_that_it_goes_on(first, last, holds):
    loop = [replace(call(call_id="a"), thinking=THINKING), answer(call_id="a")]
    view = viewed(loop, answer(call_id=None, cause=1), answer(call_id=None, cause=2), REQUEST)
    plan = (condensed(*range(first, last + 1)), view)
    assert (outdated(plan, later(view, *pair(9))) is None) == holds


def test_calls_that_would_join_a_broken_loop_outdate_a_plan_that_forgets_the_event_that_ended_it():
    loop = [
        replace(call(call_id="a"), thinking=THINKING),
        answer(call_id="a"),
        call(call_id="never"),
    ]
    view = viewed(message(), loop, message("go on"))
    plan = (condensed(4), view)
    assert "nothing can be forgotten" in outdated(plan, later(view, *pair(9)))
    assert outdated((condensed(0), view), later(view, *pair(9))) is None
    with_summary = (condensed(4, summary="S", offset=4), view)
    assert outdated(with_summary, later(view, *pair(9))) is None, "the summary ends the loop"


def test_a_call_that_joins_forgotten_ones_and_waits_outdates_a_plan():
    view = viewed(message(), call(call_id="a", response_id="r"), answer(call_id="a"))
    plan = (condensed(1, 2), view)
    assert "nothing can be forgotten" in outdated(
        plan, later(view, call(call_id="b", response_id="r"))
    )


def test_abandoned_calls_hold_no_event_of_their_response():
    view = viewed(
        message(), call("b1", "b1", "r"), call("b2", "b2", "r"), answer(call_id="b1"), messages(3)
    )
    for gone in ([0, 1], [2, 3], [3, 4]):
        plan = condensed(*gone, summary="S", offset=gone[0])
        assert without_kept(view, plan) is plan


def test_a_view_of_which_no_message_was_sent_may_lose_what_was_not_sent():
    view = viewed(Annotation(name="lines", shown=True, origin=Origin(format="a")) for _ in range(3))
    plan = condensed(0, 1)
    assert outdated((plan, view), []) is None
    talk = viewed(message(), Annotation(name="lines", shown=True, origin=Origin(format="a")))
    assert "no message to send" in str(outdated((condensed(0), talk), []))
