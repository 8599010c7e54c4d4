"""The laws of Views hold for histories that were written by hand, which are the same in each run: the
events of golden cases, with a condensation, a return and the events again.
"""

import json

import pytest
from msgspec.structs import replace

from foldlog.eventstore import CondensationAction, Retraction, open_store
from foldlog.projections import View, Views, render_events
from foldlog.projections.messages.turns import DIALECTS
from tests.golden.cases import cases_in
from tests.how_many import some
from tests.properties.test_lifetimes import check_lifetimes

VIEWS = [case for cases in cases_in("views").values() for case in cases]
STORED = [
    case for case in VIEWS if all(getattr(event, "summary", None) != "" for event in case.events())
]
CASES = [
    *VIEWS,
    *(case for cases in cases_in("messages").values() for case in cases),
    *some((case for cases in cases_in("condensations").values() for case in cases), 12),
]


def logged(events):
    """Return the events as they stand in a log: a summary of a View becomes an imported one."""
    return [replace(event, id=place) for place, event in enumerate(events)]


def changed(events):
    """Return a log in which the middle of the View is summarized, the events come again, a part is
    forgotten without a summary, and at last the log returns to a version before all this.
    """
    log = logged(events)
    view = View.from_events(log)
    middle = [event.id for event in view[1 : (len(view) + 1) // 2] if event.id >= 0]
    if middle:
        log.append(
            CondensationAction(forgotten_event_ids=middle, summary="so far", summary_offset=1)
        )
    log += events
    view = View.from_events(logged(log))
    last = [event.id for event in view[-2:-1]]
    log.append(
        CondensationAction(forgotten_event_ids=last, summary="S", summary_offset=len(view) - 2)
    )
    log.append(Retraction(version=len(log) - 1))
    log.append(Retraction(version=len(events)))
    return logged([*log, *events[:2]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_lifetimes_of_written_histories(case):
    check_lifetimes(changed(case.events()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_written_histories_grow(case):
    """A View that grows by one event is the View of all events, with the same messages."""
    log = changed(case.events())
    grown = View.from_events(())
    for version in range(1, len(log) + 1):
        grown = grown.then(log[version - 1 : version])
        fresh = View.from_events(log[:version])
        assert grown == fresh
        assert grown.cut_points == fresh.cut_points
        dialect = sorted(DIALECTS)[version % len(DIALECTS)]
        messages = render_events(fresh.events, fresh.fit_positions, dialect)
        assert json.dumps(grown.rendered(dialect), default=repr) == json.dumps(
            messages, default=repr
        )


@pytest.mark.parametrize("case", STORED, ids=lambda case: case.rule)
def test_written_histories_in_a_store(case):
    """Each past View of a store is the View of the events up to there."""
    with open_store("memory:") as store:
        views = Views(store)
        store.register(views)
        log = changed(case.events())
        for version in range(0, len(log), 3):
            store.append("c", log[version : version + 3], expected_version=version)
        stored = [*store.events("c")]
        for version in range(len(stored) + 1):
            assert Views(store).at("c", version) == View.from_events(stored[:version])
