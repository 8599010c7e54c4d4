"""The cached values of lists and of the page's home, which let them read only changed
conversations.
"""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import foldlog
from foldlog._reports.figures import counting
from foldlog.eventstore import (
    KeyRing,
    cached_values,
    open_store,
)
from foldlog.eventstore.cached_values import cached_records
from foldlog.eventstore.lists import pages
from foldlog.eventstore.lists.pages import recent_conversations
from foldlog.runtimes import CachedValues
from tests.figures import FiguresOfStore, FigureTables
from tests.foldlog.records import CORPUS
from tests.privacy import erased, redacted
from tests.said import said
from tests.waiting import until
from tests.web_client import asking_store


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    with foldlog.open(url) as histories:
        for name in ("a", "b", "c"):
            histories[name].append(said(f"the words of {name}"))
    return url


@pytest.fixture
def read(monkeypatch):
    """The ids of the conversations whose events are read for a list."""
    names = []
    figures_of = counting.figures_of

    def noted(store, views, row, *more, **options):
        names.append(row.id)
        return figures_of(store, views, row, *more, **options)

    monkeypatch.setattr(counting, "figures_of", noted)
    return names


def listed(store, *, sizes=True):
    return {
        row.id: summary.overview
        for row, summary in FiguresOfStore(store).of(store.iter_conversations(), whole=sizes)
    }


def test_lists_read_only_changed_conversations(url, read):
    with open_store(f"{url}?mode=ro") as store:  # which keeps nothing
        assert listed(store) == listed(store)
    # nor is anything encrypted for a list
    with open_store(url, keys=KeyRing(["11" * 32])) as store:
        assert listed(store) == listed(store)
        assert store.database.recorder.value("key_ids") == ""
    assert read == ["a", "b", "c"] * 4
    read.clear()
    with foldlog.open(url) as histories:
        assert listed(histories.store, sizes=False)["a"].tokens is None
        first = listed(histories.store)
        assert first["a"].tokens is not None
        assert listed(histories.store, sizes=False)["a"].title == "the words of a"
        assert listed(histories.store) == first
        assert read == ["a", "b", "c"]
        histories["b"].append(said("more"))
        histories["d"].append(said("new"))
        assert listed(histories.store)["b"].sent_events == 2
        assert read[3:] == ["b", "d"]
        home = sorted(served(histories.store))
        assert (sorted(served(histories.store)), len(read)) == (home, 5)


def test_sorted_lists_read_each_conversation_once(url, read, foldlog):
    for order, first in (("activity", "c"), ("cost", "a")):
        ran = foldlog("list --reverse --limit 1 --json --sort", order, "--db", url)
        assert ran.rows() == [first]
    assert foldlog("stats --json --db", url).document["conversations"] == 3
    assert read == ["a", "b", "c"]


def served(store):
    """Return the titles that the page lists, once all conversations are counted."""
    with asking_store(store) as client:
        until(lambda: (page := client.json("conversations"))["counted"] == page["total"])
        return [row["title"] for row in client.json("conversations")["conversations"]]


@pytest.mark.parametrize("writer", ["sqlite", "foreign", "postgresql"])
def test_reports_do_not_wait_for_a_writer(writer, tmp_path, request):
    url = f"sqlite:///{tmp_path}/history.db"
    if writer == "postgresql":
        # Otherwise the server ends a transaction that is idle for some seconds.
        no_limit = "options=-c%20idle_in_transaction_session_timeout%3D0"
        url = f"{request.getfixturevalue('postgres_url')()}&{no_limit}"
    begun = threading.Event()
    answered = threading.Event()

    def held(read):
        read("a")
        begun.set()
        return answered.wait(60)

    def hold():
        if writer == "foreign":
            with closing(
                sqlite3.connect(f"{tmp_path}/history.db", isolation_level=None)
            ) as connection:
                return held(lambda _: connection.execute("BEGIN IMMEDIATE"))
        with open_store(url) as another:
            return another.database.recorder.transact(
                lambda transaction: held(transaction.conversation)
            )

    def count_stored(store):
        tables = FigureTables(store.database)
        return len(tables.between("a", "b"))

    with foldlog.open(url) as histories, ThreadPoolExecutor() as threads:
        for name in ("a", "b"):
            histories[name].append(said(f"the words of {name}"))
        holding = threads.submit(hold)
        assert begun.wait(60)
        figures = FiguresOfStore(histories.store)
        rows = list(histories.store.iter_conversations())
        assert [summary.overview.title for _, summary in figures.of(rows)] == [
            "the words of a",
            "the words of b",
        ]
        assert count_stored(histories.store) == 0
        answered.set()
        assert holding.result()
        assert len(list(figures.of(rows))) == count_stored(histories.store) == 2


