"""Encrypted conversations, while two processes encrypt, rotate or erase at once, and after commits
whose outcome is unknown. Nothing that was acknowledged is lost, doubled or unreadable.
"""

import contextlib

import psycopg
import pytest

from foldlog._reports.store_info import store_info
from foldlog.eventstore import ANY_VERSION, KeyRing, open_store
from foldlog.eventstore.log.importing import DETACH, REKEY, delete_rows
from foldlog.eventstore.maintenance import rekey as rekeying
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.types import Conversation, row_of
from tests.privacy import erased
from tests.said import say, texts
from tests.sound import assert_sound
from tests.waiting import in_thread, until

from .conftest import CUTS, before_recovery, lock_waiters

OLD = "ab" * 32
NEW = "cd" * 32


def test_a_change_of_keys_leaves_no_old_bytes(url):
    with open_store(url, keys=KeyRing([OLD])) as store:
        say(store, "c1", "0", "1")
    with open_store(url, keys=KeyRing([NEW, OLD])) as store:
        assert [rekeyed.key for rekeyed in rekey(store)] == [True]
        assert not store_info(store).bytes_pending


# -- commits in doubt
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("expected", [ANY_VERSION, 0], ids=["any", "new"])
def test_the_first_encrypted_append_is_stored_once(via, proxy, cut, expected):
    with open_store(via, keys=KeyRing(NEW)) as store:
        proxy.order(cut, mark=b"set_key")
        [recorded] = say(store, "c1", "once", expected_version=expected)
        assert proxy.cuts == 1
        assert list(store.follow()) == [recorded]
        assert_sound(store)


@pytest.mark.parametrize("cut", CUTS)
def test_another_process_encrypts_first(url, via, proxy, cut, plain):
    """Two processes with a key make their first append to a plain conversation, and one of them
    does not learn its outcome.
    """
    with open_store(via, keys=KeyRing(NEW)) as ours, open_store(url, keys=KeyRing(NEW)) as theirs:
        before_recovery(ours, lambda: say(theirs, "c1", "theirs"))
        proxy.order(cut)
        [recorded] = say(ours, "c1", "ours")
        assert proxy.cuts == 1
        in_order = ["theirs", "ours"] if cut == "request" else ["ours", "theirs"]
        assert texts(ours, "c1") == ["plain", *in_order]
        assert recorded in list(theirs.follow())
        assert_sound(theirs)


@pytest.mark.parametrize("cut", CUTS)
def test_an_append_is_found_after_a_rotation(url, via, proxy, cut, plain):
    with (
        open_store(via, keys=KeyRing([OLD, NEW])) as ours,
        open_store(url, keys=KeyRing([NEW, OLD])) as theirs,
    ):
        before_recovery(ours, lambda: list(rekey(theirs, "c1")))
        proxy.order(cut)
        say(ours, "c1", "ours")
        assert proxy.cuts == 1
        assert texts(theirs, "c1") == ["plain", "ours"]
        assert_sound(theirs)


@pytest.mark.parametrize("cut", CUTS)
def test_a_reported_rotation_is_done(url, via, proxy, cut):
    with open_store(url, keys=KeyRing(OLD)) as store:
        say(store, "c1", "precious")
    with open_store(via, keys=KeyRing([NEW, OLD])) as store:
        proxy.order(cut, mark=b"set_key")
        assert [(rekeyed.conversation, rekeyed.key) for rekeyed in rekey(store)] == [("c1", True)]
        assert proxy.cuts == 1
    with open_store(url, keys=KeyRing(NEW)) as store:
        assert texts(store, "c1") == ["precious"]


@pytest.mark.parametrize("cut", CUTS)
def test_a_lost_data_key_is_stored_again(via, proxy, cut, plain):
    """Only the sealed key itself says whose it is: the salt of each encrypted conversation is
    empty.
    """
    key = key_of(plain)
    with open_store(via) as store:
        recorder = store._recorder
        first = Conversation(key, "c1", 1, b"", key_id="k1", sealed_key=b"first")
        recorder.transact(lambda transaction: transaction.set_key(first))
        proxy.order(cut)
        second = first._replace(key_id="k2", sealed_key=b"second")
        recorder.transact(lambda transaction: transaction.set_key(second))
        assert proxy.cuts == 1
        with recorder.read() as reader:
            assert reader.conversation(key).sealed_key == b"second"


def test_two_staged_imports_have_two_keys(url, via, proxy):
    """Two copies of one conversation begin at once, with the same id, time and salt."""
    with open_store(via) as ours, open_store(url) as theirs:
        keys = []

        def begin(transaction):
            return transaction.begin(
                Conversation(0, "c1", 5, b"the salt of the source", visible=False)
            ).key

        before_recovery(ours, lambda: keys.append(theirs._recorder.transact(begin)))
        proxy.order("request")
        keys.append(ours._recorder.transact(begin))
        assert len(set(keys)) == 2


# -- locks
# --------------------------------------------------------------------------------------------------


