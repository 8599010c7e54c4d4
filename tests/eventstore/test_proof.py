"""A check against a checkpoint names what an operator has changed since, and raises no alarm for
lawful work.
"""

import base64
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from foldlog import Histories
from foldlog.eventstore import CorruptEvent, InvalidArgument, InvalidOption, KeyRing, open_store
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof import checkpoint, stored_leaves
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.merkle import (
    consistency_path,
    grown_edge,
    inclusion_path,
    leaf_hash,
    root_of,
    root_of_edge,
)
from foldlog.eventstore.proof.proofs import prove_consistency, prove_event
from foldlog.eventstore.proof.signed_note import read_key, read_note, sign
from tests.between import before_next_call
from tests.commands import run_foldlog
from tests.eventstore.test_operator import remove, remove_row, rewrite
from tests.privacy import erased, redacted
from tests.said import all_said, say
from tests.sound import changes
from tests.stored_rows import execute

KEYS = KeyRing(["22" * 32])
BYTES = bytes(range(0x60, 0x70))
LEAVES = [b"", b"\0", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", BYTES]
ROOTS = """
6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125
aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77
d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7
4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4
76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef
ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c
5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328
"""
"""The roots of the first 1, 2, … 8 leaves, as published for implementations of RFC 6962."""
C2SP_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
C2SP_NOTE = (
    "This is an example message.\n",
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuw"
    "HjG1Yu72IneyaQM=",
)
"""The example of the specification of signed notes."""

OTHER_CURVE = """
-----BEGIN PUBLIC KEY-----
MEkwEwYHKoZIzj0CAQYIKoZIzj0DAQMDMgAEV+WjpXt5TDnYId7KYX2lSvsZR2so
ooyZ3EZiRt7q++voAK8UvTVK6KCtAB2pqdZm
-----END PUBLIC KEY-----
"""
"""A public key on a curve that the package ``cryptography`` does not know."""


# -- trees and notes


def test_roots_of_rfc_6962():
    hashes = [*map(leaf_hash, LEAVES)]
    assert [root_of(hashes[:size]).hex() for size in range(1, 9)] == ROOTS.split()
    assert root_of([]) == sha256().digest()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_a_tree_grown_from_its_edge_has_the_same_root(size):
    hashes = [leaf_hash(b"%d" % number) for number in range(20)]
    edge = grown_edge(grown_edge((), 0, hashes[:size]), size, hashes[size:])
    assert root_of_edge(edge) == root_of(hashes)
    assert len(edge) == 2  # 16 + 4 leaves


def test_paths_of_rfc_6962():
    hashes = [*map(leaf_hash, LEAVES)]
    known = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
    assert inclusion_path(0, hashes)[0].hex() == known
    assert inclusion_path(0, hashes[:1]) == []
    assert consistency_path(1, hashes)[0].hex() == known
    assert len(consistency_path(6, hashes)) == 3
    assert consistency_path(8, hashes) == []


class Example(str):
    """The text of a note that is no checkpoint."""

    text = C2SP_NOTE[0]
    signatures = C2SP_NOTE[1:]


def test_a_signature_of_another_implementation_is_read():
    assert read_key(C2SP_KEY, "").is_signer_of(Example())


def test_changed_text_has_no_true_signature():
    changed = Example()
    changed.text = "This is another message.\n"
    assert not read_key(C2SP_KEY, "").is_signer_of(changed)


ROOT = base64.b64encode(bytes(32)).decode()
"""A root as a checkpoint writes it."""


def key_line(name, kind, public):
    """Return a public key in the form of signed notes."""
    key_id = sha256(b"%b\n%c%b" % (name.encode(), kind, public)).digest()[:4]
    return f"{name}+{key_id.hex()}+{base64.b64encode(bytes([kind]) + public).decode()}"


@pytest.mark.parametrize("line", ["— w a", "— w é", "junk", "", "x"])
def test_line_that_is_no_signature_is_passed_over(line):
    key = Ed25519PrivateKey.generate()
    verifier = read_key(key_line("x", 1, key.public_key().public_bytes_raw()), "")
    note = read_note(f"x\n1\n{ROOT}\n\n{line}\n")
    assert not verifier.is_signer_of(note)
    signature = verifier.signature_line(key.sign(note.text.encode()))
    assert verifier.is_signer_of(read_note(f"{note}{signature}\n"))


@pytest.mark.parametrize("change", [lambda text: text.rstrip("="), lambda text: f"!{text}"])
def test_signature_in_another_spelling_does_not_count(change):
    key = Ed25519PrivateKey.generate()
    verifier = read_key(key_line("x", 1, key.public_key().public_bytes_raw()), "")
    note = read_note(f"x\n1\n{ROOT}\n\n")
    dash, name, encoded = verifier.signature_line(key.sign(note.text.encode())).split(" ")
    assert encoded.endswith("=")
    assert verifier.is_signer_of(read_note(f"{note}{dash} {name} {encoded}\n"))
    assert not verifier.is_signer_of(read_note(f"{note}{dash} {name} {change(encoded)}\n"))


def test_witness_signs_its_time():
    note = read_note(f"foldlog/x\n1\n{ROOT}\n\n")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    vkey = key_line("w.example/1", 4, public)
    key_id = bytes.fromhex(vkey.split("+")[1])
    signature = key.sign(b"cosignature/v1\ntime 1700000000\n" + note.text.encode())
    for seconds, is_true in ((1_700_000_000, True), (1_700_000_001, False)):
        stamped = base64.b64encode(key_id + seconds.to_bytes(8) + signature).decode()
        witnessed = read_note(f"{note}— w.example/1 {stamped}\n")
        assert read_key(vkey, "").is_signer_of(witnessed) is is_true


@pytest.mark.parametrize(
    "text",
    ["", *(f"a\n{size}\n{ROOT}\n\n" for size in ("x", "01", "-1")), "a\n1\nAA==\n\n", "{}"],
)
def test_text_that_is_no_checkpoint(text):
    with pytest.raises(InvalidArgument, match="not a checkpoint"):
        read_note(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a+b+c",
        C2SP_KEY.replace("530", "531"),
        "-----BEGIN X",
        key_line("w", 4, bytes(31)),
        key_line("w", 6, bytes(32)),
        OTHER_CURVE,
    ],
)
def test_text_that_is_no_key(text):
    with pytest.raises(InvalidArgument, match="Ed25519"):
        read_key(text, "x")