def test_postponed_values_are_written_in_batches(url, monkeypatch):
    monkeypatch.setattr("foldlog.eventstore.cached_values._TOGETHER", 2)
    written = [0]

    def stored():
        records = cached_records(store, "titles", "a", "c").values()
        return sum(record is not None for _, record in records)

    with open_store(url) as store:
        beside = CachedValues(store, "titles", 1)
        recorder = store.database.recorder
        offer = recorder.offer

        def offered(work, *, at_once):
            is_written = offer(work, at_once=at_once)
            written.append(stored())
            return is_written

        monkeypatch.setattr(recorder, "offer", lambda work, **_: False)
        for row in store.iter_conversations():
            beside.keep(row, row.id)
        monkeypatch.setattr(recorder, "offer", offered)
        beside.flush()
    assert sorted(after - before for before, after in pairwise(written)) == [1, 2]


def test_pages_read_few_attributes(histories, monkeypatch):
    for number in range(30):
        histories[f"c{number:02}"].append(said("hi"), documents={"attributes": {"user": "ann"}})
    reads = []
    attributes = pages._attributes

    def counted_attributes(*arguments):
        reads.append(arguments)
        return attributes(*arguments)

    monkeypatch.setattr(pages, "_attributes", counted_attributes)
    database = histories.store.database
    names = []
    after = None
    monkeypatch.setattr(database.recorder, "offer", lambda *_, **__: False)
    while after or not names:
        page = recent_conversations(database, {"user": "ann"}, limit=4, after=after, age_max_s=0)
        names += [conversation.id for conversation in page.conversations]
        after = page.after
    assert names == [f"c{number:02}" for number in reversed(range(30))]
    assert 30 <= len(reads) <= 2 * 30


def _bytes_of(url):
    """Return the bytes of a store's file after a vacuum."""
    with foldlog.open(url) as histories:
        histories.maintenance.vacuum()
        assert not histories.store.database.bytes_pending
    return Path(url.removeprefix("sqlite:///")).read_bytes()


@pytest.mark.parametrize(
    "remove", [erased, lambda *which: redacted(*which, 0)], ids=["erased", "redacted"]
)
def test_removal_takes_the_figures(remove, url):
    with foldlog.open(url) as histories:
        listed(histories.store)
    assert b"the words of b" in _bytes_of(url)
    with open_store(url) as store:
        remove(store, "b")
        assert sorted(FigureTables(store.database).between("a", "c")) == ["a", "c"]
    data = _bytes_of(url)
    assert b"the words of a" in data
    assert b"the words of b" not in data


@pytest.mark.parametrize("whole", [True, False])
def test_list_shows_an_erasure_meanwhile(whole, url):
    with foldlog.open(url) as histories, open_store(url) as other:
        before = [*histories.store.iter_conversations()]
        erased(other, "b")
        rows = [row for row, _ in FiguresOfStore(histories.store).of(before, whole=whole)]
    assert [(row.id, row.erased_at is None) for row in rows] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_title_redacted_meanwhile_is_not_stored(url, monkeypatch):
    overview_of = counting.overview_of
    with foldlog.open(url) as histories:

        def redacted_meanwhile(store, views, row, *more, **options):
            overview = overview_of(store, views, row, *more, **options)
            histories[row.id].redact(0, reason="asked for")
            return overview

        monkeypatch.setattr(counting, "overview_of", redacted_meanwhile)
        listed(histories.store)
        assert cached_records(histories.store, "figures", "a", "a") == {"a": (2, None)}
        assert FigureTables(histories.store.database).between("a", "a") == {}


def test_import_stores_the_figures(tmp_path, read, foldlog):
    source = tmp_path / "a.jsonl"
    db = f"sqlite:///{tmp_path}/history.db"
    source.write_bytes((CORPUS / "claude-code.jsonl").read_bytes())
    foldlog("import", source, "--db", db)
    shown = foldlog("list --sort activity --db", db, "--json").document["conversations"]
    assert foldlog("stats --db", db, "--json").document["conversations"] == len(shown) == 1
    with open_store(f"{db}?mode=ro") as store:
        assert sorted(served(store)) == sorted(row["title"] for row in shown)
    assert read == []


