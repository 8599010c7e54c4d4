"""What an operator changes beside the events since a checkpoint is named: redactions, sources of
imports, tombstones, times and positions. The operator makes every hash and checksum anew.
"""

import json
import shutil
import sqlite3
import zlib
from array import array
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

import foldlog
from foldlog._reports.store_info import store_info
from foldlog.eventstore import KeyRing, open_store
from foldlog.eventstore.codec import encode
from foldlog.eventstore.events import Detached, Redacted, RedactionCopied
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.redacted import without_content
from foldlog.eventstore.log.row import (
    checksum_seed,
    commitment_of,
    link_of,
    present,
    stored_event_of,
    with_checksums,
)
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.proof import checkpoint, stored_leaves
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.leaves import Extent, Leaf
from foldlog.eventstore.proof.proofs import prove_event
from foldlog.eventstore.proof.stored_leaves import leaves_of
from foldlog.eventstore.sources.blocks import GENESIS, chain_head
from tests import stored_rows
from tests.commands import run_foldlog
from tests.eventstore.test_operator import key_of, run, stored_row
from tests.privacy import erased, redacted
from tests.said import all_said, say
from tests.sound import changes, problems
from tests.stored_rows import with_fields

KEYS = KeyRing(["44" * 32])
HOUR = 3_600_000_000
MESSAGES = [
    {"role": "user", "content": "pay 100 to the mill"},
    {"role": "assistant", "content": "I pay 100 to the mill"},
]
_BEFORE = "it was not proved, because the checkpoint of an earlier version does not cover "
_MADE = _BEFORE + "how many records of its source had become events"


def opened(path, **options):
    return open_store(f"sqlite:///{path}", **options)


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory):
    """Return a sound store with imported, redacted, forked and erased conversations, and a
    checkpoint of the store.
    """
    folder = tmp_path_factory.mktemp("beside")
    path = folder / "store.db"
    for name in ("opened", "unopened"):
        source = folder / f"{name}.json"
        source.write_text(json.dumps({"messages": MESSAGES}))
        used = ["--use"] if name == "opened" else []
        run_foldlog("import", str(source), *used, "--conversation", name, "--db", str(path))
    with opened(path) as store:
        for name in ("a", "b", "c", "gone", "parent"):
            store.append(name, all_said("one", "two", "three", "four"), expected_version=0)
        redacted(store, "b", 1)
        redacted(store, "parent", 0)
        store.fork("parent", 2, "fork")
        say(store, "fork", "own")
        erased(store, "gone")
        note = make_checkpoint(store)
    assert findings(path, note) == {}
    return path, note


@pytest.fixture
def path(tmp_path, sound_store):
    return shutil.copy(sound_store[0], tmp_path / "store.db")


@pytest.fixture
def note(sound_store):
    return sound_store[1]


def findings(path, note, **options):
    """Return what a comparison with the checkpoint finds, by conversation."""
    with opened(path, **options) as store:
        return changes(store, note)


def put_redacted_form(path, name, event_id, **fields):
    """Put the redacted form of an event in its place, with other ``fields``. Return its hash."""
    row = stored_row(path, key_of(path, name), event_id)
    event = stored_event_of(name, row)
    commitment = commitment_of(row.proof, row.body)
    mark = event.redacted or Redacted(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        by="me",
        reason="mine",
        hash=commitment.hex(),
        bytes=len(row.body),
    )
    form = replace(without_content(event, mark), **fields)
    body = encode(form, ours=True).body
    stored_rows.replace(path, name, with_fields(row, body=body, proof=row.head + commitment))
    if event.redacted is None:
        count = "UPDATE conversations SET redactions = coalesce(redactions, 0) + 1 WHERE id = ?"
        run(path, count, name)
    return sha256(body).hexdigest()


def enter_copied(path, name, **fields):
    """Add an entry to the ledger of a conversation, as a copy does for a redaction of before."""
    add_entry(path, name, RedactionCopied(**fields))


def add_entry(path, name, entry):
    with opened(path) as store:

        def work(transaction):
            enter(transaction, transaction.conversation(name), entry, present())

        store.database.recorder.transact(work)


# -- redactions


def test_content_erased_with_an_entry_of_the_ledger_is_named(path, note):
    put_redacted_form(path, "a", 2)
    enter_copied(path, "a", event_ids=(2,))
    assert "event 2: its content was erased since the checkpoint" in findings(path, note)["a"][0]


def test_content_erased_with_a_whole_entry_is_listed(path, note):
    body = put_redacted_form(path, "a", 2)
    enter_copied(path, "a", event_ids=(2,), bodies=(body,))
    with opened(path) as store:
        verdicts = {verdict.conversation: verdict for verdict in verify_against(store, note)}
    [redaction] = verdicts["a"].redactions
    assert (redaction.event_ids, redaction.by, redaction.reason) == ((2,), "me", "mine")


