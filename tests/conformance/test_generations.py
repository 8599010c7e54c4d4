"""The id of an erased conversation is used again, on every recorder: the two conversations are kept
apart, and the tombstone stays.
"""

from functools import partial

import pytest

from foldlog import Histories
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    Documents,
    StoreUnavailable,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.lists.tombstones import list_tombstones
from foldlog.eventstore.maintenance import erase as erasing
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.types import NOT_BEGUN, Conversation
from foldlog.eventstore.store import bind
from tests.between import before_next_call
from tests.privacy import erased
from tests.said import said, texts
from tests.sound import assert_sound


@pytest.fixture
def histories(store):
    return Histories(store)


def begin_again(histories):
    """Erase the conversation, and begin another one under its id."""
    erased(histories.store, "c1")
    return histories.create("c1", replace_erased=True)


def test_an_id_is_reused_only_on_request(histories, store):
    histories["c1"].append([said("first"), said("secret")])
    last = max(entry.position for entry in store.follow())
    erased(store, "c1")
    with pytest.raises(ConversationErased, match="replace_erased=True"):
        histories.create("c1")
    with pytest.raises(ConversationErased):
        histories["c1"].append(said("more"))
    history = histories.create("c1", {"user": "u1"}, replace_erased=True)
    history.append(said("second"))
    assert texts(store, "c1") == [None, "second"]
    assert [event.content for event in history.view()] == ["second"]
    assert min(entry.position for entry in store.follow()) > last
    row = store.conversation("c1")
    assert (row.version, row.generation, row.erased_at) == (2, 1, None)
    with pytest.raises(VersionConflict):
        histories.create("c1", replace_erased=True)
    assert texts(store, "c1") == [None, "second"]


def test_refusal_says_whether_the_id_has_a_new_conversation(histories, store):
    former = histories["c1"]
    former.append(said("first"))
    begin_again(histories)
    with pytest.raises(ConversationErased, match="a new conversation has this id now"):
        former.append(said("more"))
    erased(store, "c1")
    with pytest.raises(ConversationErased, match="begin a new conversation with this id"):
        former.append(said("more"))


def test_tombstones_are_listed_by_pages(histories, store):
    """Long ids that begin alike are listed too. An id that was used again is not listed."""
    long = "x" * 300
    names = ["a", "b", "é", "\udcff", long, f"{long}y", f"{long}z", "c1"]
    for name in (*names, "lives"):
        histories[name].append([said("secret"), said("more")])
    histories["a"].fork(1, id="fork").append(said("own"))
    for name in names[1:]:
        erased(store, name)
    erase(store, "fork", reason="the reason")
    histories.create("c1", replace_erased=True).append(said("second"))
    expected = [row for row in store.iter_conversations() if row.erased_at is not None]
    assert len(expected) == 7
    after = ""
    found = []
    while page := list_tombstones(store.database, after, 3):
        found += page
        after = page[-1].id
    assert found == [(row.id, row.version, row.erased_at, row.erased_reason) for row in expected]


def test_a_refused_writer_has_met_no_conversation(histories):
    histories["c1"].append(said("first"))
    refused = histories["c1"]
    for documents in (None, {"state": 1}):
        with pytest.raises(VersionConflict):
            refused.append(said("refused"), documents=documents, expected_version=9)
    begin_again(histories)
    refused.append((), documents={"attributes": {}})
    begin_again(histories)
    with pytest.raises(ConversationErased):
        refused.append(said("met, where equal values were appended"))


def test_equal_documents_of_an_erased_generation(histories):
    old = histories["c1"]
    old.append((), documents={"state": 1})
    begin_again(histories).append((), documents={"state": 1})
    with pytest.raises(ConversationErased):
        old.append((), documents={"state": 1})


def test_a_condensation_of_the_erased_is_refused(histories):
    _, store = bind(histories.store, "c1")
    store.append("c1", said("first"), expected_version=0)
    begin_again(histories)
    with pytest.raises(ConversationErased):
        store.append("c1", said("planned"), expected_version=1)
    with pytest.raises(ConversationErased):
        Documents(store).append("c1", (), {"state": 1})
    binding, store = bind(histories.store, "other")
    binding.key = 10**12
    with pytest.raises(ConversationNotFound):
        store.append("other", said("a"), expected_version=0)


