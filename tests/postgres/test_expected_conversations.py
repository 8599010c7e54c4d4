"""An append after another append of the same store writes without asking the server first. What it
assumes about the conversation may be wrong, because others may have changed the conversation in
between. Then the append costs a further round trip, and is otherwise the same.
"""

import threading
from datetime import UTC, datetime
from functools import partial

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    ConversationErased,
    Erased,
    IdempotencyConflict,
    KeyUnavailable,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.maintenance.copy import _redact_too, copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.postgres.wire import Wire
from foldlog.eventstore.recorders.types import Erasure
from foldlog.projections import Views
from tests.at_once import at_once
from tests.conformance.conftest import noted
from tests.conformance.test_recorders import row
from tests.privacy import erased, redacted
from tests.said import said, say, texts
from tests.sound import assert_sound
from tests.waiting import until

from .conftest import CUTS, before_recovery, lock_waiters

OLD = "ab" * 32
NEW = "cd" * 32
KEY = KeyRing([OLD])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def ours(url):
    """A store that made the last append to ``c1``."""
    with open_store(url) as store:
        say(store, "c1", "0")
        yield store


@pytest.fixture
def theirs(url, ours):
    """Another store on the same database, which may append in between."""
    with open_store(url) as store:
        yield store


# -- what it costs
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def cost(monkeypatch):
    """A function that appends, and returns the number of round trips."""
    trips = noted(monkeypatch, Wire, "ask")

    def count(store, *content, **options):
        trips.clear()
        say(store, "c1", *content, **options)
        return len(trips)

    return count


@pytest.mark.parametrize("keys", [None, KEY], ids=["plain", "encrypted"])
def test_an_append_is_one_round_trip(url, keys, cost):
    with open_store(url, keys=keys) as ours:
        say(ours, "c1", "0")
        assert cost(ours, "1", expected_version=1) == 1
        assert cost(ours, "2") == 1
        assert cost(ours, "3", "4", expected_version=3, idempotency_key="turn-3") == 1
        assert cost(ours, "5", expected_version=5) == 1
        assert texts(ours, "c1") == ["0", "1", "2", "3", "4", "5"]
        assert_sound(ours)


def test_two_writers_in_turns_assume_too_much_once(ours, theirs, cost):
    """A wrong assumption costs three round trips. Then a store asks first, which costs two, until
    one of its appends follows its own last append.
    """
    costs = [cost(store, "x") for _ in range(3) for store in (theirs, ours)]
    assert costs == [2, 3, 3, 2, 2, 2]
    assert [cost(ours, "x") for _ in range(3)] == [2, 1, 1]
    assert_sound(ours)


# -- after a change of others
# -----------------------------------------------------------------------------------------------


def test_events_of_others_count(ours, theirs):
    for name in "abcd":
        say(ours, name, "0")
        say(theirs, name, "1")
    [recorded] = say(ours, "a", "2")
    assert recorded == list(ours.follow())[-1]
    with pytest.raises(VersionConflict, match="2"):
        say(ours, "b", "mine", expected_version=1)
    say(ours, "c", "2", expected_version=2)
    ours.append("d", said("2", cause=1), expected_version=ANY_VERSION)
    assert [texts(ours, name) for name in "abcd"] == [[*"012"], [*"01"], [*"012"], [*"012"]]
    assert_sound(ours)


def test_a_conversation_that_others_erased_takes_no_event(ours, theirs):
    erased(theirs, "c1")
    with pytest.raises(ConversationErased):
        say(ours, "c1", "1")
    assert [type(entry.event) for entry in ours.follow()] == [Erased]


def test_a_conversation_that_is_being_erased(ours, theirs):
    """The conversation already has its tombstone, and still has its events."""

    def begin_to_erase(transaction):
        conversation = transaction.conversation("c1")
        transaction.erase(conversation.key, Erasure(5, "asked to", 1, b"head"))

    theirs._recorder.transact(begin_to_erase)
    with pytest.raises(ConversationErased):
        say(ours, "c1", "1")


def test_an_import_that_others_continued(ours, theirs):
    theirs.ingest("c1", [said(str(n)) for n in range(1_500)])
    [recorded] = say(ours, "c1", "behind")
    assert (recorded.id, [entry.id for entry in ours.follow()]) == (1_500, list(range(1_501)))
    assert_sound(ours)


def test_events_are_encrypted_after_the_first_encrypted_append(url):
    with open_store(url, keys=KEY) as ours, open_store(url) as plain:
        say(plain, "c1", "plain")
        say(plain, "c1", "plain")
        say(ours, "c1", "sealed", expected_version=2)
        say(ours, "c1", "sealed", expected_version=3)
        say(ours, "c1", "sealed", expected_version=4)
        assert texts(ours, "c1") == ["plain", "plain", "sealed", "sealed", "sealed"]
        assert_sound(ours)


