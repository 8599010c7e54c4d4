"""Checkpoints, on every recorder."""

from concurrent.futures import ThreadPoolExecutor

from foldlog.eventstore import Store
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.proofs import prove_consistency, prove_event
from tests.privacy import erased, redacted
from tests.said import all_said, say
from tests.sound import LEDGER_OF_A_COPY, changes


def fill(store):
    for name in ("a", "b", "c", "gone", "\ud800"):
        store.append(name, all_said("one", "two"), expected_version=0)
    erased(store, "gone")


def test_lawful_work_raises_no_alarm(store):
    fill(store)
    first = make_checkpoint(store)
    say(store, "a", "three")
    erased(store, "b")
    redacted(store, "c", 0)
    second = make_checkpoint(store)
    assert second.size == first.size + 3
    assert make_checkpoint(store) == second
    assert changes(store, first) == changes(store, second) == {}
    assert prove_consistency(store, first, second).path
    assert len(prove_event(store, second, "a", 0).links) == 2


def test_events_that_an_import_published_later_count_as_later(open_recorder):
    """A checkpoint of an encrypted conversation covers its events since the one before."""
    store = Store(open_recorder())
    say(store, "a", "one")
    position = store.database.last_position
    store.ingest("imported", all_said("one", "two"))
    say(store, "a", "two")

    def last_until(reader, name, at):
        key = reader.conversation(name).key
        return [event_id for (event_id,) in reader.ask("last_until", key, at, -key)]

    query = store.database.recorder.query
    assert query(lambda reader: last_until(reader, "a", position)) == [0]
    assert query(lambda reader: last_until(reader, "imported", position)) == []
    now = store.database.last_position
    assert query(lambda reader: last_until(reader, "a", now)) == [1]
    assert query(lambda reader: last_until(reader, "imported", now)) == [1]


def test_a_shorter_store_is_named(open_recorder):
    store = Store(open_recorder())
    shorter = Store(open_recorder())
    fill(store)
    assert not [moved.problem for moved in copy_store(store, shorter) if moved.problem]
    say(store, "a", "three")
    note = make_checkpoint(store)
    assert [moved.conversation for moved in copy_store(store, shorter, "c")]
    assert "the list was shortened" in changes(shorter, note)[None][0]
    list(copy_store(store, shorter))
    assert changes(shorter, note) == {None: [LEDGER_OF_A_COPY]}


def test_checkpoints_of_several_threads_make_one_list(store):
    def say_and_check(name):
        say(store, name, "more")
        make_checkpoint(store)

    fill(store)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(say_and_check, "abc"))
    note = make_checkpoint(store)
    assert changes(store, note) == {}
