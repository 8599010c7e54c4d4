"""A backup in the place of a store: whole or not at all, whoever has the store open, and wherever
it is interrupted.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from foldlog.eventstore import (
    InvalidOption,
    KeyRing,
    StoreRefused,
    StoreUnavailable,
    open_store,
    restore_store,
)
from foldlog.eventstore.files.written_files import read_models
from foldlog.eventstore.maintenance import unfinished
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite import replacing, schema
from foldlog.eventstore.recorders.sqlite.replacing import held
from tests.between import Killed
from tests.eventstore.newer import become_newer
from tests.eventstore.test_store_file import Agent
from tests.privacy import erased
from tests.reading import reading
from tests.said import said, say, texts
from tests.sound import assert_sound
from tests.stored_rows import execute


def append(store, content, conversation="c1"):
    say(store, conversation, content)


def contents(path, conversation="c1", mode="ro"):
    with open_store(f"sqlite:///{path}?mode={mode}") as store:
        return texts(store, conversation)


@pytest.fixture
def path(tmp_path):
    """A store that has a backup, ``backup.db``, and an event more."""
    path = tmp_path / "history.db"
    with open_store(path) as store:
        append(store, "in the backup")
        back_up(store, str(tmp_path / "backup.db"))
        append(store, "after the backup")
    return path


@pytest.fixture
def backup(tmp_path):
    return tmp_path / "backup.db"


@pytest.fixture
def agent(path):
    """A process that has the store open, and an event more in the log."""
    agent = Agent(path)
    assert agent.do("in the log") == "done"
    yield agent
    agent.kill()


def test_empty_store_is_removed_unless_open(tmp_path):
    path = tmp_path / "new.db"
    with open_store(path) as early:
        replacing.remove_empty(str(path))
        append(early, "kept")
    replacing.remove_empty(str(path))
    assert contents(path) == ["kept"]
    other = tmp_path / "empty.db"
    with open_store(other):
        pass
    replacing.remove_empty(str(other))
    assert [file for file in tmp_path.iterdir() if "empty" in file.name] == []


def test_store_with_a_running_import_stays(tmp_path):
    path = tmp_path / "new.db"
    with open_store(path) as store:

        def events():
            for number in range(4_000):
                if number == 3_500:
                    replacing.remove_empty(str(path))
                yield said(str(number))

        store.ingest("c1", events())
    assert len(contents(path)) == 4_000


def test_restore_through_a_link_keeps_link_rights_and_backup(path, backup):
    before = backup.read_bytes()
    link = path.with_name("link.db")
    link.symlink_to(path)
    path.chmod(0o640)
    backup.chmod(0o600)
    Path(f"{path}-wal").touch(0o600)  # a reader has left it
    result = restore_store(link, backup)
    assert not Path(f"{result.former_file}-wal").exists()
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert result.path == str(path)
    assert (result.conversations, result.events, result.erased_since) == (1, 1, ())
    assert contents(path) == ["in the backup"]
    assert contents(result.former_file) == ["in the backup", "after the backup"]
    assert backup.read_bytes() == before
    with open_store(path) as store:
        append(store, "goes on")
    assert contents(path) == ["in the backup", "goes on"]


def test_store_in_use_is_restored(path, backup, agent):
    with open_store(path) as other, reading(other, "c1") as snapshot:
        restored = restore_store(path, backup)
        assert len(list(snapshot.events())) == 3
    assert "another file took the place of" in agent.do("never")
    assert agent.do("open") == "done"
    assert agent.do("after it was opened again") == "done"
    assert contents(path) == ["in the backup", "after it was opened again"]
    assert contents(restored.former_file) == ["in the backup", "after the backup", "in the log"]


def test_lost_empty_or_damaged_store_is_restored(path, backup):
    damages = [
        path.unlink,
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(path.read_bytes()[:6_000] + bytes(9_000)),
    ]
    for damage in damages:
        damage()
        damaged = path.read_bytes() if path.exists() else None
        restored = restore_store(path, backup)
        assert contents(path) == ["in the backup"]
        if damaged is None:
            assert restored.former_file is None
        else:
            assert Path(restored.former_file).read_bytes() == damaged


def test_other_programs_file_is_not_replaced(path, backup, tmp_path):
    other = tmp_path / "other.db"
    execute(other, "CREATE TABLE precious (value)")
    damaged = tmp_path / "cut.db"
    damaged.write_bytes(other.read_bytes()[:200])
    text = tmp_path / "essay.txt"
    text.write_text("many words " * 5_000)
    for file in (other, damaged, text):
        before = file.read_bytes()
        names = set(tmp_path.iterdir())
        with pytest.raises(
            StoreRefused, match=f"{file} is not a foldlog store, so it was not replaced"
        ):
            restore_store(file, backup)
        assert file.read_bytes() == before
        assert set(tmp_path.iterdir()) == names


def test_a_locked_file_of_another_program_is_not_replaced(path, backup, tmp_path, monkeypatch):
    monkeypatch.setattr(replacing, "_PATIENCE_TO_LOOK_S", 0.1)
    other = tmp_path / "other.db"
    execute(other, "CREATE TABLE precious (value)")
    with closing(sqlite3.connect(other, isolation_level=None)) as program:
        program.execute("BEGIN EXCLUSIVE")
        program.execute("INSERT INTO precious VALUES (1)")
        with pytest.raises(StoreUnavailable, match=r"end it, then try again; nothing was replaced"):
            restore_store(other, backup)
        program.execute("COMMIT")
        assert program.execute("SELECT value FROM precious").fetchall() == [(1,)]


def test_a_store_that_its_journal_keeps_from_reading_is_replaced(path, backup):
    path.with_name(f"{path.name}-journal").write_bytes(
        bytes.fromhex("d9d505f920a163d7") + bytes(600)
    )
    restored = restore_store(path, backup)
    assert contents(path) == ["in the backup"]
    assert restored.former_file is not None


def test_log_of_a_lost_store_is_kept_out(path, backup, agent):
    path.unlink()
    restore_store(path, backup)
    # Neither the first program that opens the file nor a later one reads the former log.
    for _ in range(2):
        assert contents(path) == ["in the backup"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
@pytest.mark.parametrize("is_there", [True, False])
def test_root_restores_for_the_owner(path, backup, is_there):
    for owned in (path.parent, path):
        os.chown(owned, 1000, 1000)
    for removed in [Path(f"{path}-queue"), *([] if is_there else [path])]:
        removed.unlink()
    restore_store(path, backup)
    assert {file.stat().st_uid for file in (path, Path(f"{path}-queue"))} == {1000}


def test_older_schema_is_restored(path, backup, monkeypatch):
    with open_store(path) as store:
        erased(store, "c1")
    before = Path(backup).read_bytes()
    become_newer(monkeypatch, "CREATE TABLE colours (name TEXT) STRICT;\n")
    assert restore_store(path, backup).erased_since == ("c1",)
    assert contents(path) == ["in the backup"]
    assert execute(path, "PRAGMA user_version") == [(schema.NEWEST,)]
    assert Path(backup).read_bytes() == before


def test_later_erasures_are_named(path, backup):
    with open_store(path) as store:
        append(store, "never in the backup", "c2")
        erased(store, "c1")
        erased(store, "c2")
    assert restore_store(path, backup).erased_since == ("c1",)


def test_unfinished_erasure_in_a_backup(path, tmp_path, monkeypatch):
    with open_store(path) as store, monkeypatch.context() as patched:
        patched.setattr(unfinished, "delete_rows", _kill)
        with pytest.raises(Killed):
            erased(store, "c1")
    restored = f"sqlite:///{tmp_path / 'restored.db'}"
    assert restore_store(restored, str(path)).conversations == 1
    with open_store(restored) as store:
        assert any(verdict.findings for verdict in verify(store))
        vacuum(store)
        assert_sound(store)


def test_log_of_a_moved_file_is_kept(path, backup, agent):
    agent.kill()
    path.rename(path.with_name("moved.db"))
    restored = restore_store(path, backup)
    assert contents(path) == ["in the backup"]
    path.with_name("moved.db").rename(restored.former_file.removesuffix("-wal"))
    assert contents(restored.former_file.removesuffix("-wal")) == [
        "in the backup",
        "after the backup",
        "in the log",
    ]


def test_other_open_store_serves_as_a_backup(path, tmp_path):
    with open_store(path) as store:
        append(store, "in its log")
        restore_store(f"sqlite:///{tmp_path / 'second.db'}", str(path))
    assert contents(tmp_path / "second.db") == ["in the backup", "after the backup", "in its log"]


@pytest.mark.parametrize(
    "spoil, problem",
    [
        (Path.unlink, "does not exist; check"),
        (lambda backup: backup.write_bytes(b"a letter " * 100), "file is not a database"),
        (lambda backup: backup.write_bytes(b""), "is an empty file"),
        (
            lambda backup: execute(backup, "UPDATE events SET body = 'x'"),
            r"is not sound \(findings: 1; the first: conversation 'c1': event 0: its .*\), and"
            " nothing was replaced; restore another backup",
        ),
        (lambda backup: execute(backup, "DROP TABLE events"), "no such table"),
        (lambda backup: execute(backup, "PRAGMA user_version = 99"), "has schema 99"),
    ],
)
def test_unsound_backup_replaces_nothing(path, backup, spoil, problem):
    spoil(backup)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises((StoreRefused, InvalidOption), match=problem):
        restore_store(path, backup)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_arguments_that_cannot_be_restored(path, backup):
    with pytest.raises(InvalidOption, match="is the store itself; name a backup of the store"):
        restore_store(path, str(path))
    with pytest.raises(InvalidOption, match="is a folder; name the file of the backup"):
        restore_store(path, str(path.parent))
    with pytest.raises(InvalidOption, match="with pg_restore"):
        restore_store("postgresql://nobody@nowhere/nothing", backup)


def test_encrypted_backup_needs_its_key(tmp_path):
    keys = KeyRing(["22" * 32])
    new = tmp_path / "new.db"
    backup = tmp_path / "backup.db"
    with open_store(tmp_path / "history.db", keys=keys) as store:
        append(store, "private")
        back_up(store, str(backup))
    with pytest.raises(StoreRefused, match=r"could not be checked: .* is encrypted under key"):
        restore_store(new, backup)
    assert restore_store(new, backup, keys=keys).events == 1


def _kill(*_):
    raise Killed


def killed_after(steps, monkeypatch):
    """From now on, a process that restores is killed after so many steps that change a folder."""
    remaining = iter(range(steps))

    def kill_after(call):
        def called(*arguments):
            if next(remaining, None) is None:
                raise Killed
            return call(*arguments)

        return called

    for name in ("link", "unlink", "rename"):
        monkeypatch.setattr(replacing.os, name, kill_after(getattr(os, name)))


def look_after_a_kill(folder, step, monkeypatch):
    """Kill a restore after so many steps, and return what the store has that is opened then;
    nothing if it has fewer steps. At each second step an agent has it open.
    """
    path = folder / "history.db"
    backup = str(folder / "backup.db")
    with open_store(path) as store:
        append(store, "in the backup")
        back_up(store, backup)
    agent = Agent(path)
    assert agent.do("after the backup") == "done"
    with monkeypatch.context() as patched:
        killed_after(step, patched)
        try:
            restore_store(path, backup, read_models=["backup b.db"])
        except Killed:
            pass
        else:
            agent.end()
            return []
    if step % 2:
        agent.end()
    stored_texts = contents(path, mode="rw")
    answered = agent.do("after the kill") if step % 2 == 0 else ""
    if stored_texts == ["in the backup"]:
        assert "nothing was written" in answered or not answered
        (former,) = folder.glob("history.db.replaced-*Z")
        assert contents(former) == ["in the backup", "after the backup"]
        with open_store(f"sqlite:///{path}?mode=ro") as store:
            assert read_models(store) == ["backup b.db"]
    elif answered == "done":
        stored_texts.append("after the kill")
    assert contents(path) == stored_texts
    if step % 2 == 0:
        agent.end()
    restored = restore_store(path, backup)
    assert contents(path) == ["in the backup"]
    assert contents(restored.former_file) == stored_texts
    assert not [*folder.glob("*.new"), *folder.glob("*.part")]
    return stored_texts


@pytest.mark.parametrize("step", [3, 4])
def test_killed_restore_leaves_an_openable_store(tmp_path, monkeypatch, step):
    """After these steps the file has two names. The next program that opens it finishes."""
    assert look_after_a_kill(tmp_path, step, monkeypatch) == ["in the backup"]


@pytest.mark.long
def test_restore_killed_at_any_step(tmp_path, monkeypatch):
    """After a kill, the store is the old one or the new one. A process that has the old store open
    writes to the old store, or writes nothing.
    """
    states = []
    while not states or states[-1]:
        folder = tmp_path / f"{len(states)}"
        folder.mkdir()
        states.append(look_after_a_kill(folder, len(states), monkeypatch))
    assert len(states) > 6
    # The last restore was not killed. After the other kills, both stores were found.
    assert {len(texts_after) > 1 for texts_after in states[:-1]} == {True, False}


def test_full_disk_replaces_nothing(path, backup, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replacing.os, "rename", full)
    with pytest.raises(
        StoreUnavailable,
        match=r"cannot restore .*: No space left on device; free some space; nothing was replaced",
    ):
        restore_store(path, backup)
    assert contents(path) == ["in the backup", "after the backup"]


def test_files_of_a_killed_restore_are_removed(path, backup):
    abandoned = path.with_name("history.db.aaaaaaaa.part")
    written = path.with_name("history.db.bbbbbbbb.part")
    abandoned.touch()
    written.touch()
    with held(written):
        restore_store(path, backup)
    assert not abandoned.exists()
    assert written.exists()


def test_full_disk_is_no_unreadable_backup(path, backup, monkeypatch):
    connect = sqlite3.connect

    def small(name, *arguments, **named):
        connection = connect(name, *arguments, **named)
        if name.endswith(".part"):
            connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(
        StoreUnavailable,
        match=rf"cannot copy to {path}\..*\.part from {backup}: database or disk is full",
    ):
        restore_store(path, backup)