def test_a_conversation_that_others_encrypted_takes_no_plain_event(url):
    with open_store(url) as ours, open_store(url, keys=KEY) as theirs:
        say(ours, "c1", "0")
        list(rekey(theirs))
        with pytest.raises(KeyUnavailable):
            say(ours, "c1", "1")
        assert texts(theirs, "c1") == ["0"]
        assert_sound(theirs)


def test_an_append_follows_a_rekey_of_others(url):
    newer = KeyRing([NEW, OLD])
    both = KeyRing([OLD, NEW])
    with open_store(url, keys=both) as ours, open_store(url, keys=newer) as theirs:
        say(ours, "c1", "0")
        say(ours, "c1", "1")
        list(rekey(theirs))
        say(ours, "c1", "2", expected_version=2)
    with open_store(url, keys=newer) as theirs:
        assert texts(theirs, "c1") == ["0", "1", "2"]
        assert_sound(theirs)


def test_an_append_reads_a_parent_that_others_encrypted(url):
    with open_store(url) as plain:
        say(plain, "c1", "0", "1")
        plain.fork("c1", 2, "fork")
    with open_store(url, keys=KEY) as ours, open_store(url, keys=KEY) as theirs:
        say(ours, "fork", "2", expected_version=2)
        list(rekey(theirs, "c1"))
        say(ours, "fork", "3", expected_version=3, guard=lambda reading: list(reading.events()))
        assert texts(ours, "fork") == ["0", "1", "2", "3"]


def test_an_append_reads_a_fork_that_others_detached(ours, theirs):
    ours.fork("c1", 1, "fork")
    say(ours, "fork", "1", expected_version=1)
    erased(theirs, "c1", detach_forks=True)
    say(ours, "fork", "2", expected_version=2, guard=lambda reading: list(reading.events()))
    ours.fork("fork", 1, "another")
    assert (texts(ours, "fork"), texts(ours, "another")) == (["0", "1", "2"], ["0"])
    redacted(ours, "fork", 0)
    assert_sound(ours)


def test_a_guard_sees_a_redaction_without_a_receipt(ours, theirs):
    """A copy brings a redaction before its receipt."""
    with open_store("memory:") as source:
        list(copy_store(ours, source))
        redacted(source, "c1", 0)
        row = source.query("c1", lambda reading: reading.rows(0, 1, 1)[0])
        there = theirs.database.recorder.query(lambda reader: theirs.database.find(reader, "c1"))
        copy = partial(_redact_too, existing=there, redacted_rows=[row], records=None)
        theirs.database.recorder.transact(partial(copy, database=theirs.database))
    redactions = []
    say(ours, "c1", "1", guard=lambda reading: redactions.append(reading.redactions))
    assert redactions[-1] == 1


def test_an_append_takes_the_id_of_an_event_that_a_failover_lost(ours, postgres_server, schema):
    """A standby that had not confirmed the last event was promoted, so this event is gone."""
    say(ours, "c1", "lost", expected_version=1)
    postgres_server.sql(f"DELETE FROM {schema}.events WHERE id = 1")
    [recorded] = say(ours, "c1", "1")
    assert (recorded.id, texts(ours, "c1")) == (1, ["0", "1"])
    assert_sound(ours)


def test_revisions_follow_the_stored_events(ours, theirs):
    views = Views(ours)
    ours.register(views)
    say(theirs, "c1", "1", "2")
    forgotten = CondensationAction(forgotten_event_ids=[0, 1], summary="both", summary_offset=0)
    ours.append("c1", forgotten, expected_version=ANY_VERSION)
    ours.append("c1", CondensationAction(forgotten_event_ids=[2]), expected_version=4)
    fresh = Views(theirs)
    assert [event.id for event in fresh.current("c1").events] == [-5]
    assert fresh.rebuild("c1") == 2
    assert fresh.current("c1").events == views.current("c1").events


def test_a_guard_is_asked_again(ours, theirs):
    say(theirs, "c1", "1")
    versions = []

    def only_at_two(snapshot):
        versions.append(snapshot.version)
        if snapshot.version != 2:
            raise ValueError(snapshot.version)

    say(ours, "c1", "2", guard=only_at_two)
    assert (versions[-1], texts(ours, "c1")) == (2, ["0", "1", "2"])


