"""``dedupe="origin"``: a source's id is stored once, on every recorder, and found over the
store.
"""

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    Documents,
    InvalidArgument,
    Message,
    Origin,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.recorders.types import Erasure
from tests.conformance.conftest import ENCRYPTS
from tests.golden.rows import rows
from tests.privacy import erased
from tests.sound import assert_sound


def said(source_id, text="x", format="f", rest=None):
    return Message(
        source="user", content=text, origin=Origin(format=format, id=source_id, rest=rest)
    )


def add(store, *events, conversation="c1", expected=ANY_VERSION):
    recorded = store.append(conversation, events, expected_version=expected, dedupe="origin")
    return [one.id for one in recorded]


def found(store, source_id, format="f"):
    return origins.find(store.database, format, source_id)


def test_a_retried_batch_that_overlaps_adds_what_is_new(store):
    assert add(store, said("a"), said("b")) == [0, 1]
    assert add(store, said("b"), said("c"), said("c"), said("d")) == [2, 3]
    assert add(store, said(None), said(None), Message(source="user", content="ours")) == [4, 5, 6]
    assert add(store, said("a"), conversation="c2") == [0], "another history is another matter"
    assert add(store, said("a"), said("e", rest=1)) == [7], "of another record than the one before"
    assert [add(store, said("e", rest=1), said("d"), *more) for more in ((), [said("f")])] == [
        [],
        [8],
    ], "half a record"


def test_ids_are_told_apart_as_json_tells_them(store):
    ids = ["1", 1, 1.0, True, "\ud800", "a\x00b", [1], {"a": 1}, ""]
    assert add(store, *map(said, ids), said("1", format="g")) == list(range(len(ids) + 1))
    assert add(store, *map(said, ids), said("1", format="g")) == []


def test_a_history_that_existed_before_is_indexed_when_it_is_asked_for(store, monkeypatch):
    monkeypatch.setattr(origins, "_CHUNK", 3)
    store.ingest("c0", [said(f"e{n}") for n in range(8)])
    assert add(store, said("e7"), said("e8"), conversation="c0") == [8]
    store.ingest("c1", [said(f"e{n}") for n in range(8)] + [said("e1", "again")])
    assert origins.find_known(store.database, "c1", "f", ["e0", "e7", "new", None]) == [
        True,
        True,
        False,
        False,
    ]
    assert add(store, said("e3"), said("new")) == [9]
    assert origins.find_known(store.database, "none", "f", ["e0"]) == [False]
    store.append("c1", said("unseen"), expected_version=ANY_VERSION)
    assert add(store, said("unseen")) == [11], "an append that does not ask is not in the index"
    assert_sound(store)


def test_an_event_is_found_over_the_store_until_it_is_erased(store):
    for conversation in ("c1", "c2", "c3"):
        add(store, said("shared"), said(conversation), conversation=conversation)
    assert found(store, "shared") == (("c1", 0), ("c2", 0), ("c3", 0))
    assert found(store, "c2") == (("c2", 1),)
    assert found(store, "c2", "g") == found(store, None) == ()
    erased(store, "c2")
    assert found(store, "shared") == (("c1", 0), ("c3", 0))
    assert found(store, "c2") == ()
    begun = store.database.recorder.query(lambda reader: reader.conversation("c3"))
    erasure = Erasure(begun.created_at, "its rows are still there", 2, b"h" * 32)
    store.database.recorder.transact(lambda transaction: transaction.erase(begun.key, erasure))
    assert found(store, "shared") == (("c1", 0),)


class Refuses:
    name = "refuses"

    def project(self, snapshot, events):
        raise RuntimeError("refused")


def test_nothing_stays_of_an_append_that_fails(store):
    add(store, said("a"))
    with pytest.raises(VersionConflict):
        add(store, said("b"), expected=0)
    assert origins.find_known(store.database, "c1", "f", ["a", "b"]) == [True, False]
    assert found(store, "b") == ()
    store.register(Refuses())
    with pytest.raises(RuntimeError, match="refused"):
        add(store, said("b"), CondensationRequest(origin=Origin(format="f", id="r")))
    assert found(store, "b") == found(store, "r") == ()
    assert add(store, said("b"), expected=1) == [1]
    assert add(store, said("b"), expected=1) == [], "a retry that adds nothing needs no version"


def test_wrong_arguments_are_refused(store):
    for options, problem in rows("refusals.json", "options of an append"):
        with pytest.raises(InvalidArgument, match=problem):
            store.append("c1", said("a"), expected_version=0, **options)
    assert store.version("c1") == 0


def test_an_encrypted_history_is_deduped_and_no_source_id_is_in_the_clear(recorder):
    store = Store(recorder, ENCRYPTS)
    add(store, said("secret-id"), said("b"))
    assert add(store, said("secret-id"), said("c")) == [2]
    begun = recorder.query(lambda reader: reader.conversation("c1"))
    names = [name for name, _ in recorder.query(lambda reader: reader.recalled(begun.key, "", 100))]
    assert len(names) == 4
    assert not any("secret" in name for name in names)
    assert_sound(store)


def test_an_append_asks_for_its_own_ids_only(store, monkeypatch):
    """The cost of an append does not grow with the history: it reads no events and asks for the ids
    that it has.
    """
    add(store, *(said(n) for n in range(500)))
    asked = []
    monkeypatch.setattr(
        origins.ReadTransaction, "events", lambda *args, **kwargs: pytest.fail("events were read")
    )
    several = origins.ReadTransaction.recalled_among
    monkeypatch.setattr(
        origins.ReadTransaction,
        "recalled_among",
        lambda self, names: asked.append(len(names)) or several(self, names),
    )
    add(store, said("new"), said(3))
    assert asked == [3]


def test_what_a_fork_shares_is_found_in_it_once_its_parent_is_erased(store):
    add(store, said("a"), said("b"), said("c"))
    store.append("c2", said("a"), expected_version=0)
    store.fork("c1", 2, "f")
    store.fork("c2", 1, "g")
    assert found(store, "a") == (("c1", 0),), "events are found where they are stored"
    erased(store, "c1", detach_forks=True)
    erased(store, "c2", detach_forks=True)
    assert found(store, "a") == (("f", 0),), "of g's parent none were in the index"
    assert found(store, "b") == (("f", 1),)
    assert found(store, "c") == ()
    assert add(store, said("b"), said("d"), conversation="f") == [2]


def test_documents_come_with_events_of_which_those_known_are_left_out(store):
    documents = Documents(store)
    documents.append("c1", [said("a"), said("b")], {"d": 1}, dedupe="origin", expected_version=0)
    recorded = documents.append("c1", [said("b"), said("c")], {"d": 2}, dedupe="origin")
    assert [one.id for one in recorded] == [3, 4]
    assert documents.append("c1", [said("a")], {"d": 2}, dedupe="origin") == ()
    assert (documents.get("c1", "d"), documents.get("c1", "d", version=3)) == (2, 1)
    assert found(store, "c") == (("c1", 3),)