def test_content_erased_as_a_copied_past_is_named(path, note):
    put_redacted_form(path, "a", 2)
    run(path, "UPDATE conversations SET parent_version = 4 WHERE id = 'a'")
    assert "event 2: its content was erased since the checkpoint" in findings(path, note)["a"][0]


def test_all_content_of_a_conversation_erased_is_named(path, note):
    for event_id in range(4):
        put_redacted_form(path, "a", event_id)
    enter_copied(path, "a", event_ids=(0, 1, 2, 3))
    assert len(findings(path, note)["a"]) == 4


@pytest.mark.parametrize("name, event_id", [("b", 1), ("parent", 0)])
def test_rest_of_a_redacted_event_is_covered(path, note, name, event_id):
    put_redacted_form(path, name, event_id, source="environment")
    assert "was changed" in findings(path, note)[name][0]


@pytest.mark.parametrize("name, event_id", [("b", 1), ("parent", 0)])
def test_receipt_in_a_redacted_event_is_covered(path, note, name, event_id):
    event = stored_event_of(name, stored_row(path, key_of(path, name), event_id))
    by_another = replace(event.redacted, by="somebody else")
    put_redacted_form(path, name, event_id, redacted=by_another)
    assert "was changed" in findings(path, note)[name][0]


def test_rest_of_an_event_redacted_later_is_covered(path, note):
    with opened(path) as store:
        redacted(store, "c", 1)
    assert findings(path, note) == {}
    put_redacted_form(path, "c", 1, source="environment")
    assert "its receipt is for another redacted form" in findings(path, note)["c"][0]


@pytest.mark.parametrize("has_receipt", [True, False])
def test_a_checkpoint_says_nothing_of_the_event_after_it(path, has_receipt):
    with opened(path) as store:
        say(store, "new", "one")
        note = make_checkpoint(store)
        say(store, "new", "two", "three")
        if has_receipt:
            redacted(store, "new", 1)
    put_redacted_form(path, "new", 1, source="environment")
    [problem] = findings(path, note)["new"]
    assert problem.startswith("event 1: ")
    assert "since the checkpoint" not in problem


def test_detached_fork_keeps_its_receipts(path, note):
    with opened(path) as store:
        redacted(store, "parent", 1)
        erased(store, "parent", detach_forks=True)
        assert changes(store, note) == changes(store, make_checkpoint(store)) == {}
    put_redacted_form(path, "fork", 0, source="environment")
    assert "fork" in findings(path, note)


@pytest.mark.parametrize("with_entry", [False, True])
def test_fork_that_was_detached_without_an_erasure_is_named(path, note, with_entry):
    """Lists and pages then show no fork."""
    fork, parent = key_of(path, "fork"), key_of(path, "parent")
    last = "SELECT max(position) FROM events"
    past = [stored_row(path, parent, event_id) for event_id in range(2)]
    insert = (
        "INSERT INTO events (position, conversation, id, kind, shown, structural, meta, body)"
        " VALUES (?, ?, ?, ?, ?, 0, ?, CAST(? AS TEXT))"
    )
    for row in with_checksums(checksum_seed("fork"), past):
        run(path, insert, row.id - 1_000, fork, row.id, row.kind, 1, row.meta, row.body)
    run(
        path,
        f"UPDATE conversations SET parent = NULL, published = 2, first_position = ({last}) + 1"
        " WHERE key = ?",
        fork,
    )
    run(path, f"UPDATE store SET value = ({last}) + 2 WHERE name = 'positions_given'")
    if with_entry:
        add_entry(path, "fork", Detached(parent="parent", version=2))
    assert findings(path, note) == {
        "fork": [
            "it was a fork of 'parent' at the checkpoint, and no erasure of that conversation"
            " detached it",
        ]
    }


@pytest.fixture
def copies(tmp_path):
    """Return a store and its checkpoint. Two forks have copied the same events, and the first event
    was redacted in one of them. The other has a fork.
    """
    path = tmp_path / "copies.db"
    with opened(path) as store:
        store.append("parent", all_said("one", "two", "three"), expected_version=0)
        for name in ("redacted", "kept"):
            store.fork("parent", 2, name)
            say(store, name, "own")
        erased(store, "parent", detach_forks=True)
        redacted(store, "redacted", 0)
        store.fork("kept", 3, "fork of kept")
        say(store, "fork of kept", "own")
        note = make_checkpoint(store)
    assert findings(path, note) == {}
    return path, note


def put_other_copy(path, name):
    """Put the redacted copy of the first event in the place of another copy."""
    other = stored_row(path, key_of(path, "redacted"), 0)
    row = stored_row(path, key_of(path, name), 0)
    assert commitment_of(row.proof, row.body) == commitment_of(other.proof, other.body)
    stored_rows.replace(path, name, with_fields(row, body=other.body, proof=other.proof))


def test_content_erased_as_in_another_copy_is_named(copies):
    path, note = copies
    put_other_copy(path, "kept")
    assert "event 0: its content was erased since the checkpoint" in findings(path, note)["kept"][0]


