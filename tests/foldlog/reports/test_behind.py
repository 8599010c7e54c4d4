"""Readers of figures do not wait for others' work, and say what their answers lack."""

import re
from contextlib import closing
from datetime import UTC, datetime

import pytest
from msgspec import UNSET

import foldlog as api
from foldlog._app.cli.keeping_up import Keeper
from foldlog._app.server.conversations import ServedConversations
from foldlog._reports.figures import keeping_up, of_store
from foldlog._reports.search import index
from foldlog._reports.store_info import store_info
from foldlog.eventstore import StoreRefused, open_store
from tests.figures import FiguresOfStore, Where
from tests.said import said, say
from tests.stored_rows import execute
from tests.waiting import until
from tests.web_client import asking_store


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def few_at_once(monkeypatch):
    """A reader counts two conversations."""
    monkeypatch.setattr(of_store, "_COUNTED_AT_ONCE", 2)


@pytest.fixture
def nothing_at_once(monkeypatch):
    """A reader counts no conversation, and sums up no block."""
    monkeypatch.setattr(of_store, "_COUNTED_AT_ONCE", 0)
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 0)
    monkeypatch.setattr(of_store, "_BLOCKS_AT_ONCE", 0)


def begin(store, count):
    for number in range(count):
        say(store, f"c{number}", f"text {number}")


def read(store):
    """Return the number of conversations in the total, and what the total lacks."""
    figures = FiguresOfStore(store, is_quick=True)
    figures.refresh()
    stats = figures.totals()
    return stats.conversations, stats.behind


@pytest.mark.usefixtures("few_at_once")
def test_total_says_what_it_lacks(store):
    begin(store, 5)
    assert read(store) == (2, (3, None))
    before = datetime.now(UTC)
    FiguresOfStore(store).keep_up()
    for number in range(5):
        say(store, f"c{number}", "later")
    conversations, behind = read(store)
    assert (conversations, behind.conversations) == (5, 3)
    assert before <= behind.as_of <= datetime.now(UTC)
    assert read(store)[1].conversations == 1
    complete = read(store)[1]
    assert complete.conversations == 0
    assert complete.as_of > behind.as_of


@pytest.mark.usefixtures("nothing_at_once")
def test_sums_that_are_older_are_named(store):
    begin(store, 3)
    FiguresOfStore(store).refresh()  # counts, and sums up nothing
    assert read(store) == (0, (3, None))


@pytest.mark.usefixtures("nothing_at_once")
def test_a_reader_that_does_not_wait_leaves_later_totals_complete(store):
    begin(store, 3)
    quick = FiguresOfStore(store, is_quick=True)
    complete = FiguresOfStore(store)
    quick.refresh()
    assert quick.count() == 0
    complete.refresh()
    assert complete.count() == 3
    assert complete.totals().behind.conversations == 0


def test_a_reader_counts_no_further_conversation_after_many_events(store, monkeypatch):
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 1_500)
    for number in range(3):
        store.append(f"c{number}", [said("text")] * 1_000, expected_version=0)
    assert read(store)[1].conversations == 1
    assert read(store)[1].conversations == 0


def test_a_reader_counts_few_conversations_where_each_takes_long(store, monkeypatch):
    monkeypatch.setattr(of_store, "_SECONDS_AT_ONCE", 0)
    begin(store, 40)
    at_once = keeping_up._COUNTED_AT_LEAST
    left = [read(store)[1].conversations for _ in range(3)]
    assert left == [40 - at_once, 40 - 2 * at_once, 0]
    assert FiguresOfStore(store).totals().conversations == 40


def test_a_reader_of_long_conversations_counts_few_where_each_takes_long(store, monkeypatch):
    """Long conversations are written in small groups, and the time holds for all groups."""
    monkeypatch.setattr(of_store, "_SECONDS_AT_ONCE", 0)
    monkeypatch.setattr(keeping_up, "_EVENTS_TOGETHER", 3)
    begin(store, 40)
    assert [read(store)[1].conversations for _ in range(3)] == [24, 8, 0]


def test_a_list_counts_few_conversations_where_each_takes_long(store, monkeypatch):
    monkeypatch.setattr(of_store, "_SECONDS_AT_ONCE", 0)
    begin(store, 40)
    figures = FiguresOfStore(store, is_quick=True)
    rows = [*figures.of(store.iter_conversations())]
    at_once = keeping_up._COUNTED_AT_LEAST
    assert [row.columns.events is not None for _, row in rows].count(True) == at_once
    assert figures.behind().conversations == 40 - at_once


