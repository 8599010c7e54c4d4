"""The overview of a conversation whose events have many bytes."""

from foldlog._reports.figures import overview
from foldlog._reports.figures.short_events import ShortReading
from foldlog._reports.figures.tokens import view_tokens
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Logged,
    Observation,
    ReadTransaction,
    open_store,
)
from foldlog.projections import Views
from tests.said import said

LONG = "long " * 100_000


def test_an_overview_reads_long_events_one_by_one():
    read = []

    def log(start, stop):
        read.append((start, stop))
        for event_id in range(start, stop):
            text = LONG if event_id in (1, 20) else "short"
            yield Logged(None, said(text, id=event_id))

    page = overview._shortened(log, 0, 24)
    assert [event.id for _, event in page] == [*range(24)]
    assert max(len(event.content) for _, event in page) == overview.READ_MAX
    assert read == [(0, 2), (2, 3), (3, 24)]


def test_views_without_long_contents_have_the_same_sizes(tmp_path):
    parts = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": LONG}}]
    events = [
        said(LONG),
        said(parts),
        Action(source="agent", tool="run", arguments={}, call_id="k"),
        Observation(source="environment", content=LONG, call_id="k", tool="run", cause=2),
        *(said("short") for _ in range(20)),
        CondensationAction(forgotten_event_ids=[0, 8], summary="short", summary_offset=0),
        said(LONG),
    ]
    with open_store(tmp_path / "history.db") as store:
        store.append("c1", events, expected_version=0)
        view = Views(store).current("c1")
        short = Views(store, read_by=ShortReading).current("c1")
        assert [event.id for event in short] == [event.id for event in view]
        assert view_tokens(short) == view_tokens(view)
        assert short.fit_positions == view.fit_positions
        assert max(len(str(event.content)) for event in short if hasattr(event, "content")) <= 1_000


def test_long_events_of_a_view_are_read_one_by_one(tmp_path, monkeypatch):
    read = []
    flagged_events = ReadTransaction.flagged_events

    def note(self, intervals):
        read.append(list(intervals))
        return flagged_events(self, intervals)

    with open_store(tmp_path / "history.db") as store:
        store.append("c1", [said(LONG) for _ in range(11)], expected_version=0)
        monkeypatch.setattr(ReadTransaction, "flagged_events", note)
        Views(store, read_by=ShortReading).current("c1")
    assert read == [[(0, 1)], *([(n, n)] for n in range(2, 11))]
