"""Redaction on every recorder: the content of one event is erased, the rest of the event stays, and
readers learn about it.
"""

from functools import partial

import pytest
from msgspec.structs import replace

from foldlog import Histories
from foldlog._privacy import redacting
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CannotRedact,
    CondensationAction,
    DocumentChanges,
    Documents,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
    Origin,
    ReadTransaction,
    Redaction,
    Store,
    open_store,
)
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.redact import Quote, redact
from foldlog.eventstore.recorders.types import as_rows
from foldlog.projections import Views
from tests.between import call_before
from tests.conformance.conftest import ENCRYPTS
from tests.privacy import erased
from tests.said import said, say, texts
from tests.sound import assert_sound

TURN = [
    said("SECRET asked"),
    Action(
        tool="look",
        arguments={"for": "SECRET sought"},
        call_id="call-1",
        thought="SECRET thought",
        cause=0,
    ),
    Observation(
        tool="look", content="SECRET found", call_id="call-1", cause=1, extras={"x": "SECRET"}
    ),
    Message(source="agent", content="harmless"),
]
TURN_OF_A_SOURCE = [
    replace(event, origin=Origin(format="x", id=f"SECRET {n}")) for n, event in enumerate(TURN)
]


@pytest.fixture
def store(settings, open_recorder):
    store = Store(open_recorder(), settings)
    store.register(Views(store))
    store.append("c", TURN, expected_version=0, idempotency_key="SECRET key")
    return store


def redacted(store, event_id, conversation="c", *, with_summaries=False):
    options = {"reason": "asked to", "by": "me", "with_summaries": with_summaries}
    return Histories(store)[conversation].redact(event_id, **options)


def stored(store):
    """Everything that the tables hold of all conversations, as they hold it and as the key shows
    it.
    """

    def read(reader):
        rows = []
        for row in reader.conversations("", 100):
            opened = ReadTransaction(reader, row, store.database)
            rows += opened.rows(row.begins, row.version, 10_000)
            rows += as_rows(reader.rows(row.key, 0, 10_000, 10_000))
            rows += reader.recalled(row.key, "", 10_000)
            rows += reader.newest_records(row.key, 100)
        return rows

    return repr(store.database.recorder.query(read)).encode()


append = partial(Store.append, expected_version=ANY_VERSION)


def are_redacted(store, conversation, count=4):
    return [event.redacted is not None for event in store.events(conversation, 0, count)]


def test_content_goes_and_the_rest_stays(store):
    before = list(store.events("c"))
    for event_id in (0, 1, 2):
        receipt = redacted(store, event_id)
        assert (receipt.event_ids, receipt.reason, receipt.by) == ((event_id,), "asked to", "me")
    assert b"SECRET" not in stored(store)
    after = list(store.events("c"))
    for was, now in zip(before, after, strict=False):
        for field in ("id", "timestamp", "source", "cause", "shown", "tool", "call_id"):
            assert getattr(was, field, None) == getattr(now, field, None)
    assert [type(event) for event in after] == [*map(type, before), Redaction, Redaction, Redaction]
    assert texts(store, "c")[:4] == ["[redacted]", None, "[redacted]", "harmless"]
    assert_sound(store)  # the heads stayed as they were


def test_a_repeated_redaction_returns_the_first_receipt(store):
    first = redacted(store, 1)
    again = redact(store, "c", 1, reason="another", by="another")
    assert (again.hashes, again.reason, again.at) == (first.hashes, first.reason, first.at)
    assert again.position is None
    assert store.version("c") == 5


def test_a_retried_append_is_recognized(store):
    redacted(store, 0)
    redacted(store, 2)
    again = store.append("c", TURN, expected_version=0, idempotency_key="SECRET key")
    assert [entry.event.id for entry in again] == [0, 1, 2, 3]
    assert store.version("c") == 6
    for other in (
        [replace(TURN[0], content="SECRET askee!"), *TURN[1:]],  # of another size
        [*TURN[:3], Message(source="agent", content="harmful!")],  # that one is not redacted
        TURN[:3],
        [replace(TURN[0], source="environment"), *TURN[1:]],
    ):
        with pytest.raises(IdempotencyConflict):
            store.append("c", other, expected_version=0, idempotency_key="SECRET key")