def test_a_list_that_is_complete_lacks_nothing_of_an_earlier_one(store, monkeypatch):
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 130)
    begin(store, 5)
    figures = FiguresOfStore(store, is_quick=True)
    assert len([*figures.of(store.iter_conversations())]) == 5
    assert figures.behind().conversations == 3
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 10_000)
    figures.refresh()
    assert figures.behind().conversations == 0


def test_a_list_describes_what_it_does_not_count_by_its_ends(store, monkeypatch):
    monkeypatch.setattr(of_store, "_EVENTS_AT_ONCE", 130)
    begin(store, 5)
    figures = FiguresOfStore(store, is_quick=True)
    rows = [*figures.of(store.iter_conversations())]
    assert [row.overview.title for _, row in rows] == [f"text {number}" for number in range(5)]
    assert [row.columns.events is not None and row.key > 0 for _, row in rows].count(True) == 2
    assert figures.behind().conversations == 3


def test_nothing_is_written_while_nothing_changes(store):
    begin(store, 2)
    maintenance = api.Histories(store).maintenance
    maintenance.keep_up()
    maintenance.keep_up()
    version = store.database.data_version()
    maintenance.keep_up()
    assert store.database.data_version() == version


def test_keeper_counts_lists_and_indexes(store):
    histories = api.Histories(store)
    histories.maintenance.index()
    begin(store, 3)
    recorder = store.database.recorder
    with Keeper(store, every_s=0.01):
        until(
            lambda: recorder.value("figures_as_of") and recorder.query(index.state_of).is_complete
        )
    assert index.refresh(store) == 0
    figures = FiguresOfStore(store)
    assert figures.refresh(0) == 0
    assert figures.count(Where()) == 3


@pytest.mark.usefixtures("few_at_once")
def test_commands_say_what_they_lack(foldlog, stored):
    begin(stored.store, 5)
    result = foldlog("stats")
    assert result.out.startswith("2 conversations")
    note = "changes of up to 3 conversations are not counted: 'foldlog store keep-up --once'"
    assert note in " ".join(result.err.split())
    begin(stored.store, 5)
    assert foldlog("stats --json").document["behind"]["conversations"] == 3
    assert foldlog("list --sort errors --json").document["behind"] == {
        "conversations": 1,
        "as_of": None,
    }
    begin(stored.store, 5)
    listed = foldlog("stats --wait --json").document
    assert (listed["conversations"], listed.get("behind")) == (5, None)


@pytest.mark.usefixtures("few_at_once")
def test_keep_up_counts_for_later_readers(foldlog, stored):
    begin(stored.store, 5)
    assert foldlog("store keep-up --once").out == "figures and lists are up to date\n"
    assert "behind" not in foldlog("stats --json").document
    begin(stored.store, 5)
    result = foldlog("list --long --sort events")
    assert re.search(r"changes since \d{4}-\d\d-\d\d", result.err)


def test_keep_up_names_the_index_that_the_store_has(foldlog, stored):
    begin(stored.store, 1)
    stored.maintenance.index()
    result = foldlog("store keep-up --once")
    assert result.out == "figures, lists and the search index are up to date\n"


@pytest.mark.parametrize("once", ["", "--once"])
def test_keep_up_refuses_a_store_that_is_read_only(foldlog, stored, once):
    begin(stored.store, 1)
    result = foldlog(f"store keep-up {once} --db sqlite:///foldlog.db?mode=ro")
    assert (result.status, result.out) == (2, "")
    assert "open for reading only" in result.err
    assert "without ?mode=ro" in " ".join(result.err.split())
    with open_store("sqlite:///foldlog.db?mode=ro") as store, pytest.raises(StoreRefused) as error:
        api.Histories(store).maintenance.keep_up()
    assert error.value.kind == "read_only"


@pytest.mark.usefixtures("nothing_at_once")
def test_page_says_what_it_lacks(store, monkeypatch):
    begin(store, 3)
    monkeypatch.setattr(ServedConversations, "_count", lambda self: None)
    monkeypatch.setattr("foldlog._app.server.conversations._AT_ONCE", 1)
    with closing(ServedConversations(store)) as served:
        for document in (served.list(), served.overview("", ""), served.fleet("")):
            assert document.behind.conversations > 0


