"""Every file that a command writes belongs to its owner alone, and is whole or missing. The session
``files`` shows what no file replaces.
"""

import errno
import os
import stat
from pathlib import Path

import pytest

import foldlog
from foldlog.eventstore import InvalidOption, StoreUnavailable, open_store
from foldlog.eventstore.files.whole_file import whole_file
from tests.said import said

WRITING = {
    "export c -o": "out.jsonl",
    "export --to": "audit.db",
    "store backup": "copy.db",
    "compare c --curve": "page.svg",
    "store copy sqlite:///foldlog.db sqlite:///": "other.db",
}


@pytest.fixture
def filled(tmp_path):
    with foldlog.open(tmp_path / "foldlog.db") as histories:
        histories["c"].append([said("secret")] * 3)
    return tmp_path


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize("line", WRITING)
def test_written_file_belongs_to_its_owner(foldlog, filled, line):
    before = {*filled.iterdir()}
    name = WRITING[line]
    separator = "" if line.endswith("/") else " "
    ran = foldlog(f"{line}{separator}{name}")
    assert ran.status == 0, ran.err
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in {*filled.iterdir()} - before
        if not path.name.startswith("foldlog.db")
    }
    assert modes.pop(name) == 0o600
    assert modes.keys() <= {f"{name}-queue", f"{name}-wal", f"{name}-shm"}
    assert {*modes.values()} <= {0o600}


def test_a_pipe_is_written_to_and_stays(foldlog, filled):
    pipe = filled / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        (filled / "link").symlink_to("pipe")
        for name in ("pipe", "link"):
            ran = foldlog("export c -o", name)
            assert ran.status == 0, ran.err
            assert len(os.read(reading, 1 << 20)) > 100
    finally:
        os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (filled / "link").is_symlink()


def test_a_name_for_an_open_file_is_refused(tmp_path):
    opened = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    try:
        with (
            pytest.raises(InvalidOption, match="name the file itself"),
            whole_file(Path(f"/dev/fd/{opened}")),
        ):
            raise AssertionError("the block was entered")
    finally:
        os.close(opened)


def test_lock_file_is_never_a_link(tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    (tmp_path / "h.db-queue").symlink_to(victim)
    with pytest.raises(StoreUnavailable, match="symbolic links"):
        open_store(f"sqlite:///{tmp_path / 'h.db'}")
    assert victim.read_text() == "precious"


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("before")

    def fail():
        with whole_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before"
    assert [other.name for other in tmp_path.iterdir()] == ["out"]


def test_an_error_of_the_disk_names_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="No space left on device") as raised,
        whole_file(tmp_path / "out"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_file_then_name_are_synced(tmp_path, monkeypatch):
    steps = []
    sync = os.fsync
    replace = os.replace

    def synced(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(old, new):
        steps.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with whole_file(tmp_path / "out") as file:
        file.write(b"all")
    assert steps == ["file", "name", "folder"]