def test_ids_of_many_writers_are_dense(url):
    written = []

    def write(name):
        with open_store(url) as store:
            for n in range(15):
                written.extend(say(store, f"c{n % 2}", *[name] * (1 + n % 3)))

    at_once(write, [str(n) for n in range(8)])
    with open_store(url) as store:
        followed = list(store.follow())
        assert sorted(written, key=lambda r: r.position) == followed
        for name in ("c0", "c1"):
            ids = [entry.id for entry in followed if entry.conversation == name]
            assert ids == list(range(store.version(name)))
        assert_sound(store)


# -- idempotency keys
# --------------------------------------------------------------------------------------------------


def test_a_used_key_returns_its_events(ours, theirs):
    first = say(ours, "c1", "1", expected_version=1, idempotency_key="turn-1")
    assert say(ours, "c1", "1", expected_version=1, idempotency_key="turn-1") == first
    say(ours, "c1", "2")
    assert say(ours, "c1", "1", idempotency_key="turn-1") == first
    second = say(theirs, "c1", "3", expected_version=3, idempotency_key="turn-3")
    assert say(ours, "c1", "3", expected_version=3, idempotency_key="turn-3") == second
    with pytest.raises(IdempotencyConflict):
        say(ours, "c1", "other", idempotency_key="turn-3")
    assert texts(ours, "c1") == ["0", "1", "2", "3"]


def test_a_used_key_with_a_guard_gets_the_same_event(ours):
    def append():
        forgetting = CondensationAction(forgotten_event_ids=[0])
        return ours.append(
            "c1",
            forgetting,
            expected_version=ANY_VERSION,
            idempotency_key="turn-1",
            guard=lambda s: list(s.events()),
        )

    ours.register(Views(ours))
    assert append() == append()
    assert ours.version("c1") == 2


# -- commits in doubt
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
def test_an_equal_event_of_another_writer(url, via, proxy, cut):
    """Two writers append the same content at the same time, so both events have the same head. The
    store must know which event it wrote.
    """
    with open_store(via, clock=lambda: NOON) as ours, open_store(url, clock=lambda: NOON) as theirs:
        say(ours, "c1", "0")
        before_recovery(ours, lambda: say(theirs, "c1", "same"))
        proxy.order(cut)
        [recorded] = say(ours, "c1", "same")
        assert recorded.id == (2 if cut == "request" else 1)
        assert recorded in list(ours.follow())
        assert texts(ours, "c1") == ["0", "same", "same"]
        assert_sound(ours)


def test_a_wrong_guess_with_a_lost_answer(via, proxy, theirs):
    with open_store(via) as ours:
        say(ours, "c1", "1")
        say(theirs, "c1", "2")
        proxy.order("answer")
        [recorded] = say(ours, "c1", "3")
        assert (proxy.cuts, recorded.id) == (1, 3)
        assert texts(ours, "c1") == ["0", "1", "2", "3"]
        with pytest.raises(VersionConflict):
            say(ours, "c1", "4", expected_version=3)


# -- turns and positions
# -----------------------------------------------------------------------------------------------


def test_a_waiting_writer_has_no_number(ours, theirs, postgres_server):
    """With a number older than the turn, the events would get positions before the events of the
    previous writer.
    """
    recorder = ours._recorder
    waiting = threading.Thread(target=lambda: say(theirs, "c1", "2"))
    has_no_number = (
        "SELECT backend_xid IS NULL FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    )

    def hold(transaction):
        transaction.conversation("c1")
        transaction.value("last_position")  # This question sends the server the lock.
        if not waiting.ident:
            waiting.start()
        until(lambda: postgres_server.sql(has_no_number))
        return postgres_server.sql(has_no_number)

    assert recorder.transact(hold) == "t"
    waiting.join()
    assert texts(ours, "c1") == ["0", "2"]


def test_positions_of_a_transaction_over_two_conversations(ours, theirs, postgres_server):
    say(theirs, "c2", "0")
    recorder = ours._recorder
    attempts = []

    def both(transaction):
        transaction.conversation("c1")
        transaction.value("last_position")  # With this question, the transaction gets its number.
        between = threading.Thread(target=lambda: say(theirs, "c2", "x"))
        attempts.append(between)
        between.start()
        # In the first attempt, the other writer appends. In the second one, it waits for the lock.
        until(lambda: not between.is_alive() or lock_waiters(postgres_server))
        two = transaction.conversation("c2")
        transaction.insert(two.key, [row(two.version)])

    recorder.transact(both)
    attempts[-1].join()
    assert len(attempts) == 2
    with recorder.read() as reader:
        placed = [
            placed_row.row[0]
            for placed_row in reader.placed_rows(0, 9)
            if placed_row.conversation == "c2"
        ]
    assert placed == [0, 1, 2, 3]
