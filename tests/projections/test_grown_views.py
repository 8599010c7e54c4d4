"""A View grows by the events of its own process without a question to the database, and by the
events of other processes too.
"""

import threading

import pytest

from benchmarks.counts import collecting
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Observation,
    Retraction,
    Store,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.errors import TooManyBytes
from foldlog.eventstore.log import writing
from foldlog.eventstore.log.reading import views_up_to
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.projections import View, Views
from tests.eventstore.test_sqlite import FollowedBy, execute
from tests.projections.test_stored_views import append, registered
from tests.said import all_said, ids


@pytest.fixture
def statements():
    """The statements of the stores that a test opens."""
    recorded = []
    with collecting(recorded):
        yield recorded


@pytest.fixture
def store(statements, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/history.db") as opened:
        opened.append("c", all_said("a", "b"), expected_version=0)
        yield opened


def watched(store):
    views = registered(store)
    append(store, *all_said("warm"))
    views.current("c")
    return views


def folded(store):
    return View.from_events(store.events("c"))


class Refusing:
    """A projection that takes back each append, after something else happened."""

    name = "refusing"

    def __init__(self, happens=tuple):
        self._happens = happens

    def project(self, writing, events):
        self._happens()
        raise ValueError("no")


def test_own_appends_need_no_statement(store, statements):
    views = watched(store)
    append(store, *all_said("c"), Annotation(name="note", data=1))
    append(
        store,
        Action(tool="run", arguments={"n": [1]}, call_id="x"),
        Observation(content="d", call_id="x"),
    )
    statements.clear()
    view = views.current("c")
    assert statements == []
    assert ids(view) == [0, 1, 2, 3, 5, 6]
    assert view == folded(store)
    assert all(event.timestamp is not None for event in view)


def test_a_grown_view_takes_condensations_and_retractions(store):
    views = watched(store)
    append(store, *all_said("c", "d"))
    views.current("c")
    append(store, CondensationAction(forgotten_event_ids=(1, 2), summary="s", summary_offset=1))
    append(store, *all_said("e"))
    assert views.current("c") == folded(store)
    assert len(views.current("c").condensations) == 1
    append(store, *all_said("f"))
    grown = views.current("c")
    assert len(grown.condensations) == 1
    append(store, Retraction(version=4))
    assert views.current("c") == folded(store)
    assert grown.then(list(store.events("c", start=grown.version))) == folded(store), (
        "it has its past"
    )


def test_another_store_on_the_recorder_is_noticed(store):
    """The other one finds the conversation in a transaction that writes nothing: the next rows are
    not noted there.
    """
    other = Store(store._recorder)
    views = Views(other)
    append(store, *all_said("ours"))
    with pytest.raises(VersionConflict):
        other.append("c", all_said("late"), expected_version=0)
    views.current("c")
    append(store, *all_said("ours"))
    assert views.current("c") == folded(store)
    assert other.append("c", all_said("theirs"), expected_version=4)[0].event.id == 4


def test_a_foreign_commit_is_noticed_at_once(store, tmp_path):
    """The other writer takes no write lock of ours, so it may commit before we look at our commit."""
    views = watched(store)
    ours = store.database.recorder._writing._transaction
    path = tmp_path / "history.db"
    statement = "UPDATE conversations SET redactions = coalesce(redactions, 0) + 1"
    ours.cursor = FollowedBy(ours.cursor, lambda: execute(str(path), statement))
    append(store, *all_said("c"))
    assert store.database.recorder.last_conversation is None
    append(store, *all_said("d"))
    cached = store.database.cached_state("c")
    assert cached is not None
    assert cached.state.redactions == 1
    assert views.current("c") == folded(store)


def test_a_transaction_in_progress_is_not_seen(store):
    """A View of another thread has what is committed, though this transaction has inserted its
    events.
    """
    views = watched(store)
    views_read = []

    def look():
        thread = threading.Thread(target=lambda: views_read.append(views.current("c")))
        thread.start()
        thread.join()

    store.register(Refusing(look))
    before = folded(store)
    with pytest.raises(ValueError, match="no"):
        append(store, *all_said("c"), CondensationAction(forgotten_event_ids=(0,)))
    assert views_read == [before]
    assert views.current("c") == before


def test_no_view_has_rolled_back_rows(store, monkeypatch):
    views = watched(store)

    end = WriteTransaction.end

    def interrupted(writing):
        end(writing)
        raise ValueError("no")

    with monkeypatch.context() as patched:
        patched.setattr(WriteTransaction, "end", interrupted)
        with pytest.raises(ValueError, match="no"):
            append(store, *all_said("taken back"))
    append(store, *all_said("stays"))
    assert views.current("c") == folded(store)


def test_a_rolled_back_view_is_not_continued(store):
    """The projection made a View of events that were then not appended; others got their ids."""
    views = watched(store)
    store.register(Refusing())
    with pytest.raises(ValueError, match="no"):
        append(store, CondensationAction(forgotten_event_ids=(0,)))
    append(store, *all_said("c"))
    append(store, *all_said("d"))
    assert views.current("c") == folded(store)


def test_large_appends_are_read_from_the_store(store, statements, monkeypatch):
    views = watched(store)

    def assert_read_from_the_store():
        statements.clear()
        view = views.current("c")
        assert statements != []
        assert view == folded(store)

    for n in range(writing._RECENT_MAX + 2):
        append(store, *all_said(str(n)))
    assert_read_from_the_store()
    for n in range(3):
        append(store, *all_said(str(n) * (writing._RECENT_BYTES_MAX // 2)))
    assert_read_from_the_store()
    monkeypatch.setattr(writing, "_RECENT_BYTES_MAX", 10)
    append(store, *all_said("c"))
    views.current("c")
    append(store, *all_said("more than ten bytes"))
    append(store, *all_said("d"))
    assert_read_from_the_store()


def test_a_grown_view_is_not_longer_than_a_read_one(store):
    views = watched(store)
    append(store, *all_said("x" * 500))
    with views_up_to(400), pytest.raises(TooManyBytes):
        views.current("c")
    with views_up_to(2_000):
        assert views.current("c") == folded(store)
    append(store, *all_said("y" * 500))
    with views_up_to(900), pytest.raises(TooManyBytes):
        views.current("c")
    assert views.current("c") == folded(store)


def test_a_view_that_is_too_long_as_stored_is_not_decoded(store, monkeypatch):
    append(store, *all_said(*["x" * 500] * 3))

    def read():
        return store.query("c", lambda reading: ids(reading.shown_events([(0, 2)])))

    with views_up_to(2_500):
        assert read() == [0, 1, 2]

    def decode_first(*arguments):
        raise AssertionError("the rows need no decoding")

    monkeypatch.setattr(RowCodec, "decode_first", decode_first)
    with views_up_to(400), pytest.raises(TooManyBytes):
        read()