def test_source_ids_are_known_without_their_text(store):
    batch = TURN_OF_A_SOURCE
    store.append("dedupe", batch, expected_version=0, dedupe="origin")
    store.append("later", batch, expected_version=0)  # this one has no index yet
    for name in ("dedupe", "later"):
        redacted(store, 0, name)
        assert append(store, name, batch, dedupe="origin") == ()
        assert store.version(name) == 5
        assert next(iter(store.events(name))).origin == Origin(format="x")


def test_forks_know_redacted_source_ids(store, open_recorder):
    batch = TURN_OF_A_SOURCE
    store.append("p", batch, expected_version=0, dedupe="origin")
    for fork in ("indexed", "early"):
        store.fork("p", 4, fork)
    append(store, "indexed", batch[:1], dedupe="origin")
    redacted(store, 0, "p")
    for parent, fork in (("p", "late"), ("early", "of a fork"), ("late", "of a late one")):
        store.fork(parent, 4, fork)
    there = Store(open_recorder(), store.database.settings)
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    erased(store, "p", detach_forks=True)
    for each in (store, there):
        for fork in ("indexed", "early", "late", "of a fork", "of a late one"):
            assert append(each, fork, batch, dedupe="origin") == (), fork
            with pytest.raises(HistoryDiverged):
                each.ingest(fork, [*TURN, batch[0]])
        assert b"SECRET 0" not in stored(each)


def test_a_copy_takes_over_later_redactions(store, open_recorder):
    store.fork("c", 3, "f")
    there = Store(open_recorder(), store.database.settings)
    there.register(Views(there))
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    there.fork("c", 3, "own fork")
    say(there, "own fork", "harmless")
    late_forks = [f"forked after {event_id}" for event_id in (0, 1, 2)]
    for event_id, fork in enumerate(late_forks):
        redacted(store, event_id)
        store.fork("c", 4, fork)
    assert {comparison.behind for comparison in compare_stores(store, there)} == {True}
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    assert list(compare_stores(store, there)) == []
    assert b"SECRET" not in stored(there)
    for name in ("c", "f", "own fork", *late_forks):
        assert are_redacted(there, name, 3) == [True] * 3
    assert_sound(there)
    assert {moved.added for moved in copy_store(store, there)} == {0}


def test_a_copy_has_the_redaction_that_came_meanwhile(store, open_recorder):
    there = Store(open_recorder(), store.database.settings)

    def redact_now():
        redact(store, "c", 3, reason="asked to", by="me", complete=False)

    between = call_before(store.database.recorder, 2, redact_now, "query")  # before rows are read
    read = Store(between, store.database.settings)
    assert [moved.problem for moved in copy_store(read, there, "c")] == [None]
    assert are_redacted(there, "c") == [False] * 3 + [True]
    assert_sound(there)
    assert b"harmless" not in stored(there)


def condensation(summary, *forgotten):
    return CondensationAction(forgotten_event_ids=forgotten, summary=summary, summary_offset=1)


def test_summaries_are_named_and_redacted_when_asked(store):
    for event in (
        condensation("SECRET sum", 1, 2),
        said("x"),
        condensation("SECRET of sums", -6, 3),
        condensation("of x", 5),
    ):
        append(store, "c", event)
    assert redacted(store, 0).quotes == ()
    both = (Quote("c", 4, redacted=False), Quote("c", 6, redacted=False))
    assert redacted(store, 1).quotes == both
    receipt = redacted(store, 2, with_summaries=True)
    assert receipt.event_ids == (2, 4, 6)
    assert receipt.quotes == (Quote("c", 4, redacted=True), Quote("c", 6, redacted=True))
    assert redacted(store, 2).quotes == receipt.quotes, "they are redacted already"
    assert redacted(store, 3).quotes == redacted(store, 4).quotes == receipt.quotes[1:]
    assert b"SECRET" not in stored(store)
    shown = [event.content for event in Views(store).current("c")]
    assert shown == ["[redacted]", "of x", "[redacted]"]
    shown = [event.content for event in Views(store).at("c", 7)]
    assert shown == ["[redacted]", "[redacted]", "x"]
    assert_sound(store)


