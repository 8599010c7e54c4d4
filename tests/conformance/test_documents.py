"""Documents beside a conversation, on every recorder: newest values, any version, in one
transaction with events.
"""

import random

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    DELETED,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    DocumentChanges,
    Documents,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidEvent,
    Message,
    Store,
    VersionConflict,
)
from foldlog.eventstore.documents.values import CHAIN_MAX, newest_value
from foldlog.eventstore.store import bind
from foldlog.projections import Views
from tests.at_once import at_once
from tests.between import before_next_call
from tests.conformance.conftest import noted
from tests.golden.rows import rows
from tests.privacy import erased, redacted
from tests.said import ids, said
from tests.sound import assert_sound


@pytest.fixture
def documents(store):
    return Documents(store)


def put(documents, **values):
    return documents.append("c1", (), values)


def test_documents_are_read_at_any_version(store, documents):
    first = {"turn": 1, "log": ["a"]}
    second = {"turn": 2, "log": ["a", "c"]}
    recorded = documents.append("c1", [said("a"), said("b")], {"state": first, "title": "first"})
    assert [type(entry.event) for entry in recorded] == [Message, Message, DocumentChanges]
    documents.append("c1", said("c"), {"state": second})
    put(documents, title=DELETED, more=None)
    assert documents.all("c1") == {"state": second, "more": None}
    assert documents.get("c1", "title", "gone") == "gone"
    assert documents.get("c1", "more", "there") is None
    assert documents.all("c1", version=5) == {"state": second, "title": "first"}
    assert documents.all("c1", version=4) == {"state": first, "title": "first"}
    assert documents.all("c1", version=2) == {}
    assert [event.content for event in Views(store).current("c1")] == ["a", "b", "c"]
    with pytest.raises(ConversationNotFound):
        documents.get("none", "state")
    assert_sound(store)
    erased(store, "c1")
    with pytest.raises(ConversationErased):
        documents.all("c1")
    with pytest.raises(ConversationErased):
        put(documents, state=1)


def test_an_equal_value_appends_no_event(store, documents):
    put(documents, n=1, gone=DELETED)
    assert put(documents, n=1) == ()
    assert store.version("c1") == 1
    assert len(documents.append("c1", said("a"), {"n": 1})) == 1
    assert len(put(documents, n=1.0)) == 1
    assert len(put(documents, n=True)) == 1
    assert documents.get("c1", "n") is True
    # The second time, the store has only the value of the other document in memory.
    for _ in range(2):
        assert put(documents, n=True) == ()
        put(documents, other=1)
    with pytest.raises(VersionConflict):
        documents.append("c1", (), {"n": True}, expected_version=1)


def test_a_document_that_changes_nothing_begins_no_conversation(store, documents):
    for expected in (0, ANY_VERSION):
        assert documents.append("new", (), {"n": DELETED}, expected_version=expected) == ()
    with pytest.raises(VersionConflict, match="is at version 0, but the append expected version 1"):
        documents.append("new", (), {"n": DELETED}, expected_version=1)
    assert store.conversations() == ()


def test_a_small_change_is_a_small_event(store, documents):
    state = {"usage": [{"tokens": n} for n in range(500)], "name": "agent"}
    put(documents, state=state)
    for turn in range(CHAIN_MAX + 3):
        state["usage"].append({"tokens": turn})
        (recorded,) = put(documents, state=state)
        whole = "value" in recorded.event.changed["state"]
        assert whole == (turn == CHAIN_MAX)
        assert documents.get("c1", "state") == Documents(store).get("c1", "state") == state
    assert Documents(store).get("c1", "state", version=11)["usage"][-1] == {"tokens": 9}


def test_stored_values_are_not_shared_with_callers(documents):
    state = {"list": [1]}
    put(documents, state=state)
    state["list"].append(2)
    read = documents.get("c1", "state")
    assert read == {"list": [1]}
    read["list"].append(3)
    put(documents, other=1)
    assert documents.get("c1", "state") == {"list": [1]}


HALVES = "\ud83d" + "\ude00"


@pytest.mark.parametrize(
    "value, read",
    [({"a": HALVES}, {"a": "😀"}), ({"a": "\ud800", "n": 10**30}, {"a": "\ud800", "n": 10**30})],
    ids=["two halves of a pair", "a lone half and a long number"],
)
@pytest.mark.parametrize("name", ["state", ATTRIBUTES])
def test_surrogates_and_long_numbers_come_back(store, documents, name, value, read):
    documents.append("c1", (), {name: value})
    assert documents.append("c1", (), {name: value}) == ()
    assert Documents(store).get("c1", name) == read


