"""A View from the store, at any version, is the fold of the log up to that version, however the events
were written or read.
"""

from contextlib import suppress
from itertools import cycle

from hypothesis import given, strategies as st

from foldlog import Histories
from foldlog.eventstore import CannotRedact, CondensationRequest, open_store
from foldlog.projections import View, Views, audit
from tests.how_many import examples
from tests.projections.test_stored_views import registered, revisions
from tests.properties.histories import histories

many = examples(120)
some_events = histories.filter(bool)


def assert_every_version(views, events):
    for version in range(len(events) + 1):
        expected = View.from_events(events[:version])
        view = views.at("c", version)
        assert view == expected
        assert list(view.condensations) == list(expected.condensations)
    assert views.current("c") == View.from_events(events)


def ingest_in_parts(store, events, sizes):
    """Import a history in parts of these sizes."""
    stop = 0
    for size in [*sizes, len(events)]:
        stop = min(stop + size, len(events))
        store.ingest("c", events[:stop])


@many
@given(
    some_events, st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=8), st.booleans()
)
def test_writers_without_revisions_leave_the_same_views(events, parts, reading):
    with open_store("memory:") as store:
        views = registered(store)
        register = store._projections
        none = {}
        stop = 0
        for size, keeps_revisions in [*parts, (len(events), True)]:
            stop = min(stop + size, len(events))
            store._projections = register if keeps_revisions else none
            store.ingest("c", events[:stop])
            if reading:
                assert views.current("c") == View.from_events(events[:stop])
        assert_every_version(views, events)
        assert_every_version(Views(store), events)
        store._projections = register
        store.ingest("c", [*events, CondensationRequest()])
        assert (audit(store, "c").findings, audit(store, "c").missing) == ((), 0)


@many
@given(some_events)
def test_rebuilt_revisions_are_the_same_bytes(events):
    with open_store("memory:") as store:
        views = registered(store)
        ingest_in_parts(store, events, [1] * len(events))
        before = revisions(store)
        count = views.rebuild("c")
        assert revisions(store) == before
        assert count == len(before)
        assert_every_version(Views(store), events)


@many
@given(some_events, st.lists(st.booleans(), min_size=1, max_size=5))
def test_any_revision_may_be_missing(events, choices):
    """A damaged revision is not read, so any revision may be missing."""
    with open_store("memory:") as store:
        registered(store)
        ingest_in_parts(store, events, [1] * len(events))
        pairs = zip(revisions(store), cycle(choices), strict=False)
        records = [record for record, is_kept in pairs if is_kept]
        for version in reversed(range(len(events) + 1)):
            store.project(
                "c", lambda writing: writing.put_records("views", records, replace_all=True)
            )
            assert Views(store).at("c", version) == View.from_events(events[:version])


@many
@given(some_events, st.lists(st.integers(0, 40), min_size=1, max_size=4), st.booleans())
def test_redactions_change_no_revision(events, numbers, with_summaries):
    with open_store("memory:") as store:
        views = registered(store)
        history = Histories(store)["c"]
        store.ingest("c", events)
        before = revisions(store)
        for event_id in {number % len(events) for number in numbers}:
            with suppress(CannotRedact):
                history.redact(event_id, reason="x", with_summaries=with_summaries)
            now = list(store.events("c"))
            assert revisions(store) == before
            assert audit(store, "c").findings == ()
            assert_every_version(Views(store), now)
            assert_every_version(views, now)