def test_appends_wait_for_an_encryption(url, postgres_server, plain):
    """With two data keys for one conversation, the events under one of the keys would be
    unreadable.
    """
    ring = KeyRing(NEW)
    with (
        open_store(url, keys=ring) as sealing,
        open_store(url, keys=ring) as appending,
        contextlib.ExitStack() as end,
    ):
        database = sealing.database
        key = key_of(sealing)

        def slowly(transaction):
            transaction.conversation(key)
            append = in_thread(lambda: say(appending, "c1", "sealed"))
            end.enter_context(append)
            until(lambda: lock_waiters(postgres_server))
            return rekeying.begin(transaction, database, key, decrypt=False)

        database.recorder.transact(slowly)
        end.close()
        assert texts(sealing, "c1") == ["plain", "sealed"]
        assert_sound(appending)


def test_a_detachment_leaves_a_rekey_unfinished(postgres_server, plain):
    recorder = plain.database.recorder
    key = key_of(plain)
    end = contextlib.ExitStack()
    recorder.transact(lambda transaction: transaction.leave_unfinished(key, DETACH))

    def begin(transaction):
        transaction.conversation(key)
        end.enter_context(in_thread(lambda: delete_rows(recorder, key)))
        until(lambda: lock_waiters(postgres_server))
        transaction.leave_unfinished(key, REKEY)

    with end:
        recorder.transact(begin)
    unfinished = recorder.query(lambda reader: reader.unfinished(key))
    assert [operation.operation for operation in unfinished] == [REKEY]


def test_a_conversation_published_during_a_query(url, postgres_server):
    """The conversation is staged when the query is sent, and published when its lock is free."""
    with open_store(url) as importing, open_store(url) as asking, contextlib.ExitStack() as end:
        recorder = importing._recorder
        staged = recorder.transact(
            lambda transaction: transaction.begin(Conversation(0, "c1", 5, b"salt", visible=False))
        ).key
        recorder.transact(
            lambda transaction: transaction.insert(
                staged, [row_of(0, "m", 1, True, False, 5, 0, b"{}", b"")], staged=True
            )
        )
        locks = []

        def ask(transaction):
            assert transaction.conversation(staged) is not None
            locks.append(tuple(transaction.locks))
            transaction.conversation("c1")
            locks.append(tuple(transaction.locks))

        def publish(transaction):
            transaction.publish(staged, 1)
            transaction.value("last_position")  # This question sends the server the lock.
            end.enter_context(in_thread(lambda: asking._recorder.transact(ask)))
            until(lambda: lock_waiters(postgres_server))

        recorder.transact(publish)
        end.close()
        assert len(locks[0]) == 2, "the lock of staging, and the lock of the conversation"
        assert locks[1] == locks[0]


def test_an_erased_conversation_gets_no_key(url, schema, postgres_server):
    with open_store(url, keys=KeyRing(OLD)) as store:
        say(store, "c1", "private")
    with (
        open_store(url, keys=KeyRing(OLD)) as erasing,
        open_store(url, keys=KeyRing([NEW, OLD])) as rotating,
    ):
        with psycopg.connect(url.partition("?")[0]) as holding, contextlib.ExitStack() as end:
            holding.execute(f"SELECT * FROM {schema}.conversations FOR UPDATE")
            end.enter_context(in_thread(lambda: erased(erasing, "c1")))
            until(lambda: blocked(postgres_server) == 1)
            end.enter_context(in_thread(lambda: list(rekey(rotating))))
            until(lambda: blocked(postgres_server) == 2)
            holding.commit()
        row = postgres_server.sql(
            f"SELECT salt IS NULL, key_id IS NULL, sealed_key IS NULL FROM {schema}.conversations"
        )
        assert row == "t|t|t"


def blocked(server):
    return int(server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


def key_of(store):
    return store.query("c1", lambda reading: reading.key)


@pytest.fixture
def plain(url):
    """A store without keys that has begun c1."""
    with open_store(url) as store:
        say(store, "c1", "plain")
        yield store


# -- all of it at once
# -------------------------------------------------------------------------------------------------


def test_two_writers_and_two_rotations_lose_nothing(url):
    conversations = [f"c{n}" for n in range(25)]
    with open_store(url) as store:
        for name in conversations:
            say(store, name, "plain")
    ring = KeyRing(NEW)
    acknowledged = []

    def write(name):
        with open_store(url, keys=ring) as store:
            for conversation in conversations:
                [recorded] = say(store, conversation, name)
                acknowledged.append((conversation, recorded.id, name))

    def encrypt():
        with open_store(url, keys=ring) as store:
            list(rekey(store))

    with contextlib.ExitStack() as threads:
        for act in (encrypt, lambda: write("w0"), encrypt, lambda: write("w1")):
            threads.enter_context(in_thread(act))
    with open_store(url, keys=ring) as store:
        for conversation, place, name in acknowledged:
            assert texts(store, conversation)[place] == name
        assert len(acknowledged) == 50
        assert_sound(store)
