"""Maintenance by command while a reader is open, on a full disk, and after a backup that was
killed. The sessions ``restoring`` and ``rekey`` show backups and restores.
"""

import itertools
import os
import subprocess
import sys

import pytest

from foldlog import open as foldlog_open
from foldlog._app.cli import erasing
from foldlog.eventstore import ANY_VERSION, open_store
from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.maintenance import erase as erasure, rekey, unfinished
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from tests.how_many import some
from tests.reading import reading
from tests.said import said


@pytest.fixture
def command(foldlog):
    """The command, in a folder with a store that has the conversation ``five``."""
    with foldlog_open("foldlog.db") as histories:
        histories["five"].append([said(f"message {n}") for n in range(5)])
    return foldlog


def test_vacuum_returns_space_of_erased_history(command):
    with foldlog_open("foldlog.db") as histories:
        for n in range(50):
            histories[f"other-{n}"].append([said("x" * 500)] * 6)
        for n in range(50):
            histories.erase(f"other-{n}", reason="asked for")
        before = [*histories.store.follow()]
    document = command("store vacuum --json").document
    assert document["imports_discarded"] == 0
    assert document["bytes_after"] < document["bytes_before"]
    with open_store("foldlog.db") as store:
        assert [*store.follow()] == before


def test_file_of_killed_backup_is_no_damage(command, tmp_path):
    part = tmp_path / "copy.db.12345678.part"
    journal = tmp_path / "copy.db.12345678.part-journal"
    part.touch()
    journal.touch()
    with open_store("foldlog.db") as store:
        store.database.recorder.transact(
            lambda transaction: transaction.leave_unfinished(-1, BACKUP, str(part))
        )
    ran = command("store verify")
    assert (ran.status, "'foldlog store vacuum' deletes that file" in ran.err) == (1, True)
    assert "--damaged" not in ran.err
    command("store vacuum")
    assert (command("store verify").status, part.exists(), journal.exists()) == (0, False, False)


def test_an_unfinished_erasure_is_no_damage(command):
    with foldlog_open("foldlog.db") as histories:
        key = histories.store.query("five", lambda reading: reading.key)
        histories.erase("five", reason="asked for")
        histories.store.database.recorder.transact(
            lambda transaction: transaction.leave_unfinished(key, importing.ERASE)
        )
    verified = command("store verify --json")
    assert (verified.status, verified.rows("status")) == (1, ["erased"])
    assert "its erasure is not complete" in verified.err
    assert "copy --damaged" not in verified.err


def test_vacuum_beside_an_open_reader(command):
    with open_store("foldlog.db") as store, reading(store, "five"):
        store.append("five", said("more"), expected_version=ANY_VERSION)
        ran = command("store vacuum")
        assert ran.status == 0
        assert ran.err.count("its files cannot shrink while an earlier reader") == 1
        assert not command("store vacuum --json").document["space_returned"]
    assert command("store vacuum").err == ""
    assert command("store vacuum --json").document["space_returned"]


ERASE = "store erase five --reason r --yes"


def _full(*_):
    raise StoreUnavailable(
        f"cannot write: database or disk is full; free some space{NOTHING_WRITTEN}", kind="full"
    )


@pytest.mark.parametrize(
    "line, rows", [(ERASE, "conversations"), ("store redact five 1 --reason r --yes", "receipts")]
)
def test_removal_on_a_full_disk_leaves_bytes_pending(command, monkeypatch, line, rows):
    with monkeypatch.context() as full:
        full.setattr(SQLiteRecorder, "compact", _full)
        ran = command(f"{line} --json")
    assert (ran.status, ran.rows("bytes_pending", of=rows)) == (1, [True])
    assert "the vacuum that removes its bytes failed: " in ran.err
    assert "run 'foldlog store vacuum' to remove them" in ran.err
    assert command(f"{line} --json").rows("bytes_pending", of=rows) == [False]


def _full_at(monkeypatch, module, name, nth):
    """Make the ``nth`` call of a function meet a full disk."""
    real = getattr(module, name)
    calls = itertools.count(1)

    def call(*arguments, **named):
        return _full() if next(calls) == nth else real(*arguments, **named)

    monkeypatch.setattr(module, name, call)


OLD_FORM = "conversations in the new form: 1; 'two' and later conversations still have the old form"


@pytest.mark.parametrize(
    "other, line, full_in, says",
    [
        (
            "append two hi --new",
            ERASE,
            (unfinished, "delete_rows", 1),
            "erased for every reader, but not all of its rows are deleted",
        ),
        (
            "fork five branch --at 3",
            f"{ERASE} --with-forks",
            (erasure, "_mark", 3),
            "conversation 'five' is not erased yet; erased forks: 1",
        ),
        ("append two hi --new", "store rekey", (rekey, "_rekey_conversation", 2), OLD_FORM),
        (
            "append two hi --new",
            "store rekey five two",
            (rekey, "_rekey_conversation", 2),
            OLD_FORM,
        ),
    ],
)
def test_full_disk_leaves_a_task_unfinished(command, monkeypatch, other, line, full_in, says):
    command(other)
    monkeypatch.setenv("FOLDLOG_COMPRESSION", "zlib")
    with monkeypatch.context() as full:
        _full_at(full, *full_in)
        ran = command(line)
    assert (ran.status, ran.out) == (1, "")
    assert says in ran.err
    assert "nothing was written" not in ran.err
    assert command(line).status == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full plays a full disk")
@pytest.mark.parametrize(
    "arguments, unbuffered",
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
def test_a_full_disk_behind_stdout_is_named(command, arguments, unbuffered):
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "foldlog", *arguments.split()],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert ran.returncode == 1
    assert (
        "the system refused stdout: No space left on device; the output is incomplete" in ran.stderr
    )
    assert len(ran.stderr.splitlines()) == 1
    refused = command("export five --output /dev/full")
    assert "the system refused /dev/full: No space left on device" in refused.err


def test_a_stdout_that_is_closed_is_refused(command):
    line = f"{sys.executable} -m foldlog retract five --to 1 >&-"
    ran = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
    assert "stdout is closed" in ran.stderr
    assert command("list --json").rows("version") == [5]


def test_erasure_of_what_was_erased_meanwhile(monkeypatch, histories):
    questions = []
    monkeypatch.setattr(erasing.terminal, "confirm", lambda *question: questions.append(question))
    histories["c"].append([said("one")])
    row = histories.store.conversation("c")
    histories.erase("c", reason="asked for")
    erasing.ask(histories.store, "memory:", [row])
    assert len(questions) == 1


def test_info_names_pending_work_and_its_command(command, tmp_path):
    with foldlog_open("foldlog.db") as histories:
        histories["other"].append(said("secret"))
        histories.erase("other", reason="asked for")
        (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
        histories.import_(tmp_path / "chat.json")
        histories.store.database.recorder.transact(
            lambda transaction: transaction.leave_unfinished(-1, BACKUP, "copy.db")
        )
    lines = command("store info").out.splitlines()
    assert [line for line in lines if line.startswith("pending")] == [
        "pending: erased bytes may still be in the files; 'foldlog store vacuum' removes them",
        "pending: 1 backup not complete; if no program works on it, 'foldlog store vacuum' finishes"
        " or removes it",
        "pending: 1 imported record without events; the first use of the conversation makes the"
        " events",
    ]
    document = command("store info --json").document
    assert document["unfinished"] == {"backup": 1}
    assert (document["bytes_pending"], document["records_pending"]) == (True, 1)
    assert document["bytes"] >= os.path.getsize("foldlog.db")