def test_search_line_finds_each_conversation(store):
    """Many hits in the newest conversation hide no other conversation."""
    say(store, "older", "the parser fails")
    say(store, "newer", *["the parser works"] * 1_001)
    with closing(ServedConversations(store)) as served:
        assert served.ids(served.where("parser")) == {"older", "newer"}
        assert served.list(where=served.where("parser")).is_partial is UNSET


def test_search_line_without_enough_time_says_so_and_goes_on(store, monkeypatch):
    for name in ("first", "second", "third"):
        say(store, name, "the parser fails")
    monkeypatch.setattr("foldlog._app.server.conversations._SEARCH_S", 0)
    monkeypatch.setattr(ServedConversations, "_count", lambda self: None)
    with closing(ServedConversations(store)) as served:
        served.overview("", "")
        for found in ({"third"}, {"second", "third"}):
            overview = served.overview("parser", "")
            assert (overview.chosen.conversations, overview.is_partial) == (len(found), True)
            assert served._lines["parser"].searched.ids == found
        assert served.list(where=served.where("parser")).is_partial is UNSET
        assert served.ids(served.where("parser")) == {"first", "second", "third"}


@pytest.fixture
def searching(store, monkeypatch):
    """A list of conversations of which each request searches one. ``searching`` returns what a
    search line has found.
    """
    monkeypatch.setattr("foldlog._app.server.conversations._SEARCH_S", 0)
    monkeypatch.setattr(ServedConversations, "_count", lambda self: None)
    with closing(ServedConversations(store)) as served:
        yield lambda line: {*served.where(line).only}


def test_search_line_goes_on_while_others_write_and_search(store, searching):
    names = {"first", "second", "third", "fourth"}
    for name in sorted(names):
        say(store, name, "the parser of the planner fails")
    found = []
    for _ in range(10):
        found.append(searching("parser"))
        assert searching("planner") == found[-1]
        say(store, "other", "something else")
    assert list(map(len, found)) == [1, 2, 3, *[4] * 7]
    assert found[-1] == names


def test_search_line_is_searched_anew_after_a_write(store, searching):
    histories = api.Histories(store)
    for name in ("first", "second", "third"):
        say(store, name, "the parser fails")
    for _ in range(4):  # one request for each conversation, and one that finds the end
        searching("parser")
    assert len(searching("parser")) == 3
    histories["first"].redact(0, reason="asked for", by="me")
    searching("parser")
    say(store, "second", "it is in front of the place of the search")
    say(store, "fourth", "the parser works")
    found = [searching("parser") for _ in range(12)]
    assert all({"second", "third"} <= ids for ids in found)
    assert found[-1] == {"second", "third", "fourth"}


def test_each_part_of_a_search_says_that_a_conversation_is_damaged(stored, monkeypatch):
    for name in ("first", "second", "third"):
        stored[name].append(said(f"parser {name}"))
    execute(
        stored.store.path, "UPDATE events SET body = replace(body, 'parser third', 'parser THIRD')"
    )
    monkeypatch.setattr("foldlog._app.server.conversations._SEARCH_S", 0)
    monkeypatch.setattr(ServedConversations, "_count", lambda self: None)
    with open_store(stored.store.path) as store, asking_store(store) as client:
        ask = "/api/search?words=parser&q=parser"
        answers = [client.get(ask).json() for _ in range(5)]
    assert [answer.get("is_partial") for answer in answers] == [True] * 5
    assert {hit["conversation"] for hit in answers[-1]["hits"]} == {"first", "second"}


def test_store_info_names_the_search_index(foldlog, stored):
    begin(stored.store, 3)
    assert store_info(stored.store).conversations == 3
    assert foldlog("store info --json").document["search_index"] is None
    foldlog("store index")
    begin(stored.store, 1)
    about_index = foldlog("store info --json").document["search_index"]
    figures = (about_index["is_complete"], about_index["events_left"], about_index["unread"])
    assert figures == (True, 1, 0)
    assert "a search also reads 1 newer event and 0 other conversations" in " ".join(
        foldlog("store info").out.split()
    )


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("value", ["soon", "9" * 30])
def test_damaged_time_is_unknown(foldlog, stored, value):
    begin(stored.store, 5)
    recorder = stored.store.database.recorder
    recorder.transact(lambda transaction: transaction.set_value("figures_as_of", value))
    assert foldlog("stats --json").document["behind"]["as_of"] is None
    assert foldlog("list --long").status == 0
