"""A store that was restored from a backup gives no position again that was given after the backup."""

import os
import shutil
from pathlib import Path

import pytest

from foldlog.eventstore import StoreRestored, open_store
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite import rewriting
from tests.privacy import erased
from tests.said import said, say
from tests.sound import assert_sound
from tests.stored_rows import execute


def append(store, content, conversation="c1"):
    return say(store, conversation, content)[0]


def texts(store, position=0):
    """Return what a follower reads after a position: the content of each event, "(erased)", or
    "restored 5" for the entry that says that the file is a copy whose last position is 5.
    """
    return [
        f"restored {entry.event.after}"
        if isinstance(entry.event, StoreRestored)
        else getattr(entry.event, "content", "(erased)")
        for entry in store.follow(position)
    ]


def in_place(backup, path):
    """Write a backup over a file, which keeps its inode."""
    path.touch()
    with open(path, "r+b") as file:
        file.write(backup.read_bytes())
        file.truncate()


def lost_positions(path, restore):
    """Make a store, a backup, and events after it, and restore the backup. Return the last position
    in the backup, and the last position that a follower saw.
    """
    backup = path.with_name("backup.db")
    with open_store(f"sqlite:///{path}") as store:
        in_backup = say(store, "c1", *[f"kept {n}" for n in range(5)])[-1].position
        back_up(store, str(backup))
        last_seen = say(store, "c1", *[f"lost {n}" for n in range(3)])[-1].position
    if restore is not in_place:
        path.unlink()
    restore(backup, path)
    return in_backup, last_seen


@pytest.mark.parametrize("restore", [os.rename, shutil.copy, in_place])
def test_follower_of_a_restored_store_misses_nothing(path, restore):
    in_backup, last_seen = lost_positions(path, restore)
    with open_store(f"sqlite:///{path}") as store:
        assert texts(store) == [f"kept {n}" for n in range(5)]
        assert texts(store, last_seen) == []
        positions = [append(store, f"new {n}", "other").position for n in range(5)]
        assert positions[0] > last_seen + 1_000_000
        assert positions == list(range(positions[0], positions[0] + 5))
        assert texts(store, last_seen) == [f"restored {in_backup}", *(f"new {n}" for n in range(5))]
        assert texts(store, in_backup) == texts(store, last_seen)
        assert_sound(store)
    with open_store(f"sqlite:///{path}") as store:
        assert append(store, "next").position == positions[-1] + 1


def test_each_copy_begins_a_later_epoch(tmp_path):
    positions = []
    for name, made_of in [
        ("store", None),
        ("copy", "store"),
        ("one", "copy"),
        ("two", "copy"),
        ("three", "two"),
    ]:
        if made_of is not None:
            shutil.copy(tmp_path / made_of, tmp_path / name)
        with open_store(f"sqlite:///{tmp_path / name}") as store:
            positions.append(append(store, name).position)
    assert positions == sorted(set(positions))


def test_file_copy_takes_vacuum_and_appends(path, tmp_path):
    """After the vacuum, the file says that it is another file than before. Appends must not take
    this for a file that somebody has overwritten.
    """
    with open_store(f"sqlite:///{path}") as store:
        append(store, "first")
    shutil.copy(path, tmp_path / "copy.db")
    with open_store(f"sqlite:///{tmp_path / 'copy.db'}") as copy:
        append(copy, "gone", "gone")
        erased(copy, "gone")
        append(copy, "second")
        vacuum(copy)
        append(copy, "third")
        assert texts(copy) == ["first", "restored 1", "(erased)", "second", "third"]


def test_verify_counts_lost_events_of_a_copy(path, tmp_path):
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c1", "one", "two")
        say(store, "deleted", "one", "two", "three")
    copied = Path(shutil.copy(path, tmp_path / "copy.db"))
    with open_store(f"sqlite:///{copied}") as store:
        append(store, "later")
        assert_sound(store)
    execute(copied, "DELETE FROM events WHERE conversation = 2")
    execute(copied, "DELETE FROM conversations WHERE key = 2")
    with open_store(f"sqlite:///{copied}?mode=ro") as store:
        findings = [str(finding) for verdict in verify(store) for finding in verdict.findings]
    # One of the seven is the entry of the ledger about the copy.
    (finding,) = findings
    assert finding.startswith("3 of the 7 recorded events and ledger entries are missing")


def test_reading_does_not_change_a_copy(path, tmp_path):
    with open_store(f"sqlite:///{path}") as store:
        append(store, "first")
        back_up(store, str(tmp_path / "copy.db"))
    before = (tmp_path / "copy.db").read_bytes()
    with open_store(f"sqlite:///{tmp_path / 'copy.db'}?mode=ro") as copy:
        assert texts(copy) == ["first"]
    assert (tmp_path / "copy.db").read_bytes() == before


def test_wrong_clock_still_begins_an_epoch(path, monkeypatch):
    _, last_seen = lost_positions(path, os.rename)
    monkeypatch.setattr(rewriting.time, "time_ns", lambda: 0)
    with open_store(f"sqlite:///{path}") as store:
        assert append(store, "new").position > last_seen + 2**31


def test_moved_store_keeps_its_epoch(path, tmp_path):
    with open_store(f"sqlite:///{path}") as store:
        assert append(store, "first").position == 1
    path.rename(tmp_path / "moved.db")
    with open_store(f"sqlite:///{tmp_path / 'moved.db'}") as store:
        assert append(store, "second").position == 2


def test_epoch_begins_after_a_failed_append(path):
    _, last_seen = lost_positions(path, os.rename)
    with open_store(f"sqlite:///{path}") as store:

        def fails(_):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.append("c1", said("never"), expected_version=5, guard=fails)
        assert append(store, "new").position > last_seen


def test_inodes_of_any_size(path, monkeypatch):
    status = os.stat
    of_descriptor = os.fstat

    def large(status):
        times = {name: getattr(status, name) for name in ("st_mtime_ns", "st_ctime_ns")}
        # Each file has its own inode, so that no descriptor of another thread is taken for ours.
        return os.stat_result((status[0], 2**64 - 1 - status[1], *status[2:]), times)

    opened = "foldlog.eventstore.recorders.sqlite.store_file.os"
    monkeypatch.setattr(f"{opened}.fstat", lambda descriptor: large(of_descriptor(descriptor)))
    monkeypatch.setattr(
        f"{opened}.stat", lambda *arguments, **options: large(status(*arguments, **options))
    )
    for n in range(2):
        with open_store(f"sqlite:///{path}") as store:
            assert append(store, f"{n}").position == n + 1