def test_summaries_that_forget_by_ids_of_a_source_are_redacted_too(store):
    def of_source(number):
        return Origin(format="openhands-v0", id=number)

    def forgets(number, summary, *forgotten):
        event = condensation(summary, *forgotten)
        return replace(event, origin=of_source(number))

    events = [
        said("SECRET", origin=of_source(10)),
        said("x", origin=of_source(11)),
        forgets(20, "SECRET sum", 10),
        forgets(21, "of x", 11),
        forgets(30, "SECRET of sums", 20),
        forgets(31, "of the summary of x", 21),
    ]
    store.ingest("v0", events)
    both = (Quote("v0", 2, redacted=False), Quote("v0", 4, redacted=False))
    assert redacted(store, 0, "v0").quotes == both
    redacted(store, 0, "v0", with_summaries=True)
    left = [getattr(event, "summary", None) for event in store.events("v0", 2, 6)]
    assert left == ["[redacted]", "of x", "[redacted]", "of the summary of x"]


def test_a_late_summary_is_redacted_too(store, monkeypatch):
    store.fork("c", 4, "f")
    quote = condensation("SECRET late", 0)
    copy = said("it said SECRET asked")
    late = iter([[("c", quote), ("c/+beside", copy)], [("f", quote)]])
    choose = redacting.with_related

    def choose_then_append(*arguments, **how):
        chosen = choose(*arguments, **how)
        for name, event in next(late, []):
            append(store, name, event)
        return chosen

    monkeypatch.setattr(redacting, "with_related", choose_then_append)
    receipt = redacted(store, 0, with_summaries=True)
    quotes = [(quote.conversation, quote.event_id) for quote in receipt.quotes if quote.redacted]
    assert sorted(quotes) == [("c", 4), ("c/+beside", 0), ("f", 4)]
    assert (receipt.event_ids, receipt.position is None) == ((0, 4), False)
    assert b"SECRET late" not in stored(store)
    assert b"SECRET asked" not in stored(store)
    assert_sound(store)


def test_a_summary_id_means_its_condensation(store):
    store.append("c", condensation("SECRET sum", 1, 2), expected_version=4)
    for _ in range(2):
        assert redacted(store, -6).event_ids == (4,)
    assert b"SECRET sum" not in stored(store)
    for wrong in (-1, -5, -60):
        with pytest.raises(InvalidArgument, match=f"'c' has no event {wrong}[:;]"):
            redacted(store, wrong)
    assert_sound(store)


def test_forks_and_their_summaries(store):
    views = Views(store)
    store.register(views)
    store.fork("c", 3, "f")
    store.fork("f", 2, "g")
    store.fork("c", 1, "h")
    store.append("f", condensation("SECRET sum", 1, 2), expected_version=3)
    say(store, "g", "on g")
    lengths = {name: len(views.current(name)) for name in "cfgh"}
    receipt = redacted(store, 1, with_summaries=True)
    assert receipt.forks == ("f", "g")
    assert receipt.quotes == (Quote("f", 3, redacted=True),)
    assert redacted(store, 1).quotes == receipt.quotes, "it is redacted already"
    assert {name: len(views.current(name)) for name in "cfgh"} == lengths
    assert views.current("g").events[1].redacted is not None
    assert views.current("f").events[1].content == "[redacted]"
    with pytest.raises(InvalidArgument, match="'c', from which 'g' was forked; redact the event"):
        redacted(store, 1, "g")
    redacted(store, 0)
    redacted(store, 2)
    assert b"SECRET" not in stored(store)
    assert_sound(store, "g")
    erased(store, "c", detach_forks=True)
    assert views.current("g").events[1].redacted is not None
    assert_sound(store)