def test_verify_tells_generations_and_their_heads_apart(histories, store):
    histories["c1"].append([said("first"), said("secret")])
    heads = [store.conversation("c1").head]
    for number in (1, 2):
        erase(store, "c1", reason=f"reason {number}")
        histories.create("c1", replace_erased=True).append(said(f"text {number}"))
        heads.append(store.conversation("c1").head)
    *verdicts, _ = verify(store)
    for number, verdict in enumerate(verdicts):
        assert (verdict.generation, verdict.version, verdict.findings) == (number, 2, ())
        assert verdict.head.hex() == heads[number]
    reasons = [verdict.erasure and verdict.erasure.reason for verdict in verdicts]
    assert reasons == ["reason 1", "reason 2", None]
    assert_sound(store)


def test_a_copy_follows_once_erased_there(histories, store):
    histories["c1"].append(said("first"))
    with open_store("memory:") as other:
        list(copy_store(store, other))
        begin_again(histories).append(said("second"))
        (moved,) = copy_store(store, other)
        assert "erase it in the target too" in moved.problem
        erased(other, "c1")
        (moved,) = copy_store(store, other)
        assert (moved.added, moved.problem) == (2, None)
        assert texts(other, "c1") == [None, "second"]


def test_an_erasure_expects_what_was_read(histories, store, monkeypatch):
    histories["c1"].append(said("first"))
    row = store.conversation("c1")
    histories["c1"].append(said("second"))
    with pytest.raises(VersionConflict, match="is at version 2, but the append expected version 1"):
        histories.erase("c1", reason="asked for", expected=row)
    assert texts(store, "c1") == ["first", "second"]
    row = store.conversation("c1")
    begin_again(histories).append(said("another"))
    with pytest.raises(VersionConflict):
        histories.erase("c1", reason="asked for", expected=row, detach_forks=True)
    assert texts(store, "c1") == [None, "another"], "it has as many events, and is another one"
    row = store.conversation("c1")
    store.fork("c1", 1, "fork")

    append = partial(histories["c1"].append, said("late"))
    before_next_call(monkeypatch, erasing, "_copy_past", append)
    with pytest.raises(VersionConflict):
        histories.erase("c1", reason="asked for", expected=row, detach_forks=True)
    assert texts(store, "c1") == [None, "another", "late"]
    histories.erase("c1", reason="asked for", expected=store.conversation("c1"), detach_forks=True)
    assert store.conversation("c1").erased_at is not None


def test_a_fork_under_an_erased_forks_id(histories, store):
    """Both share the same events, so they have the same head, and the View of the former is in
    memory.
    """
    histories["f"].append([said("first"), said("second"), said("third")])
    store.fork("f", 2, "c1")
    assert histories["c1"].view().version == 2
    erased(store, "c1")
    store.fork("f", 2, "c1", replace_erased=True)
    past = histories["c1"].view().state.past
    assert [event.content for event in past.events(0, 2)] == ["first", "second"]


@pytest.mark.parametrize("visible", [True, False])
def test_only_an_erased_conversation_is_replaced(store, visible):
    """Also if a program that begins the new one has not looked at the old one."""
    recorder = store.database.recorder
    store.append("c1", said("first"), expected_version=0)
    key = recorder.query(lambda reader: reader.conversation("c1")).key

    def begin(transaction):
        new = Conversation(NOT_BEGUN, "c1", 1, b"s" * 16, replaces=key, visible=visible)
        staged = transaction.begin(new)
        if not visible:
            transaction.publish(staged.key, 1)

    with pytest.raises(StoreUnavailable) as refused:
        recorder.transact(begin)
    assert refused.value.kind == "taken"
    assert texts(store, "c1") == ["first"]
    assert_sound(store)
    erased(store, "c1")
    recorder.transact(begin)
    with pytest.raises(StoreUnavailable):  # it was replaced already
        recorder.transact(begin)
    assert recorder.query(lambda reader: reader.conversation("c1")).replaces == key


def test_a_fork_under_a_used_id_says_what_the_store_says(histories, store):
    histories["parent"].append([said("one"), said("two")])
    histories["parent"].redact([0], reason="a test")
    histories["c1"].append(said("gone"))
    erased(store, "c1")
    fork = store.fork("parent", 2, "c1", replace_erased=True)
    assert fork == store.conversation("c1")
    assert (fork.generation, fork.redactions) == (1, 1)