def test_concurrent_writers_lose_no_change(store):
    def count(name):
        mine = Documents(store)
        for n in range(8):
            mine.append("c1", said(name), {name: n, "shared": [name, n]})

    at_once(count, "abc")
    values = Documents(store).all("c1")
    assert values.pop("shared")[1] == 7
    assert values == {"a": 7, "b": 7, "c": 7}
    assert store.version("c1") >= 24


def test_a_change_builds_on_its_own_append(store, documents):
    first = DocumentChanges(changed={"a": {"value": 1}, "b": {"value": 2}})
    second = DocumentChanges(changed={"c": {"value": 3}}, others={"a": 0, "b": 0})
    third = DocumentChanges(changed={"a": {"deleted": True}}, others={"b": 0, "c": 1})
    store.append("c1", [first, second, third], expected_version=0)
    assert documents.all("c1") == {"b": 2, "c": 3}
    change = DocumentChanges(changed={"b": {"value": 5}}, others={"c": 1})
    outdated = DocumentChanges(changed={"a": {"value": 4}}, others={"b": 0, "c": 1})
    with pytest.raises(DocumentsChanged):
        store.append("c1", [change, outdated], expected_version=3)


def test_changes_of_an_older_value_are_refused(store, documents):
    put(documents, a=1, b=2)
    for name, changed, others in rows(
        "documents.json", "changes that do not build on the newest value"
    ):
        change = DocumentChanges(changed=changed, others=others)
        with pytest.raises(DocumentsChanged):
            store.append(name, change, expected_version=ANY_VERSION)
    with pytest.raises(InvalidEvent, match="must be a value, a difference to an earlier"):
        DocumentChanges(changed={"a": {"base": -1, "difference": {}}})
    assert documents.all("c1") == {"a": 1, "b": 2}


def test_a_change_does_not_build_on_redacted_values(store, documents, monkeypatch):
    put(documents, log=list(range(40)))
    before_next_call(monkeypatch, Store, "append", lambda: redacted(store, "c1", 0))
    put(documents, log=list(range(41)))
    assert Documents(store).get("c1", "log") == list(range(41))


@pytest.mark.parametrize(
    "before, between, given, stored", rows("documents.json", "values of two writers")
)
def test_values_are_compared_with_another_writer(
    store, documents, monkeypatch, before, between, given, stored
):
    if before:
        documents.append("c1", (), before)
    _, bound = bind(store, "c1", replaces_erased=True)

    def meanwhile():
        # The values of the other writer are in the conversation that has the id now.
        if before:
            erased(store, "c1")
            Documents(bound).append("c1", (), before)
        Documents(store).append("c1", (), between)

    before_next_call(monkeypatch, Store, "append", meanwhile)
    _, *changes = documents.append("c1", said("a"), given)
    assert [name for change in changes for name in sorted(change.event.changed)] == stored
    assert documents.all("c1") == before | between | given


def test_appends_together_are_not_repeated_after_another_writer(store, documents, monkeypatch):
    """Their caller prepares all of them again."""
    put(documents, a=1)
    other = documents.prepare("c2", {"b": 1}, 0)
    before_next_call(
        monkeypatch, Store, "append", lambda: Documents(store).append("c1", (), {"a": 2})
    )
    with pytest.raises(DocumentsChanged):
        documents.append("c1", (), {"a": 3}, together=[other])
    assert documents.all("c1") == {"a": 2}
    assert ids(store.iter_conversations()) == ["c1"]


def test_a_retried_append_adds_nothing(store, documents):
    def append(text, n, key):
        return Documents(store).append("c1", said(text), {"n": n}, idempotency_key=key)

    first = append("a", 1, "turn")
    documents.append("c1", said("b"), {"n": 2})
    assert append("a", 1, "turn") == first
    assert documents.get("c1", "n") == 2
    same = append("c", 2, "same value")
    put(documents, n=4)
    assert append("c", 2, "same value") == same
    for text, n in (("a", 3), ("other", 1)):
        with pytest.raises(IdempotencyConflict):
            append(text, n, "turn")


