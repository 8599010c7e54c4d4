"""The end of a log is read at the cost of the end, and the newest events can be taken back."""

import pytest

import foldlog
from foldlog import CondensationRequest
from foldlog.eventstore import CorruptEvent, open_store
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.projections import View, Views, audit
from tests.condensers.made import condensed
from tests.said import all_said, ids
from tests.stored_rows import execute

LONG = 2_000


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def histories(request, tmp_path):
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/h.db"}.get(request.param)
    with foldlog.open(url or request.getfixturevalue("postgres_url")()) as opened:
        yield opened


@pytest.fixture
def long(tmp_path):
    """The URL of a store with one long history. Nothing of the history is in memory."""
    url = f"sqlite:///{tmp_path}/long.db"
    with foldlog.open(url) as opened:
        opened["c1"].append(all_said(*map(str, range(LONG))))
    return url


@pytest.fixture
def rows_read(monkeypatch):
    """Return a function that returns the number of rows read from SQLite since its last call."""
    lengths = []

    def counting(method):
        def counted_rows(*arguments, **how):
            rows = method(*arguments, **how)
            lengths.append(len(rows))
            return rows

        return counted_rows

    def since():
        count = sum(lengths)
        lengths.clear()
        return count

    for name in ("rows", "flagged_rows"):
        monkeypatch.setattr(SQLiteReader, name, counting(getattr(SQLiteReader, name)))
    return since


def test_the_tail_of_a_log(histories):
    history = histories["c1"]
    history.append(all_said(*map(str, range(150))))
    assert ids(history.tail(3)) == [147, 148, 149]
    assert history.tail(1_000) == tuple(history.events())
    assert history.tail(0) == ()
    assert list(history.events(reverse=True)) == list(history.events())[::-1]
    assert ids(history.events(5, 140, reverse=True)) == list(range(139, 4, -1))
    assert ids(history.events(5, 5, reverse=True)) == []
    for name in ("c1", "without events"):
        with pytest.raises(ValueError, match="count is -1; use a whole number from 0"):
            histories[name].tail(-1)


def test_a_missing_event_is_no_shorter_tail(tmp_path):
    path = tmp_path / "h.db"
    with foldlog.open(f"sqlite:///{path}") as opened:
        request = CondensationRequest()
        opened["c1"].append([*all_said(*"abcd"), request, *all_said("f"), request])
    execute(path, "DELETE FROM events WHERE id = 4")
    with open_store(f"sqlite:///{path}") as store:
        with pytest.raises(CorruptEvent):
            store.query("c1", lambda read: read.tail(3))
        with pytest.raises(CorruptEvent):
            store.query("c1", lambda read: list(read.structural_events()))
        with pytest.raises(CorruptEvent):
            list(store.events("c1", reverse=True))
        with pytest.raises(CorruptEvent, match="event 4"):
            Views(store).current("c1")


def test_a_tail_reads_no_other_rows(long, rows_read):
    with foldlog.open(long) as opened:
        history = opened["c1"]
        rows_read()
        assert ids(history.tail(50)) == list(range(LONG - 50, LONG))
        assert rows_read() <= 60
        assert next(history.events(reverse=True)).id == LONG - 1
        assert rows_read() <= 70
        assert ids(history.view().tail(50)) == list(range(LONG - 50, LONG))
        assert rows_read() >= LONG


def test_a_pop_does_not_reread_the_view(long, rows_read):
    for n in range(1, 6):
        with foldlog.open(long) as opened:
            assert ids(opened["c1"].pop()) == [LONG - n]
    with foldlog.open(long) as opened:
        history = opened["c1"]
        assert ids(history.pop(3)) == [LONG - 8, LONG - 7, LONG - 6]
        history.append(all_said("another"))
        assert ids(history.pop(2, "both")) == [LONG - 9, LONG + 6]
        assert ids(history.view()) == list(range(LONG - 9))
        rows_read()
        for n in range(10, 13):
            assert ids(history.pop()) == [LONG - n]
            assert ids(history.view()) == list(range(LONG - n))
        assert rows_read() <= 3 * 60
        assert audit(opened.store, "c1").findings == ()


def test_a_pop_stops_at_a_summary(histories):
    history = histories["c1"]
    assert history.pop() == ()
    history.append(all_said(*"abcd"))
    history.append(condensed(0, 1, summary="two", offset=0))
    history.append(all_said("e"))
    assert ids(history.pop(9)) == [2, 3, 5]
    assert ids(history.view()) == [0, 1]  # as before the first of them: the condensation came later
    assert ids(history.pop(9)) == [0, 1]
    version = history.version()
    assert (history.pop(), history.version()) == ((), version)
    with pytest.raises(ValueError, match="count is -1; use a whole number from 0"):
        history.pop(-1)


def test_a_summary_alone_is_not_popped(histories):
    history = histories["c1"]
    history.append(all_said(*"abcd"))
    history.append(condensed(0, 1, 2, 3, summary="all", offset=0))
    assert ids(history.view().tail(5)) == [-6]
    assert history.pop() == ()
    assert history.version() == 5


def test_a_pop_takes_a_concurrent_event(histories):
    history = histories["c1"]
    history.append(all_said(*"ab"))
    current = histories.views.current
    came = [all_said("c")]

    def overtaken(conversation):
        view = current(conversation)
        if came:
            history.append(came.pop())
        return view

    histories.views.current = overtaken
    assert ids(history.pop()) == [2]


def test_a_view_outlives_its_store(long):
    with foldlog.open(long) as opened:
        held = opened["c1"].view()
        opened["c1"].append(all_said("later"))
        assert held.version == LONG
    assert (len(held), held.tail(1)[0].id) == (LONG, LONG - 1)
    assert held == View.from_events(held.events)