@pytest.mark.parametrize("text", [C2SP_KEY, "-----BEGIN X"])
def test_missing_package_names_the_extra(text, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(InvalidOption, match=r"'cryptography'; pip install .*crypto"):
        read_key(text, "x")


# -- the store


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """Make a store with plain, encrypted, forked, erased and redacted conversations, and a
    checkpoint.
    """
    folder = tmp_path_factory.mktemp("once")
    url = f"sqlite:///{folder / 'store.db'}"
    with open_store(url) as store:
        for name in ("a", "b", "c", "d", "gone", "parent"):
            store.append(name, all_said("one", "two", "three", "four"), expected_version=0)
        store.fork("parent", 2, "fork")
        say(store, "fork", "other")
        erased(store, "gone")
        make_checkpoint(store)
    with open_store(url, keys=KEYS) as store:
        store.append("secret", all_said("one", "two"), expected_version=0)
        store.append("a", all_said("five"), expected_version=4)
        note = make_checkpoint(store)
    return folder / "store.db", note


@pytest.fixture
def path(tmp_path, sound_store):
    return Path(shutil.copy(sound_store[0], tmp_path / "store.db"))


@pytest.fixture
def note(sound_store):
    return sound_store[1]


def opened(path, **options):
    return open_store(f"sqlite:///{path}", **{"keys": KEYS, **options})


def findings(path, note, **options):
    with opened(path, **options) as store:
        return changes(store, note)


def test_erasures_and_redactions_have_their_receipts(path, note):
    with opened(path) as store:
        erased(store, "b")
        redacted(store, "c", 1)
        erased(store, "parent", detach_forks=True)
        verdicts = {verdict.conversation: verdict for verdict in verify_against(store, note)}
        assert not any(verdict.findings for verdict in verdicts.values())
        assert verdicts["b"].erasure.reason == "asked for"
        [receipt] = verdicts["c"].redactions
        assert (receipt.event_ids, receipt.by) == ((1,), "me")
        later = make_checkpoint(store)
    assert findings(path, later) == findings(path, note) == {}


def test_redactions_since_the_checkpoint_are_named_without_the_key(path, note):
    with opened(path) as store:
        say(store, "secret", "three")  # the checkpoint does not prove this event
        redacted(store, "secret", 1)
        redacted(store, "secret", 2)
    with opened(path, keys=None) as store:
        verdicts = {verdict.conversation: verdict for verdict in verify_against(store, note)}
    verdict = verdicts["secret"]
    assert verdict.redacted_unread == (1,)
    assert verdict.receipts_unread == (3, 4)


def test_new_key_is_lawful(path, note):
    with opened(path) as store:
        assert [outcome.conversation for outcome in rekey(store)]
    assert findings(path, note) == {}
    without = findings(path, note, keys=None)
    unchecked = ("could not be checked", "were not encrypted at the checkpoint")
    assert all(
        any(words in text for words in unchecked) for texts in without.values() for text in texts
    )
    assert "secret" in without


def test_archive_is_compared(path, note, tmp_path):
    with opened(path) as store:
        say(store, "d", "five")
        archive(store, "d", f"file://{tmp_path}/objects")
    assert findings(path, note) == {}
    change_leaf(path, note, b"d")
    assert (
        "at version 4 its head differs from the checkpoint: its history was rewritten"
        in findings(path, note)["d"]
    )
    shutil.rmtree(tmp_path / "objects")
    assert "is missing" in findings(path, note)["d"][0]


def test_archived_fork_had_the_head_of_its_parent(path, tmp_path):
    with opened(path) as store:
        store.fork("d", 3, "e")
        note = make_checkpoint(store)
        say(store, "e", "five", "six")
        archive(store, "e", f"file://{tmp_path}/objects")
    assert findings(path, note) == {}


def change_leaf(path, note, name):
    """Change the head in a leaf of the stored list of checkpoints, as if the conversation had
    another head.
    """

    def change(stored):
        leaves = [
            replace(leaf, head=bytes(32)) if leaf.name == name else leaf for leaf in stored.leaves
        ]
        return replace(stored, leaves=tuple(leaves))

    with opened(path) as store:
        read = partial(stored_leaves.stored_records, origin=note.origin)
        stored_records = store.database.recorder.query(lambda reader: [*read(reader)])
        records = [change(stored) for stored in stored_records]
        store.database.recorder.transact(
            partial(stored_leaves.put_records, origin=note.origin, records=records)
        )


@pytest.mark.usefixtures("note")
def test_changed_leaf_is_named(path):
    """``test_operator.py`` makes all other changes."""
    with opened(path) as store:
        newest = make_checkpoint(store)
    change_leaf(path, newest, b"a")
    found = findings(path, newest)
    assert "a" in found
    assert "its list of checkpoints was changed" in found[None][0]


def test_a_row_that_cannot_be_read_stops_no_comparison(path, note):
    execute(path, "UPDATE conversations SET created_at = -5 WHERE id = 'a'")
    execute(path, "DELETE FROM conversations WHERE id = 'b'")
    found = findings(path, note)
    assert "it was not compared with the checkpoint" in found["a"][-1]
    assert found["b"] == ["it is missing, and had 4 events at the checkpoint"]


@pytest.mark.parametrize("body", ["5", "'text'", "x'00'"])
def test_an_entry_of_a_ledger_with_another_body_is_named(path, body):
    with opened(path) as store:
        assert list(rekey(store))
        note = make_checkpoint(store)
    key = "(SELECT -key FROM conversations WHERE id = 'b')"
    execute(path, f"UPDATE events SET body = {body} WHERE conversation = {key}")
    assert "its ledger was changed since the checkpoint" in findings(path, note)["b"]


@pytest.mark.parametrize("keys", [KEYS, None], ids=["with key", "without key"])
def test_a_lost_object_stops_no_comparison(path, tmp_path, keys):
    """Nothing says that an event of the object has content again."""
    with opened(path) as store:
        say(store, "secret", "three", "four")
        redacted(store, "secret", 1)
        note = make_checkpoint(store)
        assert archive(store, "secret", f"file://{tmp_path}/objects").stays is None
    shutil.rmtree(tmp_path / "objects")
    found = findings(path, note, keys=keys)["secret"]
    assert any("is missing; put the object back" in text for text in found)
    assert not any("has content again" in text for text in found)


def test_a_lost_event_that_was_redacted_has_no_content_again(path):
    with opened(path) as store:
        redacted(store, "d", 1)
        note = make_checkpoint(store)
    remove_row(path, "d", 1)
    assert findings(path, note)["d"] == ["event 1: it is missing"]


def joined_ledger(leaf):
    """Return an older leaf with the same hash: its ledger is the ledger and the extent."""
    return replace(leaf, ledger=leaf.ledger + leaf.extent.hash, extent=None)


def longer_head(leaf):
    """Return a leaf with the same hash, whose head has the first bytes of the ledger."""
    return replace(leaf, head=leaf.head + leaf.ledger[:8], ledger=leaf.ledger[8:])


@pytest.mark.parametrize("change", [joined_ledger, longer_head])
def test_leaf_with_other_fields_and_the_same_hash_is_named(path, change):
    with opened(path) as store:
        note = make_checkpoint(store)

        def put(transaction):
            records = [*stored_leaves.stored_records(transaction, note.origin)]
            for stored in records:
                leaves = [change(leaf) if leaf.extent else leaf for leaf in stored.leaves]
                assert [leaf.hash for leaf in leaves] == [leaf.hash for leaf in stored.leaves]
                changed = replace(stored, leaves=tuple(leaves))
                stored_leaves.put_records(transaction, note.origin, [changed])

        store.database.recorder.transact(put)
    problem = "the fields of a leaf do not have their lengths"
    assert any(problem in found for found in findings(path, note)[None])


# -- proofs

VERIFIER = Path(__file__).parents[2] / "clients" / "verify" / "verify.mjs"


def test_next_checkpoint_proves_an_event(path, note):
    with opened(path) as store:
        proof = prove_event(store, note, "a", 1)
        assert len(proof.links) == 3  # of the first checkpoint, although "a" has five events
        assert len(proof.path) <= 4
        say(store, "a", "six")
        with pytest.raises(InvalidArgument, match="does not cover event 5"):
            prove_event(store, note, "a", 5)


@pytest.mark.parametrize("lost", [0, 1])
def test_missing_event_is_not_proved(path, note, lost):
    remove_row(path, "a", lost)
    with opened(path) as store, pytest.raises(CorruptEvent, match=f"event {lost}: it is missing"):
        prove_event(store, note, "a", 0)


def test_other_checkpoint_is_not_continued(path, note):
    other = note._replace(root=bytes(32))
    with opened(path) as store, pytest.raises(InvalidArgument, match="does not continue"):
        prove_consistency(store, other, note)


def test_a_receipt_before_the_checkpoint_covers_no_later_erasure(tmp_path):
    """Somebody puts the content of a redacted event back, and takes it away after the checkpoint."""
    path = tmp_path / "store.db"

    def row():
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT meta, body FROM events WHERE id = 0").fetchone()

    def put(meta, body):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE events SET meta = ?, body = ? WHERE id = 0", (meta, body))

    with opened(path, keys=None) as store:
        say(store, "a", "one", "two")
    whole = row()
    with opened(path, keys=None) as store:
        redacted(store, "a", 0)
    left = row()
    put(*whole)
    with opened(path, keys=None) as store:
        checked = make_checkpoint(store)
    put(*left)
    erased_later = (
        "event 0: its content was erased since the checkpoint, and no receipt says by whom"
    )
    assert findings(path, checked, keys=None) == {"a": [erased_later]}


def test_a_checkpoint_without_the_key_proves_no_redacted_event(tmp_path):
    path = tmp_path / "store.db"
    with opened(path) as store:
        say(store, "a", "one", "two")
        redacted(store, "a", 0)
    with opened(path, keys=None) as store:
        checked = make_checkpoint(store)
    with opened(path) as store:
        found = [
            finding for verdict in verify_against(store, checked) for finding in verdict.findings
        ]
    [of_event] = [finding for finding in found if finding.first == 0]
    assert "the checkpoint was made without the key" in of_event.problem
    assert of_event.unproved


def test_event_is_named_by_a_number(path, note):
    with opened(path) as store, pytest.raises(TypeError, match="event_id"):
        prove_event(store, note, "a", "0")


def test_an_interrupted_backup_does_not_prevent_a_proof(path, note):
    left = path.with_name("left.part")
    left.touch()
    with opened(path) as store:
        store.database.recorder.transact(
            lambda transaction: transaction.leave_unfinished(-7, BACKUP, str(left))
        )
        assert any(finding.unfinished for finding in [*verify(store)][-1].findings)
        say(store, "a", "more")
        later = make_checkpoint(store)
        assert prove_consistency(store, note, later).path


def test_a_checkpoint_made_meanwhile_is_continued(path, monkeypatch):
    def check_elsewhere():
        with opened(path) as other:
            say(other, "c", "meanwhile")
            make_checkpoint(other)

    with opened(path) as store:
        say(store, "a", "more")
        before_next_call(monkeypatch, store.database.recorder, "transact", check_elsewhere)
        made = make_checkpoint(store)
        assert make_checkpoint(store) == made
        assert changes(store, made) == {}


@pytest.mark.parametrize(
    "other", [{"root": bytes(32)}, {"size": 1}, {"size": 99}], ids=["root", "fewer", "more"]
)
def test_nothing_is_proved_with_the_leaves_of_another_checkpoint(path, note, other):
    with opened(path) as store:
        say(store, "b", "five")
        later = make_checkpoint(store)._replace(**other)
        problem = "the store does not have the .* of the checkpoint, so nothing was proved"
        with pytest.raises(InvalidArgument, match=problem):
            prove_event(store, later, "a", 1)
        with pytest.raises(InvalidArgument, match=f"{problem}|does not continue"):
            prove_consistency(store, note, later)


def test_checkpoint_without_leaves_is_no_change(path, note):
    empty = note._replace(size=0, root=sha256().digest())
    with opened(path) as store, pytest.raises(InvalidArgument, match="every checkpoint continues"):
        prove_consistency(store, empty, note)


def test_lost_conversation_is_not_continued(path, note):
    remove(path, "d", 0)
    with opened(path) as store:
        later = make_checkpoint(store)
        with pytest.raises(InvalidArgument, match="conversation 'd': it is missing, and had 4"):
            prove_consistency(store, note, later)


@pytest.fixture(scope="module")
def audit(tmp_path_factory, sound_store):
    """Make the files that an auditor has: a key, two checkpoints and proofs."""
    folder = tmp_path_factory.mktemp("audit")
    path = Path(shutil.copy(sound_store[0], folder / "store.db"))
    make_keys(folder / "key.pem", folder / "public.pem")

    def make(name, *arguments):
        ran = foldlog(path, "checkpoint", "--key", folder / "key.pem", *arguments)
        assert ran.returncode == 0, ran.stderr
        (folder / name).write_text(ran.stdout)

    make("first.txt")
    with opened(path) as store:
        say(store, "b", "five")
        redacted(store, "c", 1)
        first = read_note((folder / "first.txt").read_text())
        of_redacted = prove_event(store, first, "c", 1)
    make("event.json", "--prove", "a", "1", "--in", folder / "first.txt")
    make("continued.json", "--since", folder / "first.txt")
    (folder / "redacted.json").write_bytes(msgspec.json.encode(of_redacted))
    (folder / "second.txt").write_text(proof_in(folder, "continued.json")["checkpoint"])
    (folder / "junk.txt").write_text("junk")
    (folder / "empty.txt").write_text("")
    return folder


def run_verifier(audit, *names):
    """Return the exit status and the output. A file of JavaScript never shows its own errors."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed, and runs the verifier")
    ran = subprocess.run(
        [node, VERIFIER, *names], capture_output=True, text=True, check=False, cwd=audit
    )
    return ran.returncode, ran.stdout + ran.stderr


def run_on(audit, proof, *kept):
    """Run the verifier on a proof. ``kept`` are the files of the checkpoints that were kept."""
    (audit / "changed.json").write_text(json.dumps(proof))
    return run_verifier(audit, "changed.json", "public.pem", *kept)


def proof_in(audit, name):
    return json.loads((audit / name).read_text())


def test_verifier_proves_an_event(audit):
    status, output = run_verifier(audit, "event.json", "public.pem", "first.txt")
    assert status == 0
    assert "event 1 of a, recorded at 20" in output
    assert f"is proved:\n{proof_in(audit, 'event.json')['body']}" in output


def assert_not_proved(ran, problem=""):
    status, output = ran
    assert status == 1
    assert output.startswith("not proved: ")
    assert problem in output


@pytest.mark.parametrize("field", ["body", "before", "salt", "ledger", "conversation"])
def test_verifier_refuses_a_proof_with_another_text(audit, field):
    proof = {**proof_in(audit, "event.json"), field: "00"}
    assert_not_proved(run_on(audit, proof, "first.txt"))


def test_verifier_refuses_a_proof_of_another_leaf(audit):
    proof = proof_in(audit, "event.json")
    other = 0 if proof["leaf"] else 1
    assert_not_proved(run_on(audit, {**proof, "leaf": other}, "first.txt"))


def test_verifier_refuses_a_content_that_begins_later(audit):
    """The same bytes are hashed."""
    proof = proof_in(audit, "event.json")
    shifted = {
        "event_salt": proof["event_salt"] + proof["body"][:1].encode().hex(),
        "body": proof["body"][1:],
    }
    ran = run_on(audit, {**proof, **shifted}, "first.txt")
    assert_not_proved(ran, "has 17 bytes instead of 16")


def test_verifier_refuses_a_checkpoint_that_was_changed_after_it_was_signed(audit):
    proof = proof_in(audit, "event.json")
    origin, size, rest = proof["checkpoint"].split("\n", 2)
    forged = f"{origin}\n{int(size) + 1}\n{rest}"
    (audit / "forged.txt").write_text(forged)
    ran = run_on(audit, {**proof, "checkpoint": forged}, "forged.txt")
    assert_not_proved(ran, "did not sign")


def test_verifier_proves_a_redacted_events_place(audit):
    status, output = run_verifier(audit, "redacted.json", "public.pem", "first.txt")
    assert status == 0
    assert output.startswith("the place of event 1 of c, recorded at 20")
    assert 'not its content: the owner says that it was redacted ({"at":' in output
    mark = {"body": proof_in(audit, "redacted.json")["body"], "event_salt": None}
    status, output = run_on(audit, {**proof_in(audit, "event.json"), **mark}, "first.txt")
    assert status == 1
    assert output == "not proved: the mark of the redaction belongs to another event\n"


@pytest.fixture(scope="module")
def names(audit):
    """Make proofs of an event of a conversation with an odd name, and of one that replaces an
    erased conversation. Return the folder.
    """
    path = audit / "names.db"
    for name in ("odd\nname\u202e", "again"):
        with opened(path) as store:
            say(store, name, "one\u2028two")
    with opened(path) as store:
        erased(store, "again")
        Histories(store).create("again", replace_erased=True)
        say(store, "again", "three")
        note = make_checkpoint(store)
        pem = (audit / "key.pem").read_bytes()
        line = read_key(pem.decode(), note.origin).signature_line(sign(pem, note.text))
        note = note._replace(signatures=(line,))
        (audit / "names.txt").write_text(str(note))
        for file, name in (("odd.json", "odd\nname\u202e"), ("again.json", "again")):
            (audit / file).write_bytes(msgspec.json.encode(prove_event(store, note, name, 0)))
    return audit


def test_verifier_prints_no_line_that_the_owner_chose(names):
    status, output = run_verifier(names, "odd.json", "public.pem", "names.txt")
    assert status == 0
    assert output.startswith(r"event 0 of odd\u000aname\u202e, recorded at 20")
    assert r'"content":"one\u2028two"' in output
    assert len(output.splitlines()) == 3


def test_verifier_names_the_conversation_among_those_with_its_id(names):
    status, output = run_verifier(names, "again.json", "public.pem", "names.txt")
    assert status == 0
    assert output.startswith("event 0 of again, number 2 of the conversations with this id, rec")


@pytest.mark.parametrize(
    "name, shown", [(b"caf\xe9", r"caf\udce9"), (b"\xf0\x9f\x98\x80", "\U0001f600")]
)
def test_verifier_proves_an_event_of_a_name_that_is_no_utf_8(audit, name, shown):
    """A file name in another encoding, for example, which a program took as an id."""
    path = audit / f"{name.hex()}.db"
    with opened(path) as store:
        say(store, os.fsdecode(name), "one")
    for file, options in (
        ("bytes.txt", ()),
        ("bytes.json", ("--prove", os.fsdecode(name), "0", "--in", audit / "bytes.txt")),
    ):
        ran = foldlog(path, "checkpoint", "--key", audit / "key.pem", *options)
        assert ran.returncode == 0, ran.stderr
        (audit / file).write_text(ran.stdout)
    status, output = run_verifier(audit, "bytes.json", "public.pem", "bytes.txt")
    assert (status, output.partition(", recorded")[0]) == (0, f"event 0 of {shown}")


@pytest.mark.parametrize(
    "field, value", [("conversation", [97]), ("event", "1"), ("generation", "0"), ("event", 1.5)]
)
def test_verifier_refuses_values_of_other_types(audit, field, value):
    proof = {**proof_in(audit, "event.json"), field: value}
    assert_not_proved(run_on(audit, proof, "first.txt"))


@pytest.mark.parametrize(
    "kept, later, earlier",
    [
        (["first.txt"], "only the owner showed", "you kept"),
        (["second.txt"], "you kept", "only the owner showed"),
        (["second.txt", "first.txt"], "you kept", "you kept"),
    ],
)
def test_verifier_says_which_checkpoint_was_kept(audit, kept, later, earlier):
    status, output = run_verifier(audit, "continued.json", "public.pem", *kept)
    assert status == 0
    assert output.startswith(
        f"the checkpoint with 12 leaves, which {later}, continues the one with 9, which {earlier}\n"
    )


def test_verifier_refuses_an_incomplete_path(audit):
    proof = proof_in(audit, "continued.json")
    assert_not_proved(run_on(audit, {**proof, "path": proof["path"][1:]}, "first.txt"))


@pytest.mark.parametrize(
    "arguments, status, message",
    [
        ("", 2, "usage: node verify.mjs PROOF.json"),
        # Without a kept checkpoint, there is only the owner's checkpoint in the proof.
        ("event.json public.pem", 2, "usage: "),
        ("event.json absent.pem first.txt", 1, "absent.pem cannot be read as a public key in PEM"),
        ("event.json junk.txt first.txt", 1, "junk.txt cannot be read as a public key in PEM"),
        ("junk.txt public.pem first.txt", 1, "junk.txt cannot be read as JSON"),
        ("event.json public.pem absent.txt", 1, "absent.txt cannot be read as a checkpoint"),
        ("event.json public.pem second.txt", 1, "the proof is for another checkpoint"),
        ("event.json public.pem empty.txt", 1, "the proof is for another checkpoint"),
        ("continued.json public.pem first.txt junk.txt", 1, "the proof is for another checkpoint"),
    ],
)
def test_verifier_refuses_arguments_in_one_sentence(audit, arguments, status, message):
    ended, output = run_verifier(audit, *arguments.split())
    assert ended == status
    assert output.removeprefix("not proved: ").startswith(message)
    assert output.count("\n") == (2 if status == 2 else 1)


@pytest.mark.parametrize("size", ["0", "1.5", "-1"])
def test_verifier_refuses_a_checkpoint_without_leaves(audit, size):
    note = read_note((audit / "first.txt").read_text())
    text = f"{note.origin}\n{size}\n{ROOT}\n"
    pem = (audit / "key.pem").read_bytes()
    line = read_key(pem.decode(), note.origin).signature_line(sign(pem, text))
    proof = {**proof_in(audit, "continued.json"), "earlier": f"{text}\n{line}\n"}
    (audit / "none.txt").write_text(proof["earlier"])
    status, output = run_on(audit, proof, "none.txt")
    assert (status, output) == (1, f"not proved: the checkpoint has '{size}' leaves\n")


def test_verifier_refuses_a_checkpoint_with_fewer_leaves(audit):
    first = read_note((audit / "first.txt").read_text())
    pem = (audit / "key.pem").read_bytes()
    line = read_key(pem.decode(), first.origin).signature_line

    def signed(size):
        note = first._replace(size=size)
        return str(note._replace(signatures=(line(sign(pem, note.text)),)))

    (audit / "eight.txt").write_text(signed(8))
    proof = {"earlier": signed(8), "checkpoint": signed(4), "path": []}
    status, output = run_on(audit, proof, "eight.txt")
    assert (status, output) == (1, "not proved: the later checkpoint has fewer leaves\n")


def test_verifier_refuses_json_without_a_proof(audit):
    for proof in ([], {"checkpoint": "a\n1\nAA==\n\n"}):
        status, output = run_on(audit, proof, "first.txt")
        assert (status, output.count("\n")) == (1, 1)


def make_keys(key, public):
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)


def foldlog(path, *arguments):
    """Run a command on a store. Return its exit status and what it printed."""
    words = ["store", *map(str, arguments), "--db", str(path)]
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        patch.dict(os.environ, FOLDLOG_KEY="22" * 32),
    ):
        status = run_foldlog(*words)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


# -- the command


def test_command_names_a_change(path, tmp_path):
    key = tmp_path / "key.pem"
    public = tmp_path / "public.pem"
    make_keys(key, public)
    checkpoint = tmp_path / "checkpoint.txt"
    checkpoint.write_text(foldlog(path, "checkpoint", "--key", key).stdout)
    against = ("verify", "--against", checkpoint, "--key", public)
    sound = foldlog(path, *against)
    assert sound.returncode == 0
    assert "no changes found" in sound.stdout
    with opened(path) as store:
        redacted(store, "c", 1)
    assert "event 1 redacted since the checkpoint by me" in foldlog(path, *against).stdout
    rewrite(path, "b", 1)
    changed = foldlog(path, *against)
    assert changed.returncode == 1
    assert "conversation 'b'" in changed.stderr
    assert "rewritten" in changed.stderr


def test_command_says_that_a_ledger_was_not_compared(path, tmp_path):
    checkpoint = tmp_path / "checkpoint.txt"
    checkpoint.write_text(foldlog(path, "checkpoint").stdout)
    against = ("verify", "--against", checkpoint)
    assert "ledger" not in foldlog(path, *against).stderr
    with opened(path) as store, opened(tmp_path / "copy.db") as copy:
        assert not any(row.problem for row in copy_store(store, copy))
    ran = foldlog(tmp_path / "copy.db", *against)
    assert ran.returncode == 3
    assert "not checked: its ledger was not" in ran.stderr


def test_unsigned_checkpoint_is_refused(path, tmp_path):
    make_keys(tmp_path / "key.pem", tmp_path / "public.pem")
    checkpoint = tmp_path / "checkpoint.txt"
    checkpoint.write_text(foldlog(path, "checkpoint").stdout)
    ran = foldlog(path, "verify", "--against", checkpoint, "--key", tmp_path / "public.pem")
    assert ran.returncode == 2
    assert "has no true signature" in ran.stderr


def test_sign_command_keeps_the_key(path, tmp_path):
    key = tmp_path / "key.pem"
    public = tmp_path / "public.pem"
    make_keys(key, public)
    command = (
        f"cat >{tmp_path}/text && openssl pkeyutl -sign -rawin -inkey {key} -in {tmp_path}/text"
    )
    signing = ("checkpoint", "--key", public, "--sign-command")
    signed = read_note(foldlog(path, *signing, command).stdout)
    assert read_key(public.read_text(), signed.origin).is_signer_of(signed)
    refused = foldlog(path, *signing, "echo no")
    assert refused.returncode == 2
    assert "wrote 3 bytes" in refused.stderr
    assert "has no private key" in foldlog(path, "checkpoint", "--key", public).stderr


# -- redactions that are not there, and parents


def test_a_checkpoint_reads_no_rows_of_what_was_never_redacted(tmp_path, monkeypatch):
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        say(store, "c", "0", "1")
        store.fork("c", 1, "fork")
        monkeypatch.setattr(checkpoint, "redacted_pages", lambda *_: pytest.fail("rows are read"))
        assert make_checkpoint(store)


def test_a_parent_that_was_given_later_is_named(tmp_path):
    path = tmp_path / "s.db"
    with open_store(f"sqlite:///{path}") as store:
        for name in ("a", "b"):
            say(store, name, "0", "1")
        store.fork("a", 1, "fork")
        note = make_checkpoint(store)
    execute(path, "UPDATE conversations SET parent = 1, parent_version = 0 WHERE id = 'b'")
    execute(path, "UPDATE conversations SET parent = 2 WHERE id = 'fork'")
    with open_store(f"sqlite:///{path}") as store:
        found = changes(store, note)
    was = "its parent differs from the checkpoint, at which it"
    assert f"{was} was no fork" in found["b"]
    assert f"{was} shared 1 event with 'a'" in found["fork"]
