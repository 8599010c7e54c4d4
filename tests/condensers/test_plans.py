"""A plan still holds, or not, after the events of others: a check of the new events agrees with a
check of all events. ``tests/golden/plans`` has a rule for each kind of what others do; ``python -m
tests.condensers.test_plans`` makes the answers again.
"""

import pytest
from hypothesis import HealthCheck, given
from msgspec import convert
from msgspec.structs import replace

from foldlog.condensers import NoCondensationAvailable
from foldlog.condensers.handler import planned_before
from foldlog.condensers.selection import middle
from foldlog.eventstore.events import (
    CondensationAction,
    Retraction,
)
from foldlog.projections import View, well_formed
from foldlog.projections.units import pending_positions, units
from tests.condensers.made import history, message, pair
from tests.condensers.test_laws import condensers, loops, stepped, viewed as viewed_if_asked
from tests.golden.cases import cases_in, write_anew
from tests.how_many import examples
from tests.properties.histories import histories
from tests.said import ids

CASES = [case for cases in cases_in("plans").values() for case in cases]


def outdated(plan, meanwhile):
    try:
        planned_before(*plan, meanwhile)
    except NoCondensationAvailable as error:
        return str(error)
    return None


def following(view, events):
    """``events`` as they would come behind the View, but for condensations."""
    others = (event for event in events if not isinstance(event, CondensationAction))
    return [replace(event, id=view.version + place) for place, event in enumerate(others)]


@examples(150, HealthCheck.filter_too_much)
@given(loops | histories, loops | histories, condensers)
def test_a_plan_that_holds_loses_nothing_else(events, later, condenser):
    view = viewed_if_asked(events, requested=True)
    action = stepped(condenser, view, None)
    if not isinstance(action, CondensationAction):
        return
    plan = (action, view)
    came = following(view, later)
    forgotten = set(ids(view)).difference(ids(view.then([action])))
    for n in range(len(came) + 1):
        now = view.then(came[:n])
        after = now.then([action])
        lost = set(ids(well_formed(now))) - forgotten - set(ids(well_formed(after)))
        waiting = {now[place].id for place in pending_positions(units(now.events, now.left_behind))}
        parted = waiting & (forgotten | after.left_behind - now.left_behind)
        returned = any(isinstance(event, Retraction) for event in came[:n])
        sendable = [
            any(message["role"] != "system" for message in view.to_messages("openai"))
            for view in (now, after)
        ]
        is_silent = sendable == [True, False]  # no message could be sent
        # Where ids of calls or of sources repeat, a plan may be refused that would take nothing.
        assert outdated(plan, came[:n]) or not (lost or parted or returned or is_silent)


@pytest.mark.parametrize(
    "keep_first, keep_last, span",
    [
        (0, 0, slice(0, 4)),
        (1, 1, slice(1, 3)),
        (1, 2, slice(1, 3)),  # the tail shrinks by a part of a unit
        (2, 0, slice(3, 4)),  # the head grows by a part of a unit
        (4, 0, None),
        (5, 0, None),
        (99, 0, None),
        (0, 99, None),
        (0, -1, None),
    ],
)
def test_the_span_between_head_and_tail(keep_first, keep_last, span):
    view = View.from_events(history(message(), pair(1), message()))
    assert middle(view, keep_first, keep_last) == span


def run_case(case, output):
    """Return why the plan of a case is outdated by the events after its version."""
    settings = case.settings()
    events = case.events()
    version = settings["version"]
    plan = convert(settings["plan"], CondensationAction)
    return outdated((plan, View.from_events(events[:version])), events[version:]) or "it holds"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_plans(case):
    assert run_case(case, "plan") == case.outputs["plan"], "python -m tests.condensers.test_plans"


if __name__ == "__main__":
    write_anew("plans", run_case)
