"""Lifetimes agree with the Views of all versions."""

from hypothesis import example, given

from foldlog.eventstore.events import Retraction
from foldlog.projections import LifetimesFold, View
from foldlog.projections.explain import explain_event
from foldlog.projections.retractions import target
from foldlog.projections.units import has_no_message
from tests.how_many import examples
from tests.properties.definition import structural_since
from tests.properties.histories import (
    always,
    batch_step,
    condensation,
    from_v0,
    histories,
    history,
    turn_step,
)
from tests.said import ids
from tests.shown_at import shown_at


@examples(150)
@given(histories)
@example(history([turn_step([(1, 0, False), (1, 0, True), (1, 1, True)], thinks=True, missing=0)]))
@example(
    history(
        [
            from_v0(always(condensation([], "", -1)), 0),
            from_v0(batch_step(2, False, True, False), None),
        ]
    )
)
def test_lifetimes_agree_with_the_views(events):
    check_lifetimes(events)


def check_lifetimes(events):
    """Compare the lifetimes of a log's events with the Views of all its versions."""
    folding = LifetimesFold(
        "c", lambda event: 3, [target(event) for event in events if isinstance(event, Retraction)]
    )
    for start in range(0, len(events), 5):
        folding.take(events[start : start + 5])
    lives = folding.result()
    assert lives.version == len(lives.events) == len(events)
    for version in range(len(events) + 1):
        view = View.from_events(events[:version])
        assert shown_at(lives, version) == ids(view), version
        sent = {view[place].id for place in view.fit_positions if not has_no_message(view[place])}
        assert {life.id for life in lives if life.at(version) == "sent"} == sent, version
        shown = {life.id for life in lives if life.at(version) in ("sent", "pending")}
        assert shown == set(ids(view)), version
        assert lives.sizes[version] == 3 * len(sent), version
        for event in events[:version]:
            why = explain_event(event, view, structural_since(events[:version]))
            if why.fate in ("forgotten", "taken back") and why.by is not None:
                departure = "summarized" if why.summary else why.fate
                assert lives.of(event.id).at(version) == departure, (version, event.id)
    for life in lives:
        for span in life.spans:
            assert span.stop is None or (span.by is not None and span.stop == span.by + 1)
