"""An erased conversation is gone: from every reader, from the tables, and from the bytes of the
files.
"""

import random
import threading
from datetime import UTC, datetime
from functools import partial

import pytest

from foldlog.eventstore import (
    CondensationRequest,
    ConversationErased,
    KeyRing,
    Observation,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.recorders.sqlite import rewriting
from foldlog.eventstore.recorders.types import Record, as_rows
from tests.between import Killed
from tests.crash.bytes_left import bytes_left
from tests.privacy import erased
from tests.reading import reading
from tests.said import said, say
from tests.sound import assert_sound
from tests.stored_rows import execute

SECRET = "Mrs Alva Quist, account 55-17-204"
KEY = KeyRing(["11" * 32])


class Keeper:
    """A projection that keeps a private text, as it should not."""

    name = "keeper"

    def project(self, snapshot, events):
        snapshot.put_records("keeper", [Record(snapshot.version, 1, SECRET.encode())])


def files_with(folder, text):
    return [path.name for path in sorted(folder.iterdir()) if text in path.read_bytes()]


@pytest.mark.parametrize("keys", [None, KEY], ids=["plain", "encrypted"])
def test_erasure_overwrites_rows_and_keys(tmp_path, keys):
    long = Observation(content=SECRET * 2_000)  # In the file, it has overflow pages.
    with open_store(tmp_path / "history.db", keys=keys) as store:
        store.register(Keeper())
        events = [said(SECRET), long, CondensationRequest(reason=SECRET)]
        store.append("secret", events, expected_version=0, idempotency_key=SECRET)
        with store.database.recorder.read() as reader:
            conversation = reader.conversation("secret")
            stored = [row.body for row in as_rows(reader.rows(conversation.key, 0, 10, 10))]
        assert bool(files_with(tmp_path, SECRET.encode())) is (keys is None)
        erased(store, "secret")
    for secret in (SECRET.encode(), conversation.sealed_key or SECRET.encode(), *stored):
        assert files_with(tmp_path, secret) == []


def test_erasure_during_an_import(tmp_path):
    path = tmp_path / "history.db"

    def history():
        for n in range(3_000):
            if n == 2_500:
                say(store, "coming", SECRET)
                erased(store, "coming")
                vacuum(store)
                assert files_with(tmp_path, SECRET.encode()) == []
            yield said(f"{n} {SECRET}")

    with open_store(path) as store, open_store(path) as importing:
        with pytest.raises(ConversationErased):
            importing.ingest("coming", history())
        erased(store, "coming")
        vacuum(store)
        assert files_with(tmp_path, SECRET.encode()) == []


def mark(kind, name):
    """Return a mark that the texts of a conversation repeat every few bytes, so that a short rest of
    a text shows it too.
    """
    return f"{kind}{name}~"


@pytest.fixture
def keyed_path(path):
    """A store of two conversations whose events have keys."""
    with open_store(path, durability="relaxed") as store:
        for n in range(200):
            keyed(store, "secret" if n % 3 else "other", n)
    return path


def keyed(store, name, n):
    """Append an event under an idempotency key that sorts anywhere among the keys of its
    conversation.
    """
    key = f"{random.Random(n).random()}{mark('k', name) * 20}"
    say(store, name, mark("b", name) * (1 + n % 50), idempotency_key=key)


SECRETS = [mark("b", "secret"), mark("k", "secret")]


# -- bytes pending
# --------------------------------------------------------------------------------------------------


def test_erasure_leaves_bytes_until_vacuum(tmp_path, keyed_path):
    with open_store(keyed_path) as store:
        assert not store.database.bytes_pending
        assert erased(store, "secret").bytes_pending
    with open_store(keyed_path) as store:
        assert [(row.id, row.bytes_pending) for row in store.conversations()] == [
            ("other", False),
            ("secret", True),
        ]
        assert store.conversation("secret").bytes_pending
        result = vacuum(store)
        assert not store.database.bytes_pending
        assert not store.conversation("secret").bytes_pending
        assert result.bytes_after == keyed_path.stat().st_size, "nothing is left in the log"
        assert bytes_left(tmp_path, SECRETS) == []


def test_rekey_leaves_bytes_until_vacuum(tmp_path, keyed_path):
    with open_store(keyed_path, keys=KeyRing(["ab" * 32])) as store:
        assert [result.bytes_pending for result in rekey(store)] == [None, True]
        # The second run changes no row, and the bytes are still there.
        assert [result.bytes_pending for result in rekey(store)] == [None, True]
        vacuum(store)
        assert [result.bytes_pending for result in rekey(store)] == [None, False]
        assert bytes_left(tmp_path, SECRETS[:1]) == []


def test_vacuum_waits_for_readers(tmp_path, keyed_path):
    with open_store(keyed_path) as store, open_store(keyed_path) as other:
        assert erased(store, "secret").bytes_pending
        with (
            reading(other, "other"),
            pytest.raises(StoreUnavailable, match="the deleted bytes are still in the files"),
        ):
            vacuum(store, patience_s=0.1)
        assert not vacuum(store).bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []


def test_vacuum_completes_a_killed_erasure(tmp_path, keyed_path, monkeypatch):
    def killed(*_):
        raise Killed

    with open_store(keyed_path) as store:
        with monkeypatch.context() as patched:
            patched.setattr(
                "foldlog.eventstore.recorders.sqlite.transaction.SQLiteTransaction.delete", killed
            )
            with pytest.raises(Killed):
                erased(store, "secret")
        assert store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) != []
        vacuum(store)
        assert not store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []
        assert_sound(store)