def test_values_below_an_id(histories):
    store = histories.store
    last = "a/\U0010ffff\U0010ffff"
    names = ["a/", "a/kept", "a/grown", "a/erased", "a/redacted", "a/other code", last]
    for name in ("a", "a0", *names):
        histories[name].append(said(name))
    with CachedValues(store, "test", 1) as ours, CachedValues(store, "test", 2) as others:
        for row in store.iter_conversations():
            beside = others if row.id == "a/other code" else ours
            beside.keep(row, f"about {row.id}")
    histories["a/grown"].append(said("more"))
    histories["a/kept"].fork(id="a/fork")
    histories.erase("a/erased", reason="asked for")
    histories["a/redacted"].redact(0, reason="asked for")
    expected = {name: (f"about {name}", True) for name in ("a/", "a/kept", last)}
    expected |= dict.fromkeys(("a/fork", "a/redacted", "a/other code"), (None, False))
    expected["a/grown"] = ("about a/grown", False)
    values = CachedValues(store, "test", 1).below("a/")
    assert {name: (value, is_present) for name, value, is_present in values} == expected
    with CachedValues(store, "test", 1) as ours:
        ours.keep(store.conversation("a/fork"), "its own")
    assert [*CachedValues(store, "test", 1).below("a/fork")] == [("a/fork", "its own", True)]


def test_values_that_cannot_be_written_stay_in_memory(url):
    with open_store(f"{url}?mode=ro") as store:
        values = CachedValues(store, "test", 1)
        rows = list(store.iter_conversations())
        values.keep(rows[0], "about a")
        values.flush()
        assert values.load(rows) == {"a": "about a"}
        later = [row._replace(version=9) for row in rows]
        assert values.load(later) == {}
        assert values.load(later, of_any_version=True) == {"a": "about a"}


def test_values_of_many_conversations_are_written_before_the_end(histories, monkeypatch):
    monkeypatch.setattr(cached_values, "_TOGETHER", 3)
    store = histories.store
    for name in "abcd":
        histories[name].append(said(name))
    values = CachedValues(store, "test", 1)
    for row in store.iter_conversations():
        values.keep(row, f"about {row.id}")
    others = CachedValues(store, "test", 1).load([*store.iter_conversations()])
    assert others == {name: f"about {name}" for name in "abc"}
    values.flush()
    assert len(CachedValues(store, "test", 1).load([*store.iter_conversations()])) == 4


def test_a_value_is_the_same_before_and_after_it_is_stored(url):
    with foldlog.open(url) as histories:
        store = histories.store
        rows = [*store.conversations()]
        ours = CachedValues(store, "test", 1)
        for row in rows:
            ours.keep(row, {1: row.id, "two": [[3, 4]]})
        held = ours.load(rows)
        assert held == {row.id: {"1": row.id, "two": [[3, 4]]} for row in rows}
        ours.flush()
        assert CachedValues(store, "test", 1).load(rows) == held


def test_values_of_several_conversations(histories):
    """A conversation without a value hides no value of a later one, and each change of a
    conversation that matters hides its value.
    """
    store = histories.store
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        histories[name].append([said(name), said("again")])
    values = CachedValues(store, "test", 1)
    rows = {row.id: row for row in store.iter_conversations()}
    for name in ("b", "c", "e"):
        values.keep(rows[name], {1: f"of {name}"})
    everything = {name: {"1": f"of {name}"} for name in ("b", "c", "e")}
    assert values.load([*rows.values()]) == everything
    assert values.load([*rows.values()], dict[int, str]) == {
        name: {1: f"of {name}"} for name in ("b", "c", "e")
    }
    values.flush()
    assert values._held == {}
    assert CachedValues(store, "test", 1).load([*rows.values()]) == everything
    histories["b"].redact(0, reason="asked for")
    histories["c"].append(said("more"))
    held = CachedValues(store, "test", 1)
    now = [*store.iter_conversations()]
    unwritten = CachedValues(store, "test", 1)
    unwritten.keep(rows["b"], "old")
    unwritten.keep(rows["c"], "old")
    assert unwritten.load(now) == {"e": {"1": "of e"}}
    assert unwritten.load(now, of_any_version=True) == {"c": "old", "e": {"1": "of e"}}
    assert held.load(now) == {"e": {"1": "of e"}}
    for text in ("first", "second"):
        held.keep(store.conversation("e"), text)
        held.flush()
        histories["e"].append(said(text))
    with store.database.recorder.read() as reader:
        key = reader.conversation("e").key
        stored = [(record.version, record.body) for record in reader.records(key, "test", 0, 9)]
    assert stored == [(3, b'"second"')]