def test_a_retry_names_all_documents_that_it_changed(documents):
    def append(**given):
        return documents.append("c1", said("a"), given, idempotency_key="turn")

    first = append(a=1, b=2)
    assert append(a=1, b=2) == first
    for fewer in ({"a": 1}, {"b": 2}, {}):
        with pytest.raises(IdempotencyConflict):
            append(**fewer)
    assert documents.all("c1") == {"a": 1, "b": 2}


def test_a_retry_with_a_change_of_its_own_is_recognized(documents):
    events = [said("a"), DocumentChanges(changed={"a": {"value": 1}})]
    first = documents.append("c1", events, {}, idempotency_key="turn")
    assert documents.append("c1", events, {}, idempotency_key="turn") == first
    assert documents.all("c1") == {"a": 1}


def changes(values):
    return {name: DELETED if value == "DELETED" else value for name, value in values.items()}


@pytest.mark.parametrize("case", rows("documents.json", "retries of redacted changes"))
def test_a_retry_with_redacted_documents_is_recognized(recorder, settings, case):
    store = Store(recorder, settings._replace(compression="zlib"))

    def append(turn, key):
        return Documents(store).append("c1", said("a"), changes(turn), idempotency_key=key)

    for key, turn in case["turns"].items():
        first = append(turn, key)
    store.fork("c1", store.version("c1"), "fork")
    for event_id in case["redacted"]:
        redacted(store, "c1", event_id)
    version = store.version("c1")
    again = append(turn, key)
    assert [entry.position for entry in again] == [entry.position for entry in first]
    for other in case["others"]:
        with pytest.raises(IdempotencyConflict):
            append(other, key)
    assert (store.version("c1"), store.version("fork")) == (version, 2 * len(case["turns"]))


def test_the_next_change_reads_no_value(store, documents, monkeypatch):
    documents.append("c1", said("a"), {"state": {"turn": 0, "log": ["x" * 400]}, "title": "t"})
    reads = noted(monkeypatch, store.database.recorder, "query")
    for turn in range(1, CHAIN_MAX + 9):
        value = {"turn": turn % 2, "log": ["x" * 400]}
        documents.append("c1", said("a"), {"state": value}, expected_version=2 * turn)
    recorded = put(documents, state=DELETED)
    assert not reads
    assert isinstance(recorded[-1].event, DocumentChanges)
    assert documents.all("c1") == {"title": "t"}
    expected = [{"turn": turn % 2, "log": ["x" * 400]} for turn in range(CHAIN_MAX + 9)]
    versions = [2 * turn + 2 for turn in range(CHAIN_MAX + 9)]
    assert [documents.get("c1", "state", version=version) for version in versions] == expected


def test_one_read_finds_several_versions(store, documents):
    for number in range(40):
        documents.append("c1", said("a") if number % 3 else (), {"n": number})
        if number == 25:
            store.fork("c1", store.version("c1"), "c2")
        if number > 25:
            documents.append("c2", said("b"), {"n": -number})
    drawn = random.Random(1)
    for name in ("c1", "c2"):
        versions = range(store.version(name), -1, -1)
        expected = [documents.get(name, "n", version=version) for version in versions]
        any_order = drawn.sample([*enumerate(versions)], len(versions))

        def read(reading, versions=versions, any_order=any_order):
            walked = [newest_value(reading, "n", version) for version in versions]
            return walked, [
                (index, newest_value(reading, "n", version)) for index, version in any_order
            ]

        walked, drawn_values = store.query(name, read)
        assert walked == expected
        assert [value for _, value in sorted(drawn_values)] == expected


@pytest.mark.parametrize("values", [{"q": 1}, {}])
def test_a_stale_change_among_the_events_ends_the_append(store, documents, values):
    put(documents, a=1, b=2)
    stale = DocumentChanges(changed={"a": {"value": 3}})
    with pytest.raises(InvalidEvent if values else DocumentsChanged):
        documents.append("c1", [stale], values)


def test_a_difference_from_a_deletion_is_named(store, documents):
    deletion = DocumentChanges(changed={"a": {"deleted": True}})
    difference = DocumentChanges(changed={"a": {"base": 0, "difference": {"set": {"x": 1}}}})
    store.ingest("c1", [deletion, difference])
    with pytest.raises(CorruptEvent, match="event 1: the value of document 'a' builds on event 0"):
        documents.get("c1", "a")