def test_erasure_during_a_vacuum_leaves_bytes(tmp_path, keyed_path, monkeypatch):
    rewrite = rewriting.rewrite
    with open_store(keyed_path) as store, open_store(keyed_path) as other:
        keyed(store, "last", 10_000)
        erased(store, "secret")

        erasing = threading.Thread(target=partial(erase, other, "last", reason="asked to"))

        def then_erase(writer):
            pending = rewrite(writer)
            erasing.start()
            return pending

        # Because of the reader, the log cannot be emptied at once.
        with monkeypatch.context() as patched, reading(other, "other"):
            patched.setattr(rewriting, "rewrite", then_erase)
            with pytest.raises(StoreUnavailable, match="the deleted bytes are still in the files"):
                vacuum(store, patience_s=1)
        erasing.join()
        assert store.database.bytes_pending
        assert not vacuum(store).bytes_pending
        assert bytes_left(tmp_path, [*SECRETS, mark("b", "last"), mark("k", "last")]) == []


def test_erasure_between_two_vacuums_leaves_bytes(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        for name in ("first", "last"):
            say(store, name, "x")
        recorder = store.database.recorder
        erased(store, "first")
        with recorder._alone() as writer:
            pending = rewriting.rewrite(writer)
        assert not vacuum(store).bytes_pending, "a second vacuum ends before the first one"
        erased(store, "last")
        with recorder._alone() as writer:
            assert rewriting.empty_log(writer, pending)
        assert store.database.bytes_pending


def test_a_conversation_with_an_impossible_time_is_erased(tmp_path):
    """Otherwise its tombstone would have that time, and nobody could list the conversations."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "a", "one")
        say(store, "b", "two")
    execute(path, f"UPDATE events SET meta = meta_with(meta, 'recorded_at', {2**62}) WHERE id = 0")
    with open_store(path) as store:
        before = datetime.now(UTC)
        for name in ("a", "b"):
            assert before <= erased(store, name).erased_at <= datetime.now(UTC)
        assert [row.id for row in store.iter_conversations()] == ["a", "b"]


def test_expected_conversation_was_erased_meanwhile():
    with open_store("memory:") as store:
        store.append("c", [said("one")], expected_version=0)
        row = store.conversation("c")
        erase(store, "c", reason="asked to")
        assert erase(store, "c", reason="retention", expected=row).erased_reason == "asked to"
