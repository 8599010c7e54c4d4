"""The figures of a store in its tables: sorted, chosen and summed in SQL, on each database, plain
and encrypted.
"""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.json import encode

import foldlog
from foldlog import Action, Message, Observation
from foldlog._reports.figures import counting
from foldlog._reports.figures.keeping_up import FigureCounter
from foldlog._reports.figures.search_line import chosen_by
from foldlog.errors import InvalidArgument, KeyUnavailable
from foldlog.eventstore import KeyRing, Store, open_store
from foldlog.projections import Views
from tests.between import before_next_call
from tests.conformance.conftest import noted
from tests.figures import (
    SORTS,
    FiguresOfStore,
    FigureTables,
    Prices,
    Where,
    collect_stats,
    document_of,
)
from tests.foldlog.records import GOLDEN, write_lines
from tests.said import ids, said
from tests.waiting import in_thread

KEYS = KeyRing(["11" * 32])
START = datetime(2026, 3, 1, 10, tzinfo=UTC)
PRICED = {"model": "known", "usage": {"prompt_tokens": 1_000, "completion_tokens": 10}}


def run_of(number):
    """A run that ends with an error, an answer, a call without a result or a request, by turns."""
    at = [START + timedelta(days=number, minutes=minute) for minute in range(9)]
    meta = {**PRICED, "usage": {"prompt_tokens": 1_000 * (number + 1), "completion_tokens": 10}}
    call = Action(
        source="agent", tool="bash", call_id="a", arguments={}, timestamp=at[1], meta=meta
    )
    failed = Observation(
        content=f"no file {number}", call_id="a", is_error=True, timestamp=at[2 + number % 4]
    )
    ends = [
        [call, failed],
        [
            call,
            failed,
            Message(
                source="agent", content="done", timestamp=at[7], meta={"model": "m", "cost": 0.5}
            ),
        ],
        [Action(source="agent", tool="edit", call_id="b", arguments={}, timestamp=at[1])],
        [],
    ]
    return [said(f"request {number}", timestamp=at[0]), *ends[number % 4]]


def filled(store):
    """Fill a store with eight runs, one of which has a companion. Return the store."""
    histories = foldlog.Histories(store)
    for number in range(8):
        histories[f"run-{number}"].append(run_of(number))
    histories["run-1"].set_attributes(team="blue")
    histories["run-1/+state"].append(said("kept by a runtime"))
    return store


@pytest.fixture(
    params=["memory", "sqlite", "sqlite-encrypted", "postgresql", "postgresql-encrypted"]
)
def store(request, url_on):
    database, _, sealed = request.param.partition("-")
    with open_store(url_on(database), keys=KEYS if sealed else None) as opened:
        yield filled(opened)


