"""``dedupe="origin"``, on every recorder: an event of a source is stored once in a conversation, and
found by its id in the whole store.
"""

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    Documents,
    InvalidArgument,
    Origin,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.recorders.types import Erasure
from tests.conformance.conftest import ENCRYPTS, noted
from tests.golden.rows import rows
from tests.privacy import erased
from tests.said import said
from tests.sound import assert_sound


def event(source_id, text="x", format="f", rest=None):
    return said(text, origin=Origin(format=format, id=source_id, rest=rest))


def add(store, *events, conversation="c1", expected=ANY_VERSION):
    recorded = store.append(conversation, events, expected_version=expected, dedupe="origin")
    return [entry.id for entry in recorded]


def known(store, *source_ids, conversation="c1"):
    return origins.find_known(store.database, conversation, "f", source_ids)


def places(store, source_id, format="f"):
    return origins.find(store.database, format, source_id)


def test_an_overlapping_batch_adds_new_events(store):
    assert add(store, event("a"), event("b")) == [0, 1]
    assert add(store, event("b"), event("c"), event("c"), event("d")) == [2, 3]
    assert add(store, event(None), event(None), said("ours")) == [4, 5, 6]
    assert add(store, event("a"), conversation="c2") == [0], "another history may have the same ids"
    assert add(store, event("a"), event("e", rest=1)) == [7], (
        "the second event belongs to another record"
    )
    assert add(store, event("e", rest=1), event("d")) == []
    assert add(store, event("e", rest=1), event("d"), event("f")) == [8]


def test_ids_differ_as_in_json(store):
    ids = ["1", 1, 1.0, True, "\ud800", "a\x00b", [1], {"a": 1}, ""]
    assert add(store, *map(event, ids), event("1", format="g")) == list(range(len(ids) + 1))
    assert add(store, *map(event, ids), event("1", format="g")) == []


def test_older_histories_are_indexed_on_demand(store, monkeypatch):
    monkeypatch.setattr(origins, "_CHUNK", 3)
    store.ingest("c0", [event(f"e{n}") for n in range(8)])
    assert add(store, event("e7"), event("e8"), conversation="c0") == [8]
    store.ingest("c1", [event(f"e{n}") for n in range(8)] + [event("e1", "again")])
    assert known(store, "e0", "e7", "new", None) == [True, True, False, False]
    assert add(store, event("e3"), event("new")) == [9]
    assert known(store, "e0", conversation="none") == [False]
    store.append("c1", event("unseen"), expected_version=ANY_VERSION)
    assert add(store, event("unseen")) == [11], "an append without dedupe is not in the index"
    assert_sound(store)


def test_an_event_is_found_until_its_erasure(store):
    for conversation in ("c1", "c2", "c3"):
        add(store, event("shared"), event(conversation), conversation=conversation)
    assert places(store, "shared") == (("c1", 0), ("c2", 0), ("c3", 0))
    assert places(store, "c2") == (("c2", 1),)
    assert places(store, "c2", "g") == places(store, None) == ()
    erased(store, "c2")
    assert places(store, "shared") == (("c1", 0), ("c3", 0))
    assert places(store, "c2") == ()
    begun = store.database.recorder.query(lambda reader: reader.conversation("c3"))
    erasure = Erasure(begun.created_at, "its rows are still there", 2, b"h" * 32)
    store.database.recorder.transact(lambda transaction: transaction.erase(begun.key, erasure))
    assert places(store, "shared") == (("c1", 0),)


class Refuses:
    name = "refuses"

    def project(self, snapshot, events):
        raise RuntimeError("refused")


def test_nothing_stays_of_an_append_that_fails(store):
    add(store, event("a"))
    with pytest.raises(VersionConflict):
        add(store, event("b"), expected=0)
    assert known(store, "a", "b") == [True, False]
    assert places(store, "b") == ()
    store.register(Refuses())
    with pytest.raises(RuntimeError, match="refused"):
        add(store, event("b"), CondensationRequest(origin=Origin(format="f", id="r")))
    assert places(store, "b") == places(store, "r") == ()
    assert add(store, event("b"), expected=1) == [1]
    assert add(store, event("b"), expected=1) == [], "a retry that adds nothing needs no version"


def test_wrong_arguments_are_refused(store):
    for options, problem in rows("refusals.json", "options of an append"):
        with pytest.raises(InvalidArgument, match=problem):
            store.append("c1", event("a"), expected_version=0, **options)
    assert store.version("c1") == 0


def test_an_encrypted_history_hides_source_ids(recorder):
    store = Store(recorder, ENCRYPTS)
    add(store, event("secret-id"), event("b"))
    assert add(store, event("secret-id"), event("c")) == [2]
    begun = recorder.query(lambda reader: reader.conversation("c1"))
    names = [name for name, _ in recorder.query(lambda reader: reader.recalled(begun.key, "", 100))]
    assert len(names) == 4
    assert not any("secret" in name for name in names)
    assert_sound(store)


def test_an_append_asks_only_for_its_ids(store, monkeypatch):
    """The cost of an append does not grow with the history: it reads no events, and asks only for
    its own ids.
    """
    add(store, *(event(n) for n in range(500)))
    reads = noted(monkeypatch, origins.ReadTransaction, "events")
    lookups = noted(monkeypatch, origins.ReadTransaction, "recalled_among")
    add(store, event("new"), event(3))
    assert reads == []
    assert [len(names) for _, names in lookups] == [3]


def test_shared_events_are_found_in_a_fork_after_the_parents_erasure(store):
    add(store, event("a"), event("b"), event("c"))
    store.append("c2", event("a"), expected_version=0)
    store.fork("c1", 2, "f")
    store.fork("c2", 1, "g")
    assert places(store, "a") == (("c1", 0),), "events are found where they are stored"
    erased(store, "c1", detach_forks=True)
    erased(store, "c2", detach_forks=True)
    assert places(store, "a") == (("f", 0),), "the index had no events of the parent of g"
    assert places(store, "b") == (("f", 1),)
    assert places(store, "c") == ()
    assert add(store, event("b"), event("d"), conversation="f") == [2]


def test_documents_with_events_that_are_known(store):
    documents = Documents(store)
    documents.append("c1", [event("a"), event("b")], {"d": 1}, dedupe="origin", expected_version=0)
    recorded = documents.append("c1", [event("b"), event("c")], {"d": 2}, dedupe="origin")
    assert [entry.id for entry in recorded] == [3, 4]
    assert documents.append("c1", [event("a")], {"d": 2}, dedupe="origin") == ()
    assert (documents.get("c1", "d"), documents.get("c1", "d", version=3)) == (2, 1)
    assert places(store, "c") == (("c1", 3),)