def test_content_erased_as_in_another_copy_when_a_fork_is_detached_is_named(copies):
    path, note = copies
    with opened(path) as store:
        erased(store, "kept", detach_forks=True)
    assert findings(path, note) == {}
    name = "fork of kept"
    put_other_copy(path, name)
    assert "event 0: its content was erased since the checkpoint" in findings(path, note)[name][0]


# -- sources of imports


def forge_source(path, name):
    """Change the bytes of the records of a source, with right hashes and heads."""
    key = key_of(path, name)
    with closing(sqlite3.connect(path)) as connection:
        [(count, places, body)] = connection.execute(
            "SELECT records, places, body FROM blocks WHERE conversation = ?", (key,)
        ).fetchall()
        raw = zlib.decompress(body).replace(b"100", b"999")
        index = zlib.decompressobj()
        numbers = memoryview(index.decompress(places)).cast("I")
        hashes = b""
        at = 0
        for record in range(count):
            start = at + numbers[2 * record]
            at = start + numbers[2 * record + 1]
            hashes += sha256(raw[start:at]).digest()[:16]
        connection.execute(
            "UPDATE blocks SET places = ?, body = ? WHERE conversation = ?",
            (zlib.compress(bytes(numbers)) + hashes, zlib.compress(raw), key),
        )
        head = chain_head(GENESIS, hashes)
        connection.execute("UPDATE sources SET head = ? WHERE conversation = ?", (head, key))
        connection.commit()


@pytest.mark.parametrize("name", ["opened", "unopened"])
def test_forged_source_is_named(path, note, name):
    forge_source(path, name)
    assert findings(path, note) == {
        name: ["the records of its source were changed since the checkpoint"]
    }


@pytest.mark.parametrize(
    "statement, problem",
    [
        ("UPDATE sources SET redacted = x'00000000'", "was erased without a receipt"),
        ("UPDATE sources SET format = 'atif'", "had the format 'openai-chat'"),
        ("DELETE FROM sources", "its source is missing"),
        ("UPDATE sources SET redacted = x'000000'", "list of the redacted records of conversation"),
    ],
)
def test_changed_row_of_a_source_is_named(path, note, statement, problem):
    run(path, f"{statement} WHERE conversation = {key_of(path, 'opened')}")
    assert any(problem in finding for finding in findings(path, note)["opened"])


@pytest.mark.parametrize("name", ["opened", "unopened"])
@pytest.mark.parametrize(
    "damage",
    [
        "sources SET redacted = x'000000'",
        "sources SET redacted = x'ffffff00'",
        "sources SET about = x'00'",
        "sources SET sums = x'00'",
        "sources SET encoding = 9",
        "blocks SET places = x'00'",
        "made SET places = x'00'",
    ],
)
def test_a_damaged_source_stops_no_task_and_is_not_missing(path, note, name, damage):
    key = key_of(path, name)
    table = damage.partition(" ")[0]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {damage} WHERE conversation = {key}")
        connection.commit()
        is_there = connection.execute(
            f"SELECT 1 FROM {table} WHERE conversation = {key}"
        ).fetchone()
    found = findings(path, note)
    assert [*found] == ([name] if is_there else [])
    assert not any("is missing" in problem for problem in found.get(name, ()))
    with opened(path) as source, open_store("memory:") as target:
        problems_of_copy = {
            moved.conversation: moved.problem for moved in copy_store(source, target)
        }
    assert [copied for copied, problem in problems_of_copy.items() if problem] == [*found]


def test_import_without_events_that_is_gone_is_named(path, note):
    key = key_of(path, "unopened")
    for table in ("sources", "blocks"):
        run(path, f"DELETE FROM {table} WHERE conversation = {key}")
    run(path, f"DELETE FROM conversations WHERE key = {key}")
    assert "it is missing, and had" in findings(path, note)["unopened"][0]


def test_later_import_without_events_gets_a_leaf_once(path, note, tmp_path):
    source = tmp_path / "later.json"
    source.write_text(json.dumps({"messages": MESSAGES}))
    run_foldlog("import", str(source), "--conversation", "later", "--db", str(path))
    with opened(path) as store:
        later = make_checkpoint(store)
        leaves = store.database.recorder.query(partial(leaves_of, checkpoint=later))
        # The copied file has an entry in the ledger of the store, too.
        assert [leaf.name for leaf in leaves[note.size :]] == [b"later", b""]
        assert make_checkpoint(store) == later
    forge_source(path, "later")
    assert [*findings(path, later)] == ["later"]


@pytest.fixture
def made_leaves(monkeypatch):
    """The names of the conversations of which checkpoints make leaves."""
    names = []
    really = checkpoint._NewLeaves._leaf

    def noted(self, state):
        names.append(state.id)
        return really(self, state)

    monkeypatch.setattr(checkpoint._NewLeaves, "_leaf", noted)
    return names


def import_text(path, name, *messages):
    source = path.with_name(f"{name}.json")
    source.write_text(json.dumps({"messages": [*MESSAGES, *messages]}))
    run_foldlog("import", str(source), "--conversation", name, "--db", str(path))


