"""The explanation of an event agrees with the Views of all versions."""

import tracemalloc

from hypothesis import given

from foldlog.eventstore.events import (
    CondensationAction,
    CondensationSummary,
    Message,
    Retraction,
    summary_id,
)
from foldlog.projections import View
from foldlog.projections.explain import explain_difference, explain_event
from foldlog.projections.retractions import target
from tests.how_many import examples
from tests.properties.definition import structural_since
from tests.properties.histories import histories
from tests.said import ids


@examples(150)
@given(histories)
def test_why_agrees_with_the_views(events):
    views = [View.from_events(events[:version]) for version in range(len(events) + 1)]
    shown = [set(ids(view)) for view in views]
    standing = [set()]  # by version: the events that its View is made of
    for event in events:
        standing.append(
            standing[target(event)] if isinstance(event, Retraction) else standing[-1] | {event.id}
        )
    view = views[-1]
    summaries = [
        event
        for earlier_view in views
        for event in earlier_view
        if isinstance(event, CondensationSummary) and event.id < 0
    ]
    for event in [*events, *summaries]:
        why = explain_event(event, view, structural_since(events))
        assert (why.fate == "shown") == (event.id in shown[-1])
        if why.fate == "shown":
            assert view[why.position].id == event.id
        if why.fate == "never shown":
            assert not any(event.id in version_ids for version_ids in shown)
        assert (why.fate == "taken back") == isinstance(why.by, Retraction)
        if why.fate in ("forgotten", "taken back"):
            assert event.id not in shown[why.by.id + 1], why.reason
            if isinstance(why.by, Retraction):
                place = event.id if event.id >= 0 else -event.id - 2
                assert place in standing[why.by.id], "it stood until it was taken back"
                assert not any(place in places for places in standing[why.by.id + 1 :]), (
                    "it never came back"
                )
            else:
                assert event.id in shown[why.by.id], "shown until it was forgotten"
            if why.stands_in is not None:
                assert why.stands_in.id in shown[-1]
                assert why.summary is not None


@examples(150)
@given(histories)
def test_a_difference_agrees_with_the_views(events):
    for before in range(0, len(events), 3):
        views = View.from_events(events[:before]), View.from_events(events)
        difference = explain_difference(*views, structural_since(events))
        first, last = map(ids, views)
        assert ids(difference.entered) == [event_id for event_id in last if event_id not in first]
        left = ids(difference.left)
        assert left == [event_id for event_id in first if event_id not in last]
        for entry in difference.summarized:
            assert isinstance(entry.condensation, CondensationAction)
            after = ids(View.from_events(events[: entry.condensation.id + 1]))
            assert entry.summary.id in after
            assert set(ids(entry.events)) <= set(left)
            assert set(ids(entry.events)).isdisjoint(after)


def _condensations(start):
    """Yield condensations from ``start`` to 99. Each forgets the summary before it, and condensation 1
    forgets event 0.
    """
    for number in range(start, 100):
        yield CondensationAction(
            id=number,
            forgotten_event_ids=[0 if number == 1 else summary_id(number - 1)],
            summary=f"{number:05}" * 20_000,
            summary_offset=0,
        )


def test_why_of_early_event_holds_no_later_texts():
    event = Message(id=0, content="forgotten early", source="user")
    view = View.from_events([event, *_condensations(1)])
    tracemalloc.start()
    try:
        why = explain_event(event, view, _condensations)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (why.by.id, why.summary.id, why.stands_in.id) == (1, summary_id(1), summary_id(99))
    assert peak_bytes < 2_000_000, "the texts have 9,900,000 bytes"
