"""What is said of an event agrees with the Views of all versions."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given

from foldlog.eventstore import open_store
from foldlog.eventstore.events import (
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    Message,
    Retraction,
    is_structural,
)
from foldlog.projections import View, Views
from foldlog.projections.explain import explain_difference, explain_event
from foldlog.projections.retractions import target
from tests.how_many import examples, some
from tests.properties.histories import histories


@examples(150)
@given(histories)
def test_why_agrees_with_the_views(events: list[Event]) -> None:
    views = [View.from_events(events[:version]) for version in range(len(events) + 1)]
    shown = [{event.id for event in view} for view in views]
    structural = [event for event in events if is_structural(event)]
    view = views[-1]
    summaries = [event for each in views for event in each if isinstance(event, CondensationSummary) and event.id < 0]
    for event in [*events, *summaries]:
        why = explain_event(event, view, lambda start: (one for one in structural if one.id >= start))
        assert (why.fate == "shown") == (event.id in shown[-1])
        if why.fate == "shown":
            assert why.position is not None
            assert view[why.position].id == event.id
        if why.fate == "never shown":
            assert not any(event.id in ids for ids in shown)
        if why.fate == "forgotten":
            assert why.by is not None, why.reason
            assert event.id not in shown[why.by.id + 1]
            if isinstance(why.by, Retraction):
                assert target(why.by) <= (event.id if event.id >= 0 else -event.id - 2) < why.by.id
            else:
                assert event.id in shown[why.by.id], "shown until it was forgotten"
            assert why.stands_in is None or why.stands_in.id in shown[-1]
            assert why.stands_in is None or why.summary is not None


@examples(150)
@given(histories)
def test_a_difference_agrees_with_the_views(events: list[Event]) -> None:
    structural = [event for event in events if is_structural(event)]
    for before in range(0, len(events), 3):
        views = View.from_events(events[:before]), View.from_events(events)
        told = explain_difference(*views, lambda start: (one for one in structural if one.id >= start))
        first, last = ([event.id for event in view] for view in views)
        assert [event.id for event in told.entered] == [each for each in last if each not in first]
        assert [event.id for event in told.left] == [each for each in first if each not in last]
        for one in told.summarized:
            assert isinstance(one.condensation, CondensationAction)
            after = View.from_events(events[: one.condensation.id + 1])
            assert one.summary.id in {event.id for event in after}
            assert {event.id for event in one.events} <= {event.id for event in told.left}
            assert not {event.id for event in one.events} & {event.id for event in after}


def forgetful_history(at: random.Random) -> list[Event]:
    """Messages, and condensations of some of the View; now and then a request, or a retraction."""
    events: list[Event] = []
    others = at.choice([0, 0.03])
    for event_id in range(60):
        chance = at.random()
        view = View.from_events(events)
        if chance < 0.25 and len(view) > 2:
            start = at.randrange(len(view) - 1)
            forgotten = [event.id for event in view[start : start + at.randint(1, 8)]]
            summary = at.choice([None, "in short", "in brief"])
            offset = None if summary is None else start
            events.append(
                CondensationAction(id=event_id, forgotten_event_ids=forgotten, summary=summary, summary_offset=offset)
            )
        elif chance > 1 - others:
            events.append(CondensationRequest(id=event_id))
        elif chance > 1 - 2 * others:
            events.append(Retraction(id=event_id, version=max(0, event_id - at.randint(1, 20))))
        else:
            events.append(Message(id=event_id, source="user", content=str(event_id)))
    return events


@pytest.mark.parametrize("seed", some(range(50), 10))
def test_a_store_tells_what_the_events_tell(seed: int, tmp_path: Path) -> None:
    """Whichever revisions are stored."""
    at = random.Random(seed)
    source = forgetful_history(at)
    with open_store(f"sqlite:///{tmp_path}/s.db", durability="relaxed") as store:
        store.register(Views(store))
        store.ingest("c", source)
    with closing(sqlite3.connect(tmp_path / "s.db")) as database, database:
        lost = [event.id + 1 for event in source if at.random() < at.choice([0, 0.1, 0.3])]
        if at.random() < 0.5:
            lost += range(at.randrange(len(source)), len(source) + 1)
        database.executemany("DELETE FROM records WHERE version = ?", zip(lost, strict=True))
    with open_store(f"sqlite:///{tmp_path}/s.db?mode=ro") as store:
        events = list(store.events("c"))
        views = [View.from_events(events[:version]) for version in range(len(events) + 1)]
        summaries = {event.id: event for each in views for event in each if event.id < 0}
        structural = [event for event in events if is_structural(event)]

        def since(start: int) -> Iterable[Event]:
            return (one for one in structural if one.id >= start)

        for event in [*events, *summaries.values()]:
            assert Views(store).why("c", event.id) == explain_event(event, views[-1], since)
        for before in range(0, len(events), 11):
            for after in range(before, len(events), 13):
                told = explain_difference(views[before], views[after], since)
                assert Views(store).difference("c", before, after) == told