def test_checkpoint_makes_no_leaf_of_an_unchanged_import(tmp_path, made_leaves):
    path = tmp_path / "imports.db"
    import_text(path, "one")
    import_text(path, "other")
    with opened(path) as store:
        first = make_checkpoint(store)
        made_leaves.clear()
        assert make_checkpoint(store) == first
        assert made_leaves == []
        say(store, "spoken", "hello")
        second = make_checkpoint(store)
        made_leaves.clear()
    import_text(path, "other", {"role": "user", "content": "and 7 to the smith"})
    with opened(path) as store:
        third = make_checkpoint(store)
        assert made_leaves == ["other"]
        assert [note.size for note in (first, second, third)] == [2, 3, 4]
        assert changes(store, third) == {}


def test_records_of_the_list_are_small(tmp_path):
    """SQLite copies a whole row of ``records`` to compare its key, so a row must be small."""
    with open_store(tmp_path / "many.db", durability="relaxed") as store:
        for number in range(stored_leaves.LEAVES_A_RECORD * 2):
            say(store, f"c{number}", "hello")
        note = make_checkpoint(store)
        records = store.database.recorder.query(
            lambda reader: [*stored_leaves.stored_records(reader, note.origin)]
        )
        assert [len(record.leaves) for record in records] == [stored_leaves.LEAVES_A_RECORD] * 2
        assert changes(store, note) == {}


def test_number_of_redactions_of_a_tombstone_is_not_shown(path):
    run(path, f"UPDATE conversations SET redactions = 5 WHERE key = {key_of(path, 'gone')}")
    with opened(path) as store:
        [gone] = [row for row in store.iter_conversations() if row.id == "gone"]
    assert gone.redactions == 0


def test_record_without_events_that_was_redacted_is_listed(path, note, tmp_path, capsys):
    (tmp_path / "note.txt").write_text(str(note))
    key = key_of(path, "opened")
    run(path, f"DELETE FROM made WHERE conversation = {key}")
    run(path, f"UPDATE sources SET redacted = x'00000000' WHERE conversation = {key}")
    check = ("store", "verify", "--against", str(tmp_path / "note.txt"), "--db", str(path))
    run_foldlog(*check)
    assert "opened: record 0 of its source redacted since the checkpoint" in capsys.readouterr().out


def test_erased_record_of_an_import_without_events_is_named(path, note):
    key = key_of(path, "unopened")
    run(path, f"UPDATE sources SET redacted = x'01000000' WHERE conversation = {key}")
    assert findings(path, note) == {
        "unopened": ["record 1 of its source was erased without a receipt"]
    }


def put_between(path, name, text):
    """Put a text before the second record of a source, which no hash of a record covers."""
    key = key_of(path, name)
    with closing(sqlite3.connect(path)) as connection:
        [(places, body)] = connection.execute(
            "SELECT places, body FROM blocks WHERE conversation = ? AND first = 0", (key,)
        ).fetchall()
        index = zlib.decompressobj()
        numbers = [*memoryview(index.decompress(places)).cast("I")]
        start = numbers[0] + numbers[1]
        raw = zlib.decompress(body)
        numbers[2] += len(text)
        connection.execute(
            "UPDATE blocks SET places = ?, body = ? WHERE conversation = ? AND first = 0",
            (
                zlib.compress(array("I", numbers).tobytes()) + index.unused_data,
                zlib.compress(raw[:start] + text + raw[start:]),
                key,
            ),
        )
        connection.commit()


@pytest.mark.parametrize("name", ["opened", "unopened"])
def test_text_between_the_records_of_a_source_is_named(path, note, name):
    put_between(path, name, b', {"role": "user", "content": "pay 999"}')
    assert findings(path, note) == {
        name: ["the texts between records of its source were changed since the checkpoint"]
    }
    # White space and commas may change.
    other = "opened" if name == "unopened" else "unopened"
    put_between(path, other, b" \n, ")
    assert [*findings(path, note)] == [name]


def test_text_between_records_is_covered_by_the_leaf_that_has_the_records(tmp_path):
    path = tmp_path / "store.db"
    source = tmp_path / "log.jsonl"
    lines = [json.dumps(message) for message in MESSAGES]
    source.write_text("\n".join([lines[0], "{damaged", lines[1], ""]))
    into = ("import", str(source), "--conversation", "log")
    run_foldlog(*into, "--db", str(path))
    with opened(path) as store:
        first = make_checkpoint(store)
        assert make_checkpoint(store) == first
    source.write_text(source.read_text() + "\n".join(["{damaged too", lines[0], ""]))
    run_foldlog(*into, "--db", str(path))
    with opened(path) as store:
        second = make_checkpoint(store)
        extents = [
            leaf.extent
            for leaf in store.database.recorder.query(partial(leaves_of, checkpoint=second))
            if leaf.name == b"log"
        ]
        assert [(extent.between_from, extent.records) for extent in extents] == [(0, 2), (2, 3)]
        assert all(extent.between for extent in extents)
    assert findings(path, first) == findings(path, second) == {}
    put_between(path, "log", b"{more\n")
    assert [*findings(path, first)] == [*findings(path, second)] == ["log"]


