"""Followers read an erasure as an entry of the ledger, which has a position. The tombstone names
the read models that have not confirmed this position.
"""

from functools import partial

import pytest

from foldlog.eventstore import Erased, InvalidEvent, Message, confirm
from foldlog.eventstore.log.ledger import enter_erasure
from foldlog.eventstore.recorders.types import Erasure
from tests.privacy import erased
from tests.said import said, say


def entries(store, after=0):
    return [
        (entry.conversation, entry.event.id, type(entry.event)) for entry in store.follow(after)
    ]


@pytest.mark.usefixtures("one_order")
def test_an_erasure_has_its_place(store):
    say(store, "a", "1", "2")
    (before,) = say(store, "b", "b")
    tombstone = erased(store, "a")
    (after,) = say(store, "b", "b")
    assert entries(store) == [("b", 0, Message), ("a", 2, Erased), ("b", 1, Message)]
    (first,) = store.follow(limit=1)
    (entry,) = store.follow(first.position, limit=1)
    assert before.position < entry.position < after.position
    assert (entry.event.reason, entry.recorded_at) == ("asked for", tombstone.erased_at)
    assert entries(store, entry.position) == [("b", 1, Message)]


def test_pages_of_any_size_are_equal(store):
    for n in range(6):
        say(store, f"c{n}", "1", "2")
        if n % 2:
            erased(store, f"c{n - 1}")
    store.ingest("imported", [said(str(n)) for n in range(1_500)])
    erased(store, "imported")
    whole = [(entry.position, entry.conversation, entry.event.id) for entry in store.follow()]
    assert len(whole) == 6 + 3 + 1
    assert whole == sorted(whole)
    for size in (1, 2, 3):
        entries_read = []
        after = 0
        while page := list(store.follow(after, limit=size)):
            entries_read += [(entry.position, entry.conversation, entry.event.id) for entry in page]
            after = page[-1].position
        assert entries_read == whole


def test_a_half_erased_import_is_not_followed(store):
    store.ingest("imported", [said(str(n)) for n in range(1_500)])
    recorder = store.database.recorder
    conversation = recorder.query(lambda reader: reader.conversation("imported"))
    erasure = Erasure(7, "asked to", 1_500, b"h" * 32)
    recorder.transact(lambda transaction: enter_erasure(transaction, conversation, erasure))
    assert entries(store) == [("imported", 1_500, Erased)]


def test_a_tombstone_names_unconfirmed_read_models(store):
    say(store, "a", "1", "2")
    (first, *_) = store.follow()
    confirm(store, "slow", first.position)
    confirm(store, "other", str(first.position))
    assert erased(store, "a").unconfirmed == ("other", "slow")
    (entry,) = store.follow()
    confirm(store, "other", entry.position)
    assert store.conversation("a").unconfirmed == ("slow",)
    assert [row.unconfirmed for row in store.conversations()] == [("slow",)]
    say(store, "b", "later")
    (*_, later) = store.follow()
    confirm(store, "slow", str(later.position))
    assert erased(store, "a").unconfirmed == ()
    assert store.conversation("a").unconfirmed == ()


def test_nobody_appends_such_an_entry(store):
    for write in (partial(store.append, expected_version=0), store.ingest):
        with pytest.raises(InvalidEvent, match="is an entry of the ledger"):
            write("a", [Erased(reason="not true")])
    assert store.version("a") == 0