def prices(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text('{"known": {"input_cost_per_token": 0.001, "output_cost_per_token": 0.1}}')
    return Prices(path)


LISTED = Where(companions=False)
BY_ID = {"sort": "id", "reverse": False}
RUNS = json.loads((GOLDEN / "runs.json").read_text())


def check_runs(store, tmp_path):
    """Compare the pages, figures and sums of the runs with ``tests/golden/runs.json``."""
    figures = FiguresOfStore(store, prices=prices(tmp_path))
    figures.refresh()
    for case in RUNS["pages"]:
        where = Where(**{"companions": False, **case.get("where", {})})
        page = figures.page(where, **case.get("how", BY_ID))
        assert "".join(row.id.removeprefix("run-") for row, _ in page.rows) == case["ids"], case
    assert {figures.page(LISTED, sort=sort).total for sort in SORTS} == {8}
    with pytest.raises(InvalidArgument, match="use one of id, recorded"):
        figures.page(sort="colour")
    day = START + timedelta(days=2)
    ((row, _),) = figures.page(Where(since=day, until=day + timedelta(days=1))).rows
    assert row.id == "run-2"
    assert figures.page().total == 9, "the companion of a runtime is listed too"

    first, *_ = figures.page(LISTED, **BY_ID).rows
    document = json.loads(encode(document_of(*first, prices(tmp_path))))
    assert {name: document[name] for name in RUNS["first run"]} == RUNS["first run"]
    assert json.loads(encode(figures.totals(LISTED).document())) == RUNS["sums"]
    facets = {
        f"{facet.what}: {facet.name}": facet.conversations for facet in figures.facets(LISTED)
    }
    assert facets == RUNS["conversations that have it"]
    assert {row.day: [*row[1:]] for row in figures.days(LISTED)} == RUNS["days"]


def test_conversations_are_sorted_chosen_and_summed(store, tmp_path):
    check_runs(store, tmp_path)


def test_a_facet_of_an_attribute_is_written_as_users_write_it(store):
    histories = foldlog.Histories(store)
    histories["run-2"].set_attributes(is_new=True, rank=3, team="True")
    histories["run-3"].set_attributes(is_new=False)
    figures = FiguresOfStore(store)
    figures.refresh()
    names = {facet.name for facet in figures.facets(LISTED) if facet.what == "attribute"}
    assert names == {"is_new=true", "is_new=false", "rank=3", "team=True", "team=blue"}
    for line, name in (("attribute:is_new=true", "run-2"), ("attribute:is_new=false", "run-3")):
        assert figures.ids(chosen_by(line, set, set)) == {name}
    assert figures.ids(LISTED._replace(attributes={"is_new": True})) == {"run-2"}


@pytest.mark.parametrize(
    "line, key",
    [
        ("tool:Bash tool:Edit", "tool"),
        ('program:codex has:error program:"claude code"', "program"),
        ("since:2026-01-01 since:2026-02-01", "since"),
        ("attribute:team=blue attribute:team=red", "attribute:team"),
    ],
)
def test_search_line_refuses_two_values_of_one_filter(line, key):
    with pytest.raises(InvalidArgument, match=f"^{key} has two values, .* and .*; leave one out$"):
        chosen_by(line, set, set)


def test_search_line_may_repeat_a_filter():
    line = "tool:Bash attribute:team=blue attribute:rank=3 has:error"
    assert chosen_by(f"{line} {line}", set, set) == chosen_by(line, set, set)


def test_totals_of_a_store_follow_each_change(store):
    """A total of the whole store equals the total of all its conversations, chosen one by one."""
    figures = FiguresOfStore(store)
    histories = foldlog.Histories(store)

    def check_totals():
        figures.refresh()
        every = [*histories]
        for where in (Where(), LISTED, LISTED._replace(sub_agents=False)):
            chosen = where._replace(only=every)
            assert figures.totals(where).document() == figures.totals(chosen).document()
            for read in (figures.facets, figures.days, figures.reasons):
                assert read(where) == read(chosen)

    check_totals()
    histories.create("child", {"parent": "run-1"})
    histories["child"].append(run_of(1))
    histories.create("orphan", {"parent": "gone"})
    histories["run-3"].append(run_of(2))
    check_totals()
    assert figures.count(LISTED._replace(sub_agents=False)) == 9
    histories.erase("run-1", reason="x", complete=False)
    check_totals()
    assert figures.count(LISTED._replace(sub_agents=False)) == 9


def test_read_only_store_shows_the_same(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    filled(open_store(url)).close()
    with open_store(f"{url}?mode=ro") as read_only:
        check_runs(read_only, tmp_path)
        assert (
            read_only.database.recorder.query(lambda reader: reader.ask_all("figures_to_count", 1))
            != []
        )


@pytest.mark.parametrize("begins_again", [False, True])
def test_reader_that_cannot_write_forgets_an_erased_conversation(tmp_path, begins_again):
    url = f"sqlite:///{tmp_path}/store.db"
    with foldlog.open(url) as writer, open_store(f"{url}?mode=ro") as reader:
        for user in ("ann", "bob"):
            writer.create(f"of-{user}", {"user": user})
        figures = FiguresOfStore(reader)
        figures.refresh()
        assert figures.ids(Where(attributes={"user": "bob"})) == {"of-bob"}
        writer.erase("of-bob", reason="asked to")
        if begins_again:
            writer.create("of-bob", {"user": "carl"}, replace_erased=True)
        figures.refresh()
        assert figures.ids(Where(attributes={"user": "bob"})) == set()
        assert figures.totals().conversations == 1 + begins_again


def test_texts_are_encrypted_and_numbers_plain(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    with open_store(url, keys=KEYS) as sealed:
        FiguresOfStore(filled(sealed)).refresh()
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert [
        word for word in (b"request 1", b"no file", b"bash", b"known", b"blue") if word in stored
    ] == []
    with open_store(url) as without:
        figures = FiguresOfStore(without)
        figures.refresh()
        page = figures.page(LISTED, sort="errors", limit=1)
        ((_, summary),) = page.rows
        assert (
            page.total,
            summary.columns.errors,
            summary.overview.title,
            summary.overview.needs_key,
        ) == (
            8,
            1,
            None,
            True,
        )
        with pytest.raises(KeyUnavailable):
            collect_stats(without, None, views=Views(without))


def key_of(store, name):
    found = store.database.recorder.query(
        lambda reader: store.database.find(reader, name, as_stored=True)
    )
    return found.key


def forget_figures(store, name):
    key = key_of(store, name)
    store.database.recorder.transact(lambda transaction: transaction.forget_figures(key))


def reply_line(session, number):
    usage = {"input_tokens": 1_000, "output_tokens": 10}
    message = {
        "role": "assistant",
        "id": f"msg_{number}",
        "model": "m",
        "content": "yes",
        "usage": usage,
    }
    at = START + timedelta(minutes=number)
    line = {
        "type": "assistant",
        "uuid": f"{session}-{number}",
        "sessionId": session,
        "timestamp": at.isoformat(),
    }
    return {**line, "requestId": f"req_{number}", "message": message}


def write_logs(logs, replies):
    logs.mkdir(exist_ok=True)
    for name, numbers in replies.items():
        write_lines(logs / f"{name}.jsonl", (reply_line(name, number) for number in numbers))


def replies_stored(store):
    """Return how many replies are stored by themselves, by the ids of the conversations."""
    counts = {}
    for row in store.iter_conversations():
        key = key_of(store, row.id)
        of_key = store.database.recorder.query(
            lambda reader, key=key: reader.ask("figure_replies_of", key)
        )
        if of_key:
            counts[row.id] = len(of_key)
    return counts


def calls_of(figures):
    figures.refresh()
    return sum(model.calls for model in figures.totals().models.values())


def test_replies_are_compared_once(store, tmp_path, monkeypatch):
    """Afterwards the hashes of conversations that changed are read, and no others."""
    read = []
    hashes = FigureTables.hashes

    def noted(self, keys):
        read.append(len(keys))
        return hashes(self, keys)

    monkeypatch.setattr(FigureTables, "hashes", noted)
    logs = tmp_path / "logs"
    write_logs(logs, {"first": [1, 2, 3], "second": [2, 3, 4], "third": [5]})
    histories = foldlog.Histories(store)
    histories.import_(logs)
    figures = FiguresOfStore(store)
    before = calls_of(figures)
    assert read == [7]
    histories["run-3"].append(said("more"))  # It has no replies.
    assert (calls_of(FiguresOfStore(store)), read) == (before, [7]), (
        "another process has nothing to compare"
    )
    write_logs(logs, {"third": [5, 6]})
    histories.import_(logs)
    assert (calls_of(figures), read) == (before + 1, [7, 1])
    write_logs(logs, {"fourth": [1, 6, 7]})
    histories.import_(logs)
    assert (calls_of(figures), read) == (before + 2, [7, 1, 1])
    assert replies_stored(store) == {"first": 3, "second": 2, "third": 1, "fourth": 2}


def test_lost_figures_are_made_again(store, tmp_path):
    logs = tmp_path / "logs"
    write_logs(logs, {"first": [1, 2], "second": [1, 2]})
    foldlog.Histories(store).import_(logs)
    names = ids(store.iter_conversations())
    FiguresOfStore(store).refresh()
    before = FiguresOfStore(store).totals().document()
    for lost in (["first"], names):
        for name in lost:
            forget_figures(store, name)
        figures = FiguresOfStore(store)
        figures.refresh()
        assert figures.totals().document() == before
        assert replies_stored(store) == {"first": 2, "second": 2}


@pytest.mark.parametrize("place", [(counting, "overview_of"), (FigureCounter, "_write")])
def test_detached_fork_has_its_figures(place, histories, monkeypatch):
    histories["c"].append([said("one"), said("two")])
    histories["c"].fork(2, "fork")
    histories["fork"].append([said("three")])
    before_next_call(
        monkeypatch,
        *place,
        lambda: histories.erase("c", reason="asked to", detach_forks=True),
    )
    stored = FiguresOfStore(histories.store)
    stored.refresh()
    stored.refresh()
    [(_, figures)] = [*stored.of([histories.store.conversation("fork")])]
    assert figures.overview.problem is None
    assert sum(stored.totals().events.values()) == 3
    assert stored.totals().findings == []


def answer(text):
    meta = {"model": "m", "usage": {"prompt_tokens": 100, "completion_tokens": 10}, "cost": 0.5}
    return Message(source="agent", content=text, meta=meta)


def calls_and_errors(store):
    figures = FiguresOfStore(store)
    figures.refresh()
    totals = figures.totals()
    calls = sum(model.calls for model in totals.models.values())
    return calls, totals.tools["bash"].calls, totals.errors


def begin_with_forks(histories):
    call = Action(source="agent", tool="bash", call_id="a", arguments={}, meta=answer("").meta)
    failed = Observation(content="no file", call_id="a", is_error=True)
    histories["c"].append([said("one"), answer("two"), call, failed, answer("three")])
    for name in ("first", "second"):
        histories["c"].fork(5, name)
        histories[name].append([said("and?"), answer(f"an answer of its own: {name}")])


@pytest.mark.parametrize("counted_before", [True, False])
def test_a_reply_without_an_id_counts_once_in_detached_forks(counted_before, url_on):
    with open_store(url_on("sqlite")) as store:
        histories = foldlog.Histories(store)
        begin_with_forks(histories)
        if counted_before:
            assert calls_and_errors(store) == (5, 1, 1)
        histories.erase("c", reason="asked to", detach_forks=True)
        assert calls_and_errors(store) == (5, 1, 1)
        histories["first"].append(answer("two"))
        assert calls_and_errors(store) == (6, 1, 1)


def test_a_reply_without_an_id_counts_once_in_forks_that_were_copied_first(url_on, tmp_path):
    with open_store(url_on("sqlite")) as store, foldlog.open(tmp_path / "copy.db") as copy:
        begin_with_forks(foldlog.Histories(store))
        for name in ("second", "first", "c"):
            copy.maintenance.copy_from(store, name)
        assert copy.store.conversation("second").parent is None
        assert calls_and_errors(copy.store) == (5, 1, 1)


def test_equal_replies_at_the_same_moment_count_each(url_on):
    with open_store(url_on("sqlite")) as store:
        now = store.database.now()
        store.database.now = lambda: now
        histories = foldlog.Histories(store)
        for name in ("one", "two"):
            histories[name].append([said("hello"), answer("yes"), answer("no")])
        assert calls_of(FiguresOfStore(store)) == 4


def test_a_reader_counts_a_few_and_the_newest_at_once(monkeypatch):
    with open_store("memory:") as store:
        for number in range(30):
            store.append(f"c{number}", [said(f"text {number}")], expected_version=0)
        figures = FiguresOfStore(store)
        looked_at = noted(monkeypatch, Store, "conversation")
        assert figures.refresh(2) == 28
        assert len(looked_at) == 2, "a reader opens only the conversations that it counts"
        assert figures.missing == 28
        assert {row.id for row, _ in figures.page().rows} == {"c29", "c28"}
        store.append("new", [said("just written")], expected_version=0)
        rest = figures.refresh(2)
        assert "new" in {row.id for row, _ in figures.page().rows}
        while rest:
            rest = figures.refresh(2)
        figures.refresh()
        assert figures.count() == 31


def test_a_reader_does_not_wait_for_another_thread_that_counts():
    with open_store("memory:") as store:
        store.append("c", [said("text")], expected_version=0)
        figures = FiguresOfStore(store)
        began = threading.Event()
        may_end = threading.Event()

        def count(_):
            began.set()
            assert may_end.wait(60)

        slow = FiguresOfStore(store, on_events=count)
        figures._counter = slow._counter
        with in_thread(slow.refresh, may_end.set):
            assert began.wait(60)
            assert figures.refresh(1) == 1
        assert figures.refresh(1) == 0