def test_a_leaf_of_an_earlier_form_covers_no_text_between_records(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    source = tmp_path / "log.jsonl"
    lines = [json.dumps(message) for message in MESSAGES]
    source.write_text("\n".join([lines[0], "{damaged", lines[1], ""]))
    into = ("import", str(source), "--conversation", "log")
    run_foldlog(*into, "--db", str(path))
    monkeypatch.setattr(checkpoint, "FORM", 0)
    monkeypatch.setattr(stored_leaves, "FORM", 0)
    with opened(path) as store:
        earlier = make_checkpoint(store)
    monkeypatch.undo()
    uncovered = {"log": [_BEFORE + "the texts between the records of its source", _MADE]}
    assert findings(path, earlier) == uncovered
    source.write_text(source.read_text() + "\n".join(["{damaged too", lines[0], ""]))
    run_foldlog(*into, "--db", str(path))
    with opened(path) as store:
        later = make_checkpoint(store)
    assert findings(path, later) == {}
    put_between(path, "log", b"{more\n")
    assert findings(path, earlier) == uncovered
    assert [*findings(path, later)] == ["log"]


@pytest.mark.parametrize("change", ["salt = x'00'", "seed = x'00'", "parent = 1", "visible = 2"])
def test_changed_row_of_an_import_without_events_is_named(path, note, change):
    run(path, f"UPDATE conversations SET {change} WHERE id = 'unopened'")
    assert len(findings(path, note)["unopened"]) == 1


def test_number_of_redactions_is_checked(path, note):
    run(path, "UPDATE conversations SET redactions = 0 WHERE id = 'b'")
    assert findings(path, note) == {"b": ["its row counts 0 redacted events, not 1"]}


def test_what_came_after_the_checkpoint_is_counted(path, note, tmp_path, capsys):
    source = tmp_path / "later.json"
    source.write_text(json.dumps({"messages": MESSAGES}))
    run_foldlog("import", str(source), "--conversation", "later", "--db", str(path))
    with opened(path) as store:
        say(store, "a", "five", "six")
        store.fork("c", 2, "another fork")
        say(store, "another fork", "own")
        erased(store, "b")
    (tmp_path / "note.txt").write_text(str(note))
    capsys.readouterr()
    check = ("store", "verify", "--against", str(tmp_path / "note.txt"), "--db", str(path))
    assert run_foldlog(*check) == 0
    assert (
        "After the checkpoint came 3 events, 2 source records, 2 new conversations and 1 erasure."
        in capsys.readouterr().out
    )
    assert run_foldlog(*check, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["later"] == {"events": 3, "records": 2, "conversations": 2, "erased": 1}


# -- tombstones, times and positions


def test_changed_tombstone_is_named(path, note):
    run(path, "UPDATE conversations SET erased_events = 99 WHERE id = 'gone'")
    assert "tombstone was changed" in findings(path, note)["gone"][0]


def test_time_when_an_erased_conversation_began_is_covered(path, note):
    run(path, "UPDATE conversations SET created_at = created_at - 1 WHERE id = 'gone'")
    assert findings(path, note)["gone"] == [
        "the time when it began was changed since the checkpoint"
    ]


@pytest.mark.parametrize("change", ["parent = OTHER", "parent_version = 1"])
def test_parent_of_a_fork_is_covered(path, change):
    with opened(path) as store:
        store.fork("a", 2, "fork of a")
        store.fork("fork of a", 2, "fork of the fork")
        store.fork("a", 3, "fork that is gone")
        erased(store, "fork that is gone")
        later = make_checkpoint(store)
    others = {"fork of a": "b", "fork of the fork": "fork of a", "fork that is gone": "b"}
    for name, other in others.items():
        now = change.replace("OTHER", str(key_of(path, other)))
        run(path, f"UPDATE conversations SET {now} WHERE id = '{name}'")
        assert name in findings(path, later)


def test_tombstone_that_counts_records_is_named(path, note):
    run(path, "UPDATE conversations SET pending = 3 WHERE id = 'gone'")
    assert "its tombstone was changed" in findings(path, note)["gone"][0]


def test_time_when_a_conversation_began_is_covered(path, note):
    run(path, f"UPDATE conversations SET created_at = created_at - {HOUR} WHERE id = 'a'")
    assert findings(path, note)["a"] == ["the time when it began was changed since the checkpoint"]


def test_tombstone_of_a_later_generation_is_no_receipt(path, note):
    """A conversation that was made up as the former owner of the id moves the tombstone."""
    run(
        path,
        "INSERT INTO conversations (id, visible, created_at, erased_at, erased_reason,"
        " erased_events, erased_head) VALUES ('gone', 0, 1, 1, 'mine', 1, zeroblob(32))",
    )
    last = "(SELECT max(key) FROM conversations)"
    run(path, f"UPDATE conversations SET replaces = {last} WHERE id = 'gone' AND visible")
    assert (
        "its tombstone was changed or removed since the checkpoint" in findings(path, note)["gone"]
    )


def test_erasure_dated_before_the_checkpoint_is_named(path, note):
    with opened(path) as store:
        erased(store, "c")
    run(path, f"UPDATE conversations SET erased_at = erased_at - {HOUR} WHERE id = 'c'")
    assert findings(path, note)["c"] == ["its erasure is dated before its last event"]


def test_event_dated_before_the_event_before_it_is_named(path, note):
    with opened(path) as store:
        say(store, "a", "approved")
    row = stored_row(path, key_of(path, "a"), 4)
    redate(path, "a", row, stored_rows.meta_field(row.meta, "recorded_at") - HOUR)
    assert findings(path, note)["a"] == ["event 4: it is dated before the event before it"]


def redate(path, name, row, at):
    """Change the time of the last event of a conversation, and compute its head again."""
    key = key_of(path, name)
    before = stored_row(path, key, row.id - 1)
    with opened(path) as store:
        salt = store.database.recorder.query(lambda reader: reader.conversation(name)).salt
    dated = with_fields(row, recorded_at=at)
    head = link_of(before.head, salt, dated)
    stored_rows.replace(path, name, with_fields(dated, proof=head + row.proof[32:]))


def test_exchanged_positions_are_named(path, note):
    key = key_of(path, "a")
    place = "(SELECT position FROM events WHERE conversation = ? AND id = ?)"
    with closing(sqlite3.connect(path)) as connection:
        first, second = (
            connection.execute(f"SELECT {place}", (key, event_id)).fetchone()[0]
            for event_id in (1, 2)
        )
    for old, new in ((first, 10**9), (second, first), (10**9, second)):
        run(path, "UPDATE events SET position = ? WHERE position = ?", new, old)
    assert "rising positions" in findings(path, note)["a"][0]


# -- without a key


@pytest.fixture
def sealed(path):
    """A checkpoint of the store after all its conversations were encrypted."""
    with opened(path, keys=KEYS) as store:
        assert [*rekey(store)]
        store.append("secret", all_said("one", "two", "three"), expected_version=0)
        note = make_checkpoint(store)
        assert changes(store, note) == {}
    return note


def test_unchanged_encrypted_store_has_a_status_of_its_own(path, sealed, tmp_path, capsys):
    (tmp_path / "note.txt").write_text(str(sealed))
    check = ("store", "verify", "--against", str(tmp_path / "note.txt"), "--db", str(path))
    assert run_foldlog(*check) == 3
    out, err = capsys.readouterr()
    assert "no changes found in what could be checked" in out
    assert "not checked: conversation 'secret'" in err


def test_changed_encrypted_store_is_named_without_the_key(path, sealed, tmp_path, capsys):
    (tmp_path / "note.txt").write_text(str(sealed))
    key = key_of(path, "secret")
    # Exchange the events 1 and 2. No event has the id 900.
    for old, new in ((1, 900), (2, 1), (900, 2)):
        run(path, "UPDATE events SET id = ? WHERE conversation = ? AND id = ?", new, key, old)
    check = ("store", "verify", "--against", str(tmp_path / "note.txt"), "--db", str(path))
    assert run_foldlog(*check) == 1
    err = capsys.readouterr().err
    assert "found: conversation 'secret': event 1: its checksum does not match" in err


def test_records_of_an_encrypted_conversation_are_not_checked_without_the_key(path):
    with foldlog.open(path, keys=KEYS) as histories:
        note = make_checkpoint(histories.store)
        for number in range(2):
            record = {"role": "user", "content": f"record {number}"}
            histories["sealed"].append_records([record], format="openai-chat")
    with opened(path) as store:
        verdicts = [*verify_against(store, note)]
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    assert [finding.needs_key for finding in findings] == [True]


def exchange_sealed(path):
    """Exchange two events of an encrypted conversation, with right counts, times and positions."""
    first, second = (stored_row(path, key_of(path, "secret"), event_id) for event_id in (0, 1))
    for row, other in ((first, second), (second, first)):
        moved = with_fields(row, event_id=other.id, **place_of(other))
        stored_rows.replace(path, "secret", moved)


def place_of(row):
    """Return the fields of a row that depend on its place in the log."""
    return {
        "recorded_at": stored_rows.meta_field(row.meta, "recorded_at"),
        "shown_before": row.shown_before,
        "structural_before": row.structural_before,
    }


def recount_sealed(path, event_id):
    """Change the kind of an encrypted event to one of the same length, with right checksums."""
    row = stored_row(path, key_of(path, "secret"), event_id)
    stored_rows.replace(path, "secret", with_fields(row, kind="massage"))


@pytest.mark.parametrize("change", [exchange_sealed, partial(recount_sealed, event_id=1)])
@pytest.mark.parametrize("is_later", [False, True])
def test_order_and_kinds_are_proved_without_the_key(path, sealed, change, is_later):
    note = sealed
    if is_later:
        with opened(path, keys=KEYS) as store:
            say(store, "secret", "four")
            note = make_checkpoint(store)
    change(path)
    named = [text for text in findings(path, note)["secret"] if "could not" not in text]
    assert named == ["events 0 to 2: their order, kinds or times were changed since the checkpoint"]


def test_events_encrypted_later_are_proved_from_then_on(path, note):
    with opened(path, keys=KEYS) as store:
        assert [*rekey(store)]
        later = make_checkpoint(store)
    unproved = "events 0 to 3: their order was not proved: they were not encrypted at the"
    assert any(text.startswith(unproved) for text in findings(path, note)["a"])
    assert all("could not be checked" in text for text in findings(path, later)["a"])


def test_key_of_a_plain_conversation_is_named(path, note):
    run(path, "UPDATE conversations SET key_id = '65c982694d302e90' WHERE id = 'a'")
    assert findings(path, note)["a"] == [
        "its row names the key 65c982694d302e90, but it is not encrypted"
    ]


# -- the leaves of a checkpoint


_OF_FORM_0 = {
    "fork": [_BEFORE + "from where a fork comes"],
    "opened": [_BEFORE + "the texts between the records of its source", _MADE],
    "unopened": [_BEFORE + "the texts between the records of its source", _MADE],
}
_OF_FORM_1 = {"opened": [_MADE], "unopened": [_MADE]}


@pytest.mark.parametrize("form, uncovered", [(0, _OF_FORM_0), (1, _OF_FORM_1)])
def test_leaves_of_an_earlier_form_are_made_again_once(path, monkeypatch, form, uncovered):
    """What they do not cover is named."""
    monkeypatch.setattr(checkpoint, "FORM", form)
    monkeypatch.setattr(stored_leaves, "FORM", form)
    with opened(path) as store:
        say(store, "a", "five")
        earlier = make_checkpoint(store)
    monkeypatch.undo()
    with opened(path) as store:
        now = make_checkpoint(store)
        leaves = store.database.recorder.query(partial(leaves_of, checkpoint=now))
        assert changes(store, earlier) == uncovered
        assert changes(store, now) == {}
        assert make_checkpoint(store) == now
    forms = {leaf.extent.form for leaf in leaves[earlier.size :] if leaf.extent is not None}
    names = {leaf.name for leaf in leaves[earlier.size :]}
    assert forms == {2}
    assert names == {leaf.name for leaf in leaves}


def test_an_extent_of_the_first_form_hashes_its_fields():
    covered = (7).to_bytes(8, "big") + bytes(40) + 3 * sha256().digest() + (5).to_bytes(8, "big")
    assert Extent(7, created_at=5).hash == sha256(covered).digest()


def test_hash_of_an_extent_of_a_later_form_begins_with_the_form():
    covered = (
        b"\1"
        + (7).to_bytes(8, "big")
        + (5).to_bytes(8, "big")
        + bytes(40)
        + 3 * sha256().digest()
        + bytes(88)
        + sha256().digest()
    )
    assert Extent(7, created_at=5, form=1).hash == sha256(covered).digest()
    covered = b"\2" + covered[1:] + bytes(8)
    assert Extent(7, created_at=5, form=2).hash == sha256(covered).digest()


def test_hash_of_an_extent_covers_each_field():
    fields = {
        "records": 1,
        "source_head": b"h" * 32,
        "format": "atif",
        "redacted_records": (0,),
        "redacted": ((1, "ab" * 32),),
        "clear_from": 1,
        "clear": b"c" * 32,
        "between_from": 1,
        "between": b"b" * 32,
        "parent": "a",
        "parent_version": 1,
        "made": 1,
    }
    with_one = {Extent(7, form=2, **{field: value}).hash for field, value in fields.items()}
    assert len(with_one) == len(fields)
    without_one = {
        Extent(7, form=2, **{**fields, field: type(value)()}).hash
        for field, value in fields.items()
    }
    assert len(without_one) == len(fields)


# -- proofs of one event


def root_by_rfc_9162(leaf, index, size, path):
    """Return the root of the tree from the hash of a leaf, by section 2.1.3.2 of the RFC, step by
    step, with its names.
    """
    fn = index
    sn = size - 1
    r = leaf
    for p in path:
        assert sn
        if fn & 1 or fn == sn:
            r = sha256(b"\1" + p + r).digest()
            while fn and not fn & 1:
                fn >>= 1
                sn >>= 1
        else:
            r = sha256(b"\1" + r + p).digest()
        fn >>= 1
        sn >>= 1
    assert sn == 0
    return r


@pytest.mark.parametrize("name, event_id", [("opened", 1), ("b", 1), ("a", 0), ("parent", 0)])
def test_leaf_of_a_proved_event_by_another_reading_of_the_rfc(path, note, name, event_id):
    with opened(path) as store:
        proof = prove_event(store, note, name, event_id)
    head = bytes.fromhex(proof.before)
    for fields, committed in proof.links:
        linked = head + bytes.fromhex(proof.salt) + f"salted {fields}\n".encode()
        head = sha256(linked + bytes.fromhex(committed)).digest()
    version = event_id + len(proof.links)
    leaf = sha256(
        b"\0"
        + sha256(name.encode()).digest()
        + b"\0"
        + proof.generation.to_bytes(4, "big")
        + version.to_bytes(8, "big")
        + head
        + bytes.fromhex(proof.ledger)
        + bytes.fromhex(proof.extent)
    ).digest()
    steps = [bytes.fromhex(step) for step in proof.path]
    assert root_by_rfc_9162(leaf, proof.leaf, note.size, steps) == note.root


# -- the claims of docs/PROOF.md


def test_each_claim_names_the_test_that_attacks_it():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "PROOF.md").read_text()
    table = page.split("| changed since the checkpoint |", 1)[1].split("\n\n", 1)[0]
    folders = [root / "tests" / name for name in ("eventstore", "attacks", "foldlog/reports")]
    tests = "".join(path.read_text() for folder in folders for path in folder.glob("test_*.py"))
    claims = table.splitlines()[2:]
    assert len(claims) > 10
    for claim in claims:
        attack = claim.split("|")[3].strip().strip("`")
        assert f"def {attack}(" in tests, claim


def test_schema_number_is_not_read_from_a_table_of_the_operator(path):
    """A table has precedence over a function of SQLite with the same name."""
    with opened(path) as store:
        number = store_info(store).schema
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE pragma_user_version (user_version)")
        connection.execute("INSERT INTO pragma_user_version VALUES (99)")
        connection.commit()
    with opened(path) as store:
        assert store_info(store).schema == number


@pytest.mark.parametrize(
    "change",
    [
        "places = substr(places, 1, 3)",
        "places = CAST(x'00' || places AS BLOB)",
        "records = records + 1",
    ],
)
def test_damaged_index_of_a_block_is_named(path, change):
    run(path, f"UPDATE blocks SET {change} WHERE conversation = {key_of(path, 'opened')}")
    with opened(path) as store:
        [found] = [problem for problem in problems(store) if problem.startswith("opened: ")]
    assert found.startswith(
        "opened: the records of the source from 0 on cannot be read: it cannot be decompressed: "
    )


@pytest.mark.parametrize(
    "fields, has_right_lengths",
    [
        ({}, True),
        ({"source_head": b"x" * 32, "clear": b"y" * 32, "between": b"z" * 32}, True),
        ({"source_head": b"x" * 31}, False),
        ({"source_head": b"x" * 33, "clear": b"y" * 32}, False),
        ({"source_head": b"x" * 32, "clear": b"y"}, False),
        ({"clear": b"y" * 64}, False),
        ({"between": b"z" * 31}, False),
        ({"redacted": ((0, ""), (3, "ab" * 32))}, True),
        ({"redacted": ((0, ""), (3, "ab" * 31))}, False),
        ({"redacted": ((0, "ab" * 16),)}, False),
        ({"redacted": ((3, "ab" * 33),), "between": b"z" * 32}, False),
        ({"redacted": ((3, "ab" * 32),), "between": b"z"}, False),
    ],
)
def test_the_hashes_of_an_extent_have_fixed_lengths(fields, has_right_lengths):
    extent = Extent(7, form=2, **fields)
    assert extent.has_right_lengths == has_right_lengths
    leaf = Leaf(b"a", 0, False, 1, b"h" * 32, b"l" * 32, extent)
    assert leaf.has_right_lengths == has_right_lengths
    assert replace(leaf, extent=None).has_right_lengths
    for name in ("head", "ledger"):
        for size in (0, 31, 33):
            assert not replace(leaf, **{name: b"h" * size}).has_right_lengths
    assert not replace(leaf, head=b"h", ledger=b"l").has_right_lengths


def test_a_comparison_counts_what_came_after_the_newest_leaf():
    """Each checkpoint adds leaves for the conversations that changed since the one before."""
    with open_store("memory:") as store:
        counts = []
        say(store, "a", "one", "two", "three")
        say(store, "b", "one")
        notes = [make_checkpoint(store)]
        say(store, "a", "four", "five")
        say(store, "c", "one", "two")
        notes.append(make_checkpoint(store))
        say(store, "a", "six")
        store.fork("a", 4, "fork")
        say(store, "fork", "own", "second")
        erased(store, "c")
        notes.append(make_checkpoint(store))
        for note in notes:
            *verdicts, of_store = verify_against(store, note)
            assert of_store.findings == ()
            assert {(verdict.redacted_records, verdict.redactions) for verdict in verdicts} == {
                ((), ())
            }
            counts.append(tuple(of_store.later))
        assert counts == [(5, 0, 1, 1), (3, 0, 1, 1), (0, 0, 0, 0)]
