"""Every file that a command writes is its owner's alone, written through no link, and whole or not
there.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from foldlog._whole_file import whole_file
from foldlog.eventstore import InvalidOption, Message, StoreUnavailable, open_store

EXPORT, PAGE, AUDIT, BACKUP = ("export c -o", "compare c --curve", "export --to", "store backup")
REPLACING = (EXPORT, "report c -o", PAGE)
COMMANDS = {
    **{EXPORT: "out.jsonl", AUDIT: "audit.db", BACKUP: "copy.db", PAGE: "page.svg"},
    "store copy sqlite:///foldlog.db": "sqlite:///other.db",
}


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with open_store(f"sqlite:///{tmp_path / 'foldlog.db'}") as store:
        store.append("c", [Message(source="user", content="secret")] * 3, expected_version=0)
    return tmp_path


@pytest.fixture
def _open_umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_a_file_is_its_owners_and_nothing_lies_beside_it(foldlog: Any, filled: Path):
    for command, name in COMMANDS.items():
        before = {path.name for path in filled.iterdir()}
        ran = foldlog(*command.split(), name)
        assert ran.status == 0, ran.err
        name = name.removeprefix("sqlite:///")
        made = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in filled.iterdir()
            if path.name not in before
        }
        made = {other: mode for other, mode in made.items() if not other.startswith("foldlog.db")}
        assert made.pop(name) == 0o600
        assert made.keys() <= {f"{name}-queue", f"{name}-wal", f"{name}-shm"}
        assert set(made.values()) <= {0o600}


def test_a_file_replaces_a_link_and_does_not_follow_it(foldlog: Any, filled: Path):
    (filled / "victim.txt").write_text("precious")
    for command in (EXPORT, PAGE):
        name = COMMANDS[command]
        for link in (name, f"{name}.partial", f"{name}.part"):
            (filled / link).symlink_to("victim.txt")
        ran = foldlog(*command.split(), name, "--force")
        assert ran.status == 0, ran.err
        assert (filled / "victim.txt").read_text() == "precious"
        assert not (filled / name).is_symlink()


def test_no_command_writes_its_file_over_a_store(foldlog: Any, filled: Path):
    with open_store(f"sqlite:///{filled / 'other.png'}") as store:
        store.append("other", Message(source="user", content="also kept"), expected_version=0)
    (filled / "link.png").symlink_to("other.png")
    with open_store(f"sqlite:///{filled / 'foldlog.db'}") as store:  # its log is there meanwhile
        for command in REPLACING:
            for name in (
                "other.png",
                "link.png",
                "foldlog.db",
                "foldlog.db-wal",
                "foldlog.db-queue",
            ):
                ran = foldlog(*command.split(), name)
                assert ran.status == 2, (command, name)
                assert "database" in ran.err
                assert "choose another name" in ran.err
        assert store.version("c") == 3
    with open_store(f"sqlite:///{filled / 'other.png'}?mode=ro") as store:
        assert store.version("other") == 1
    assert (filled / "link.png").is_symlink()


def test_a_file_is_replaced_only_with_force(foldlog: Any, filled: Path):
    for command in REPLACING:
        (filled / "out.svg").write_text("precious")
        ran = foldlog(*command.split(), "out.svg")
        assert (ran.status, ran.out) == (2, "")
        assert (
            ran.err
            == "foldlog: out.svg exists; choose another name, or replace the file with --force\n"
        )
        assert (filled / "out.svg").read_text() == "precious"
        assert foldlog(*command.split(), "out.svg", "--force")[0::2] == (0, "")
        assert (filled / "out.svg").read_bytes() != b"precious"


def test_a_dash_is_no_file(foldlog: Any, filled: Path):
    before = set(filled.iterdir())
    for command in (*REPLACING, AUDIT, BACKUP, "store copy foldlog.db"):
        ran = foldlog(*command.split(), "-")
        assert (ran.status, ran.out) == (2, "")
        assert "- is not the name of a file, and stdout cannot be used here; name a file" in ran.err
        assert set(filled.iterdir()) == before


def test_a_pipe_is_written_to_and_stays(foldlog: Any, filled: Path):
    pipe = filled / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        (filled / "link").symlink_to("pipe")
        for name in ("pipe", "link"):
            ran = foldlog(*EXPORT.split(), name)
            assert ran.status == 0, ran.err
            assert len(os.read(reading, 1 << 20)) > 100
    finally:
        os.close(reading)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (filled / "link").is_symlink()


def test_a_name_for_an_open_file_is_refused(tmp_path: Path):
    opened = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    try:
        with (
            pytest.raises(InvalidOption, match="name the file itself"),
            whole_file(Path(f"/dev/fd/{opened}")),
        ):
            raise AssertionError("the block was entered")
    finally:
        os.close(opened)


def test_an_audit_database_is_not_made_through_a_link(foldlog: Any, filled: Path):
    (filled / "audit.db").symlink_to("elsewhere.db")
    ran = foldlog("export --to audit.db")
    assert ran.status == 2
    assert "it is a symbolic link to a file" in ran.err
    assert not (filled / "elsewhere.db").exists()


def test_the_lock_file_of_a_store_is_no_link(tmp_path: Path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    (tmp_path / "h.db-queue").symlink_to(victim)
    with pytest.raises(StoreUnavailable, match="symbolic links"):
        open_store(f"sqlite:///{tmp_path / 'h.db'}")
    assert victim.read_text() == "precious"


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "out"
    path.write_text("before")

    def fail() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "before"
    assert [other.name for other in tmp_path.iterdir()] == ["out"]


def test_an_error_of_the_disk_names_the_file(tmp_path: Path):
    def write() -> None:
        with whole_file(tmp_path / "out"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left on device") as raised:
        write()
    assert raised.value.filename == str(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_its_name_are_synced_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(old: Path, new: Path) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with whole_file(tmp_path / "out") as file:
        file.write(b"all")
    assert done == ["file", "name", "folder"]
