"""Whatever is redacted: every View keeps its events in their places, revisions stay right, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from foldlog.eventstore import CannotRedact, Redaction, open_store
from foldlog.eventstore.events import Event
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import View, Views, audit, cut_points, well_formed
from tests.how_many import examples
from tests.properties.histories import histories

NAMED = 40


@examples(40)
@given(histories, st.lists(st.integers(0, NAMED), min_size=1, max_size=6), st.booleans())
def test_views_keep_their_events_and_revisions_stay_right(events: list[Event], chosen: list[int], warm: bool) -> None:
    if not events:
        return
    with open_store("memory:") as store:
        store.register(Views(store))
        store.ingest("c", events)
        views = Views(store)
        before = {version: _shape(views.at("c", version)) for version in range(len(events) + 1)} if warm else {}
        redacted = set()
        for place in chosen:
            event_id = place % len(events)
            try:
                redacted.update(
                    redact(store, "c", event_id, reason="r", by="b", with_summaries=place % 2 == 0).event_ids
                )
            except CannotRedact:
                assert type(events[event_id]).__name__ == "UnknownEvent"
        after = list(store.events("c"))
        assert [event.id for event in after if event.redacted is not None] == sorted(redacted)
        assert [event for event in after[: len(events)] if event.id not in redacted] == [
            event for event in store.events("c", 0, len(events)) if event.redacted is None
        ]
        assert all(isinstance(event, Redaction) for event in after[len(events) :])
        fresh = Views(store)
        for version in range(len(events) + 1):
            shown = views.at("c", version)
            assert _shape(shown) == _shape(View.from_events(after[:version])) == _shape(fresh.at("c", version))
            assert not warm or _shape(shown) == before[version]
            assert tuple(shown) == tuple(fresh.at("c", version))
            assert all(event.redacted is not None for event in shown if event.id in redacted)
        assert audit(store, "c").findings == ()
        assert [each.findings for each in verify(store) if each.findings] == []


def _shape(view: View) -> tuple[Sequence[tuple[int, type]], bool, Sequence[int], Sequence[int]]:
    fit = [event.id for event in well_formed(view)]
    return [(event.id, type(event)) for event in view], view.unhandled_condensation_request, cut_points(view), fit
