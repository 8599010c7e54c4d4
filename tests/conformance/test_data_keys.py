"""Two stores on one recorder, as in two processes: one changes the data key of a conversation while
the other stores the rows of the conversation in another form.
"""

import pytest
from pydantic import SecretStr

from foldlog.eventstore import ConversationErased, KeyRing, KeyUnavailable, Store, open_store
from foldlog.eventstore.codec import encode
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.log.importing import continue_staging as staged_in
from foldlog.eventstore.log.row import make_rows
from foldlog.eventstore.log.seal import ENCRYPTED, WriteSettings
from foldlog.eventstore.maintenance import copy
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.types import Conversation, RecalledKey, as_rows
from tests.between import call_before
from tests.privacy import erased
from tests.said import said, say
from tests.sound import assert_sound
from tests.stored_rows import execute

OLD = SecretStr("ab" * 32)
NEW = SecretStr("cd" * 32)


def stage(store, transaction, key, rows):
    writing = staged_in(transaction, store.database, key)
    writing.insert(rows)
    writing.end()


def store_on(recorder, *secrets):
    return Store(recorder, WriteSettings("zlib", KeyRing(secrets) if secrets else None))


def stored_in(recorder, conversation="c1"):
    return recorder.query(lambda reader: reader.conversation(conversation))


@pytest.mark.parametrize("begin", ["append", "ingest", "long ingest", "fork", "copy"])
def test_plain_conversations_beside_keys_need_permission(open_recorder, begin):
    recorder = open_recorder()
    source = Store(open_recorder())
    begun = {
        "append": lambda store: say(store, "new", "x"),
        "ingest": lambda store: store.ingest("new", [said("x")]),
        "long ingest": lambda store: store.ingest("new", [said("x")] * (copy.CHUNK + 1)),
        "fork": lambda store: store.fork("plain", 1, "new"),
        "copy": lambda store: next(copy.copy_store(source, store, "new")),
    }
    say(source, "new", "x")
    plain = Store(recorder)
    say(plain, "plain", "x")
    say(store_on(recorder, OLD), "c1", "x")
    with pytest.raises(
        KeyUnavailable, match=r"'new' would be stored as plain text, .*plain=allowed"
    ):
        begun[begin](plain)
    assert {row.id for row in plain.conversations()} == {"plain", "c1"}
    say(plain, "plain", "y")
    say(store_on(recorder, NEW), "c2", "x")
    assert sorted(recorder.value("key_ids").split()) == sorted(KeyRing([OLD, NEW]).names)
    begun[begin](Store(recorder, WriteSettings(plain_allowed=True)))
    assert {row.id for row in plain.conversations()} == {"plain", "c1", "c2", "new"}
    list(rekey(store_on(recorder, NEW, OLD), decrypt=True))
    say(plain, "after the keys", "x")


def test_rows_are_not_stored_with_an_old_key(recorder):
    """A process without a key compresses plain rows while another one encrypts them: they must not
    be plain again.
    """
    say(Store(recorder), "c1", *["x" * 500] * 3)
    encrypting = store_on(recorder, NEW)
    met = call_before(recorder, 0, lambda: list(rekey(encrypting)))
    with pytest.raises(KeyUnavailable):
        list(rekey(store_on(met)))
    rows = recorder.query(lambda reader: as_rows(reader.rows(stored_in(recorder).key, 0, 9, 9)))
    assert all(row.encoding & ENCRYPTED for row in rows)
    assert_sound(encrypting)


def test_rekey_leaves_an_erased_conversation(recorder):
    say(Store(recorder), "c1", *["x" * 500] * 3)
    met = call_before(recorder, 0, lambda: erased(store_on(recorder), "c1"))
    list(rekey(store_on(met, NEW)))
    stored = stored_in(recorder)
    assert (stored.salt, stored.key_id, stored.sealed_key) == (b"", None, None)


def test_rekey_discards_a_killed_import(recorder):
    """Nobody publishes the killed import, but its rows are in the database. They must not need the
    old key.
    """
    store = store_on(recorder, OLD)
    staged = store._recorder.transact(
        lambda t: t.begin(Conversation(0, "imported", 5, hash_chain.new_salt(), visible=False))
    )
    store._recorder.transact(
        lambda t: stage(store, t, staged.key, make_rows(staged, [encode(said("x"))], 5)[0])
    )
    list(rekey(store_on(recorder, NEW, OLD)))
    assert recorder.query(
        lambda reader: (reader.conversation(staged.key), reader.unfinished())
    ) == (None, [])


def test_an_erased_conversation_gets_no_idempotency_keys(recorder):
    """A copy that goes on while its target is erased must leave nothing behind."""
    store = Store(recorder)
    say(store, "c1", "private")
    original = stored_in(recorder)
    writer = copy.CopyWriter(store.database, original, (), None)
    erased(store, "c1")
    with pytest.raises(ConversationErased):
        writer.finish([("private", RecalledKey(0, 1))], 0, (), (), ())
    assert recorder.query(lambda reader: list(reader.recalled(original.key, "", 9))) == []


def test_a_damaged_key_name_counts_as_encryption(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, keys=KeyRing([OLD])) as store:
        say(store, "c1", "x")
    execute(path, "UPDATE conversations SET key_id = ''")
    with (
        open_store(path) as store,
        pytest.raises(KeyUnavailable, match="'new' would be stored as plain text"),
    ):
        store.append("new", said("x"), expected_version=0)


def test_encryption_by_another_process_is_noticed(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as plain, open_store(path, keys=KeyRing([OLD])) as other:
        say(plain, "plain", "x")
        say(plain, "plain too", "x")
        say(other, "c1", "x")
        with pytest.raises(KeyUnavailable, match="'new' would be stored as plain text"):
            plain.append("new", said("x"), expected_version=0)