def test_only_a_redaction_writes_receipts(store):
    receipt = redacted(store, 0)
    for event in (
        next(iter(store.events("c"))),
        Redaction(event_ids=(1,), hashes=("",), by="", reason=""),
    ):
        for write in (store.ingest, partial(store.append, expected_version=ANY_VERSION)):
            with pytest.raises(InvalidEvent, match="which only a redaction may write"):
                write("other", [replace(event, id=-1)])
    with pytest.raises(CannotRedact, match="it is a receipt"):
        redacted(store, 4)
    with pytest.raises(InvalidArgument, match="has no event 5; it has events 0 to 4"):
        redacted(store, 5)
    assert receipt.hashes == (next(iter(store.events("c"))).redacted.hash,)


def imported(place, text, **fields):
    return said(text, origin=Origin(format="f", id=f"u{place}"), **fields)


def test_an_import_brings_no_redacted_content_back(store):
    """An import with a redacted event is refused as a whole, also where the history has grown."""
    history = [imported(n, f"SECRET {n}") for n in range(3)]
    store.ingest("i", history)
    redacted(store, 1, "i")
    for source in (
        history,
        [*history, imported(3, "new")],
        [*history, imported(3, "new"), history[1]],
    ):
        with pytest.raises(
            HistoryDiverged, match="has the content of event 1, which was redacted in this store"
        ) as diverged:
            store.ingest("i", source)
        assert (diverged.value.event_id, diverged.value.version) == (1, 4)
    with pytest.raises(HistoryDiverged, match="differs from event 0 on"):
        store.ingest("i", [imported(0, "another"), *history[1:]])
    assert store.ingest("i", history[:1]) == (0, 4), "it ends before the redacted event"
    assert b"SECRET 0" in stored(store)
    assert b"SECRET 1" not in stored(store)


def test_later_differences_of_a_document_are_redacted_first(store):
    documents = Documents(store)

    def change(values):
        documents.append("c", (), values)

    change({"notes": {"said": "SECRET " * 100, "n": 1}, "attributes": {"title": "SECRET"}})
    change({"notes": {"said": "SECRET " * 100, "n": 2}})
    first, second = (event.id for event in store.events("c") if isinstance(event, DocumentChanges))
    with pytest.raises(
        CannotRedact, match=f"event {second} stores document 'notes' as a difference from it"
    ):
        redacted(store, first)
    redacted(store, second)
    redacted(store, first)
    assert documents.all("c") == {"attributes": {}, "notes": "[redacted]"}
    change({"notes": "new"})
    assert documents.get("c", "notes") == "new"
    for event_id in (0, 1, 2):
        redacted(store, event_id)
    assert b"SECRET" not in stored(store)
    assert_sound(store)


def test_shared_attributes_are_redacted_under_new_keys(store):
    documents = Documents(store)
    documents.append("c", (), {"attributes": {"title": "SECRET"}}, expected_version=ANY_VERSION)
    shared = store.version("c") - 1
    store.fork("c", shared + 1, "f")
    store.fork("f", shared + 1, "g")
    keyed = Store(store.database.recorder, ENCRYPTS)  # its first write encrypts
    assert redacted(keyed, shared).forks == ("f", "g")
    assert [Documents(keyed).get(name, "attributes") for name in "cfg"] == [{}, {}, {}]
    assert_sound(keyed)


@pytest.mark.parametrize("copied", [0, 2])
def test_copy_brings_back_no_event_that_was_redacted_in_a_fork(store, copied):
    with open_store("memory:") as source:
        say(source, "d", "0", "1")
        if copied:
            list(copy_store(source, store))
        say(source, "d", "2", "3")
        source.fork("d", 4, "f")
        say(source, "f", "own")
        assert [moved.problem for moved in copy_store(source, store, "f")] == [None]
        redacted(store, 3, "f")
        [problem] = [moved.problem for moved in copy_store(source, store, "d")]
        assert "the target redacted event 3 in 'f', and a copy would bring the event" in problem
        assert store.version("d") == copied


@pytest.mark.parametrize("reason", ["", " \n"])
def test_redaction_without_a_reason_is_refused(store, reason):
    with pytest.raises(InvalidArgument, match="reason is empty; give a reason for the receipt"):
        redact(store, "c", 0, reason=reason, by="me")
    assert not any(are_redacted(store, "c"))
