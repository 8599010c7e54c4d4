"""``foldlog store backup`` and ``foldlog store vacuum``."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from foldlog._archive import makes_events
from foldlog.eventstore import ANY_VERSION, Message, open_store
from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.maintenance import erase as erasure, rekey, unfinished
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from tests.how_many import some
from tests.reading import reading


def test_vacuum_gives_the_space_of_an_erased_history_back(foldlog, five_messages, tmp_path):
    foldlog("import", five_messages)
    with makes_events(open_store(f"sqlite:///{tmp_path}/foldlog.db")) as store:
        for n in range(50):
            store.ingest(f"other-{n}", list(store.events("five")))
        for n in range(50):
            erase(store, f"other-{n}", reason="asked for")
        before = [(r.position, r.conversation, r.id) for r in store.follow()]
    document = foldlog("store vacuum --json").document
    assert document["imports_discarded"] == 0
    assert document["bytes_after"] < document["bytes_before"]
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        assert [(r.position, r.conversation, r.id) for r in store.follow()] == before
    again = foldlog("store vacuum")
    assert again.status == 0
    assert again.out.endswith(" now\n")


def test_the_copy_of_a_backup_that_was_killed_is_no_damage(foldlog, five_messages, tmp_path):
    foldlog("import", five_messages)
    part, journal = tmp_path / "copy.db.12345678.part", tmp_path / "copy.db.12345678.part-journal"
    part.touch()
    journal.touch()
    with open_store("foldlog.db") as store:
        store.database.recorder.transact(
            lambda transaction: transaction.leave_unfinished(-1, BACKUP, str(part))
        )
    ran = foldlog("store verify")
    assert (
        ran.status,
        "'foldlog store vacuum' deletes that file" in ran.err,
        "--damaged" in ran.err,
    ) == (
        1,
        True,
        False,
    )
    foldlog("store vacuum")
    assert (foldlog("store verify").status, part.exists(), journal.exists()) == (0, False, False)


def test_vacuum_says_that_the_files_stay_large_while_a_reader_is_open(foldlog, five_messages):
    foldlog("import", five_messages)
    assert foldlog("view five").status == 0  # which makes its events
    with open_store("foldlog.db") as store, reading(store, "five"):
        store.append("five", Message(source="user", content="more"), expected_version=ANY_VERSION)
        ran = foldlog("store vacuum")
        assert (ran.status, ran.err.count("its files cannot shrink while an earlier reader")) == (
            0,
            1,
        )
        assert not foldlog("store vacuum --json").document["space_returned"]
    ran = foldlog("store vacuum")
    assert (ran.status, ran.err) == (0, "")
    assert foldlog("store vacuum --json").document["space_returned"]


REMOVALS = {
    "erase": ("store", "erase", "five", "--reason", "asked to", "--yes"),
    "redact": ("store", "redact", "five", 1, "--reason", "asked to", "--yes"),
}


def _full(*_: object) -> None:
    raise StoreUnavailable(
        f"cannot write: database or disk is full; free some space{NOTHING_WRITTEN}", kind="full"
    )


@pytest.mark.parametrize("command", REMOVALS.values(), ids=REMOVALS)
def test_a_removal_whose_bytes_stay_on_a_full_disk_says_what_is_done(
    foldlog, five_messages, monkeypatch, command
):
    assert foldlog("import", five_messages).status == 0
    with monkeypatch.context() as full:
        full.setattr(SQLiteRecorder, "compact", _full)
        ran = foldlog(*command, "--json")
    of = "conversations" if command[1] == "erase" else "receipts"
    assert (ran.status, ran.document[of][0]["bytes_pending"]) == (1, True)
    assert "the vacuum that removes its bytes failed: " in ran.err
    assert "run 'foldlog store vacuum' to remove them" in ran.err
    assert foldlog(*command, "--json").document[of][0]["bytes_pending"] is False


def test_an_erasure_whose_rows_stay_on_a_full_disk_is_an_erasure(
    foldlog, five_messages, monkeypatch
):
    assert foldlog("import", five_messages).status == 0
    with monkeypatch.context() as full:
        full.setattr(unfinished, "delete_rows", _full)
        ran = foldlog(*REMOVALS["erase"])
    assert (ran.status, ran.out) == (1, "")
    assert "erased for every reader, but not all of its rows are deleted" in ran.err
    assert "nothing was written" not in ran.err
    assert foldlog(*REMOVALS["erase"]).status == 0


def _full_at(monkeypatch, module, name: str, nth: int) -> None:
    """Make the ``nth`` call of a function meet a full disk."""
    real, calls = getattr(module, name), itertools.count(1)

    def call(*given: object, **named: object) -> object:
        return _full() if next(calls) == nth else real(*given, **named)

    monkeypatch.setattr(module, name, call)


def test_an_erasure_that_ends_after_its_forks_is_unfinished(foldlog, five_messages, monkeypatch):
    foldlog("import", five_messages)
    foldlog("fork five branch --at 3")
    command = (*REMOVALS["erase"], "--with-forks")
    with monkeypatch.context() as full:
        _full_at(full, erasure, "_mark", 3)
        ran = foldlog(*command)
    assert (ran.status, ran.out) == (1, "")
    assert "conversation 'five' is not erased; 1 of its forks are" in ran.err
    assert "nothing was written" not in ran.err
    assert foldlog(*command).status == 0


@pytest.mark.parametrize("named", [(), ("one", "two")])
def test_a_rekey_that_ends_after_the_first_conversation_is_unfinished(
    foldlog, five_messages, monkeypatch, named
):
    for name in ("one", "two"):
        foldlog("import", five_messages, "--conversation", name)
        assert foldlog("view", name).status == 0  # which makes its events
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "zlib")
    with monkeypatch.context() as full:
        _full_at(full, rekey, "_rekey_conversation", 2)
        ran = foldlog("store rekey", *named)
    assert (ran.status, ran.out) == (1, "")
    assert (
        "conversations in the new form: 1; 'two' and later conversations still have the old form"
        in ran.err
    )
    assert "nothing was written" not in ran.err
    assert foldlog("store rekey").status == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full plays a full disk")
@pytest.mark.parametrize(
    "command, unbuffered",
    some(
        [
            ("list --short", ""),
            ("list --short", "1"),
            ("list --json", ""),
            ("export five", "1"),
            ("list --help", ""),
        ],
        2,
    ),
)
def test_a_full_disk_behind_stdout_is_named(foldlog, five_messages, command, unbuffered):
    foldlog("import", five_messages)
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "foldlog", *command.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert ran.returncode == 1
    assert (
        "the system refused stdout: No space left on device; the output is incomplete" in ran.stderr
    )
    assert len(ran.stderr.splitlines()) == 1
    refused = foldlog("export five --output /dev/full")
    assert "the system refused /dev/full: No space left on device" in refused.err


def test_a_stdout_that_is_closed_is_refused(foldlog, five_messages):
    foldlog("import", five_messages)
    assert foldlog("view five").status == 0  # which makes its events
    command = [sys.executable, "-m", "foldlog", "retract", "five", "--to", "1"]
    ran = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "stdout is closed" in ran.stderr
    assert foldlog("list --json").document["conversations"][0]["version"] == 6
