"""Encrypted and compressed stores have the same histories as plain ones, in other bytes. The tests
read these bytes without the store.
"""

import base64
import logging
import sys
import zlib

import pytest
import zstandard
from hypothesis import given, strategies as st
from pydantic import SecretStr

import foldlog
from foldlog.eventstore import (
    CondensationRequest,
    CorruptEvent,
    InvalidArgument,
    KeyRing,
    KeyUnavailable,
    Store,
    open_store,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.log.row import PLAIN, NotAsWritten
from foldlog.eventstore.log.seal import (
    EVENT_BYTES_MAX,
    WriteSettings,
    compress,
    decompress,
)
from foldlog.eventstore.maintenance.backup import back_up
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.recorders.types import as_rows
from foldlog.projections import Views
from tests.golden.rows import rows
from tests.reading import reading
from tests.said import said, say, texts
from tests.sound import assert_sound, problems
from tests.stored_rows import execute, replace, with_fields

OLD = SecretStr("11" * 32)
NEW = SecretStr(base64.b64encode(b"n" * 32).decode())
KEYS = KeyRing([OLD])
TEXT = "a private text, a private text, a private text"
COMPRESSIONS = ["none", "zlib", "zstd"]


def fill(store, count, name="c1"):
    for n in range(count):
        say(store, name, f"{n} {TEXT}", idempotency_key=f"turn-{n}")


def encodings(path):
    statement = "SELECT meta_field(meta, 'encoding') FROM events WHERE conversation > 0"
    return {encoding for (encoding,) in execute(path, statement)}


@given(st.binary(max_size=2_000), st.sampled_from(COMPRESSIONS))
def test_compressed_bytes_are_read_unchanged(body, compression):
    assert decompress(*compress(compression, body)) == body


@given(st.integers(0, 3), st.binary(max_size=200))
def test_hostile_bytes_are_refused(encoding, stored):
    try:
        assert type(decompress(encoding, stored)) is bytes
    except NotAsWritten:
        assert encoding != PLAIN


def test_decompression_bomb_takes_no_memory():
    claims_a_terabyte = (
        bytes.fromhex("28b52ffd") + b"\xe0" + (2**40).to_bytes(8, "little") + bytes(20)
    )
    with pytest.raises(NotAsWritten):
        decompress(2, claims_a_terabyte)


# -- keys
# --------------------------------------------------------------------------------------------------


def test_without_the_key_a_conversation_is_only_listed(path):
    with open_store(path, keys=KEYS) as store:
        fill(store, 20)
    with open_store(path) as store:
        assert [(row.id, row.version) for row in store.conversations()] == [("c1", 20)]
        for attempt in (
            lambda: list(store.events("c1")),
            lambda: list(store.follow()),
            lambda: say(store, "c1", "x"),
            lambda: say(store, "c1", "x", idempotency_key="new"),
            lambda: store.ingest("c1", [said("x")] * 21),
        ):
            with pytest.raises(KeyUnavailable, match="set FOLDLOG_KEY or FOLDLOG_KEY_FILE"):
                attempt()
        assert store.version("c1") == 20
        assert ["could not be checked" in problem for problem in problems(store)] == [True]


def test_wrong_key_names_the_missing_one(path):
    with open_store(path, keys=KEYS) as store:
        fill(store, 20)
    with open_store(path, keys=KeyRing([NEW])) as store:
        with pytest.raises(KeyUnavailable, match=f"is encrypted under key {KEYS.current}"):
            list(store.events("c1"))
        fill(store, 20, "c2")
        assert len(texts(store, "c2")) == 20


def test_keys_from_the_environment_or_a_file(tmp_path):
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(f"# the newest first\n{NEW.get_secret_value()}\n\n{OLD.get_secret_value()}\n")
    new = KeyRing([NEW])
    both = KeyRing.from_environment({"FOLDLOG_KEY_FILE": str(file)})
    assert both.current == new.current
    secret = b"s" * 48
    assert both.unwrap("c1", KEYS.current, KEYS.wrap("c1", secret)).secret == secret
    ring = KeyRing.from_environment(
        {"FOLDLOG_KEY": f"{NEW.get_secret_value()} {OLD.get_secret_value()}"}
    )
    assert repr(ring) == repr(both)
    assert KeyRing.from_environment({}) is None


def test_key_file_that_others_can_read(tmp_path):
    file = tmp_path / "keys"
    file.write_text(NEW.get_secret_value())
    for mode in (0o640, 0o604):
        file.chmod(mode)
        with pytest.raises(
            KeyUnavailable, match=rf"has mode {mode:04o}, so other users can read it; .*chmod 600"
        ):
            KeyRing.from_file(str(file))
    file.chmod(0o400)
    assert KeyRing.from_file(str(file)).current == KeyRing([NEW]).current


@pytest.mark.parametrize("environment, says", rows("refusals.json", "environments without a key"))
def test_malformed_key_is_not_shown(environment, says):
    with pytest.raises(KeyUnavailable, match=says) as raised:
        KeyRing.from_environment(environment)
    shown = f"{raised.value} {raised.value.__context__!r}"
    assert "swordfish" not in shown
    assert "ab" * 31 not in shown


@pytest.mark.parametrize("secrets", [[b"\7" * 32], b"\7" * 32, None, [[OLD]], [None]])
def test_key_of_another_type_is_not_shown(secrets):
    with pytest.raises(
        InvalidArgument, match=r"must be a text or a SecretStr, not of type .* with 'openssl"
    ) as raised:
        KeyRing(secrets)
    assert "x07" not in str(raised.value)


def test_key_is_never_shown_or_logged(path, caplog):
    caplog.set_level(logging.DEBUG)
    with open_store(path, keys=KEYS) as store:
        fill(store, 20)
        shown = f"{KEYS!r} {KEYS} {store!r} {vars(KEYS)} {store.database.settings!r} {caplog.text}"
    assert OLD.get_secret_value() not in shown
    assert repr(bytes.fromhex(OLD.get_secret_value())) not in shown


def test_data_key_of_another_conversation_is_refused(path):
    with open_store(path, keys=KEYS) as store:
        fill(store, 2)
        fill(store, 2, "c2")
    execute(
        path,
        "UPDATE conversations SET sealed_key = (SELECT sealed_key FROM conversations"
        " WHERE id = 'c1') WHERE id = 'c2'",
    )
    with open_store(path, keys=KEYS) as store:
        with pytest.raises(
            KeyUnavailable, match="is damaged, or it belongs to another conversation"
        ):
            list(store.events("c2"))
        assert len(texts(store, "c1")) == 2


def test_salt_is_encrypted(path):
    with open_store(path, keys=KEYS) as store:
        fill(store, 2)
    assert execute(path, "SELECT salt FROM conversations") == [(b"",)]


# -- keys of a transaction that is rolled back
# --------------------------------------------------------------------------------------------------


class Refusing:
    """A projection that fails after everything was written, so the transaction is rolled back."""

    name = "refusing"
    refuses = True

    def project(self, snapshot, events):
        list(snapshot.events())
        if self.refuses:
            raise RuntimeError("not now")


@pytest.mark.parametrize("begun", [0, 3])
@pytest.mark.parametrize("on", ["memory", "file"])
def test_key_that_was_never_committed_encrypts_nothing(path, begun, on):
    """A transaction that is rolled back takes its data key with it. Nobody may go on writing with
    this key, neither in a new conversation nor in one that is encrypted from now on.
    """
    recorder = MemoryRecorder() if on == "memory" else SQLiteRecorder(str(path))
    fill(Store(recorder), begun)
    store = Store(recorder, WriteSettings(keys=KEYS))
    refusing = Refusing()
    events = [said("x"), CondensationRequest()]
    store.register(refusing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not now"):
            store.append("c1", events, expected_version=begun)
    refusing.refuses = False
    store.append("c1", events, expected_version=begun)
    assert len(texts(Store(recorder, WriteSettings(keys=KEYS)), "c1")) == begun + 2
    assert_sound(store)
    store.close()


# -- an attacker who has the file but not the key
# ----------------------------------------------------------------------------------


def replace_row(path, event_id, content, encoding=PLAIN, body=None):
    """Put a row in the place of another one, with a checksum that is right."""
    statement = f"SELECT id, meta, body FROM events WHERE conversation > 0 AND id = {event_id}"
    (row,) = as_rows(execute(path, statement))
    stored = body or encode(said(content)).body
    replace(path, "c1", with_fields(row, encoding=encoding, body=stored))


def test_every_read_refuses_a_plain_row(path):
    with open_store(path, keys=KEYS) as store:
        fill(store, 3)
    replace_row(path, 1, "deploy now")
    with open_store(path, keys=KEYS) as store:
        for read in (
            lambda: texts(store, "c1"),
            lambda: list(store.log("c1")),
            lambda: list(store.follow()),
            lambda: list(store.events("c1", 1, 2)),
            lambda: Views(store).current("c1"),
            lambda: say(store, "c1", f"1 {TEXT}", idempotency_key="turn-1"),
            lambda: store.ingest("c1", [said(f"{n} {TEXT}") for n in range(4)]),
        ):
            with pytest.raises(
                CorruptEvent, match="the event is plain text, but its conversation is encrypted"
            ):
                read()
        assert "the event is plain text" in problems(store)[0]


def test_plain_rows_after_another_process_encrypts(path):
    with open_store(path) as plain:
        fill(plain, 3)
    with open_store(path, keys=KEYS) as long_lived:
        assert len(list(long_lived.follow())) == 3
        assert len(texts(long_lived, "c1")) == 3
        with open_store(path, keys=KEYS) as other:
            list(rekey(other))
        # All rows are replaced, because an encrypted row among them would tell the process that the
        # conversation is encrypted now.
        for event_id in range(3):
            replace_row(path, event_id, "deploy now")
        for read in (lambda: list(long_lived.follow()), lambda: texts(long_lived, "c1")):
            with pytest.raises(
                CorruptEvent, match="the event is plain text, but its conversation is encrypted"
            ):
                read()


def test_only_a_checkpoint_shows_a_replaced_conversation(path):
    """docs/PRIVACY.md says that a checkpoint is needed to find a conversation that is replaced as a
    whole, or put back to an earlier state.
    """
    earlier = path.with_name("earlier.db")
    forged = path.with_name("forged.db")
    with open_store(path, keys=KEYS) as store:
        fill(store, 3)
        back_up(store, str(earlier))
        say(store, "c1", "later")
        note = make_checkpoint(store)
    with open_store(f"sqlite:///{forged}") as store:
        fill(store, 4)
    for other, length in ((earlier, 3), (forged, 4)):
        with open_store(f"sqlite:///{other}", keys=KEYS) as store:
            assert len(texts(store, "c1")) == length
            assert_sound(store)
            assert any(verdict.findings for verdict in verify_against(store, note))


# -- bodies that are larger than they look
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_no_body_is_decompressed_beyond_the_limit(path, compression):
    large = said("a" * (EVENT_BYTES_MAX + 1_000))
    with open_store(path) as store:
        fill(store, 3)
    body = encode(large).body
    smaller = zlib.compress(body) if compression == "zlib" else zstandard.compress(body)
    replace_row(path, 1, "", COMPRESSIONS.index(compression), smaller)
    with open_store(path) as store:
        with pytest.raises(CorruptEvent, match=r"has more than 16,777,216 bytes"):
            texts(store, "c1")
        assert len(list(store.events("c1", 2))) == 1


@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_body_over_the_limit_is_not_compressed(tmp_path, compression):
    large = said("a" * (EVENT_BYTES_MAX + 1_000))
    with (
        open_store(
            f"sqlite:///{tmp_path}/a.db",
            event_bytes_max=2 * EVENT_BYTES_MAX,
            compression=compression,
        ) as source,
        open_store(f"sqlite:///{tmp_path}/b.db", compression=compression) as target,
    ):
        source.append("c1", large, expected_version=0)
        assert [moved.problem for moved in copy_store(source, target)] == [None]
        assert texts(target, "c1") == texts(source, "c1") == [large.content]
        list(rekey(target))
        assert texts(target, "c1") == [large.content]
    assert encodings(tmp_path / "a.db") == encodings(tmp_path / "b.db") == {PLAIN}


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_no_guess_can_be_checked_without_the_key(tmp_path, compression):
    """A fork has the salt of its parent, which may be plain. So the salt of an event is encrypted
    with its body.
    """
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "plain", "x")
    with open_store(f"sqlite:///{path}", keys=KEYS, compression=compression) as store:
        store.fork("plain", 1, "fork")
        say(store, "fork", "y", "z")
        with reading(store, "fork") as read:
            rows = read.rows(1, 3, 2)
        assert len(rows) == 2
        assert all(hash_chain.commitment_of(row.proof, row.body) for row in rows)
        salts = [row.proof[32:] for row in rows]
    content = path.read_bytes()
    assert all(len(salt) == 16 and salt not in content for salt in salts)
    assert all(row.head in content for row in rows)


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_events_of_one_append_have_salts_of_their_own(path, keys):
    """With the salt of a neighbour, anybody could confirm a guess of a text that was redacted."""
    source = "".join(f'{{"role": "user", "content": "line {number}"}}\n' for number in range(9))
    path.with_name("made.jsonl").write_text(source)
    with foldlog.open(f"sqlite:///{path}", keys=keys) as histories:
        histories["c1"].append([said(f"text {number}") for number in range(9)])
        (imported,) = histories.import_(path.with_name("made.jsonl"), format="openai-chat")
        imported.view()
        salts = []
        for name in ("c1", imported.id):
            with reading(histories.store, name) as read:
                salts += [row.proof[32:] for row in read.rows(0, 9, 9)]
    assert len({*salts}) == len(salts) == 18
    assert {*map(len, salts)} == {16}


def test_key_file_that_is_no_text_is_named(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(b"\xff" * 64)
    file.chmod(0o600)
    with pytest.raises(KeyUnavailable, match=r"cannot be read: 'utf-8' codec can't decode"):
        KeyRing.from_file(str(file))
    with pytest.raises(KeyUnavailable, match=r"cannot be read: Is a directory;"):
        KeyRing.from_file(str(tmp_path))
    with pytest.raises(KeyUnavailable, match="cannot be read: embedded null byte;"):
        KeyRing.from_file("key\0")


def test_data_key_of_an_unknown_form_is_refused():
    ring = KeyRing([OLD])
    wrapped = ring.wrap("c", b"s" * 32)
    assert ring.unwrap("c", ring.current, wrapped)
    for name, changed in (("c", b"\xff" + wrapped[1:]), ("d", wrapped)):
        with pytest.raises(KeyUnavailable, match=f"data key of conversation '{name}'"):
            ring.unwrap(name, ring.current, changed)


def test_missing_package_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(KeyUnavailable, match="encryption needs the package 'cryptography'; "):
        KeyRing([OLD])
