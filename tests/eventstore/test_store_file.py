"""A store is the file that was opened. A file that was moved, replaced or doubled is not written to."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.counts import traced
from eventstore import ANY_VERSION, Message, Store, StoreUnavailable, open_store
from eventstore.maintenance.backup import back_up, vacuum
from eventstore.maintenance.erase import erase
from eventstore.recorders.sqlite import store_file
from eventstore.recorders.types import Beginning
from eventstore.stored.database import translated
from eventstore.stored.read_transaction import reading


def message(content: str = "hi") -> Message:
    return Message(source="user", content=content)


def append(store: Store, content: str) -> None:
    store.append("c1", message(content), expected_version=ANY_VERSION)


def contents(path: Path) -> list[str]:
    with open_store(f"sqlite:///{path}") as store:
        return [event.content for event in store.events("c1")]  # type: ignore[union-attr]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{path}") as store:
        append(store, "before")
        yield store


# -- one name ---------------------------------------------------------------------------------------------------------


def test_a_relative_name_is_resolved_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        with open_store("sqlite:///history.db") as store:
            append(store, f"in {folder}")
    monkeypatch.chdir(tmp_path / "a")
    with open_store("sqlite:///history.db") as store:
        monkeypatch.chdir(tmp_path / "b")
        append(store, "in a too")
        assert store.version("c1") == 2
        store.database.data_version()
        back_up(store, str(tmp_path / "copy.db"))
    assert contents(tmp_path / "a" / "history.db") == contents(tmp_path / "copy.db") == ["in a", "in a too"]
    assert contents(tmp_path / "b" / "history.db") == ["in b"]


@pytest.mark.parametrize("link", ["other.db", "folder/link.db"])
def test_a_symbolic_link_is_the_file_behind_it_with_one_log_and_one_write_lock(path: Path, tmp_path: Path, link: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / link).symlink_to(path)
    with open_store(f"sqlite:///{tmp_path / link}") as linked, open_store(f"sqlite:///{path}") as store:
        for n in range(3):
            append(linked, f"link {n}")
            append(store, f"name {n}")
        assert {file.name for file in tmp_path.iterdir() if file.is_file() and not file.is_symlink()} == {
            "history.db",
            "history.db-wal",
            "history.db-shm",
            "history.db-queue",
        }
        assert list((tmp_path / "folder").glob("*-*")) == []
    assert contents(path) == ["link 0", "name 0", "link 1", "name 1", "link 2", "name 2"]


def test_a_link_that_leads_to_another_store_by_now_is_not_written_through(store: Store, path: Path, tmp_path: Path):
    link, other = tmp_path / "current.db", tmp_path / "other.db"
    link.symlink_to(path)
    with open_store(f"sqlite:///{other}") as second:
        append(second, "other")
    with open_store(f"sqlite:///{link}") as linked:
        append(linked, "through the link")
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(StoreUnavailable, match=r"another file took the place of .*current.db"):
            append(linked, "never")
    assert contents(path) == ["before", "through the link"]
    assert contents(other) == ["other"]


# -- the file under the name ------------------------------------------------------------------------------------------


def remove(path: Path, copy: Path) -> None:
    path.unlink()


def rename(path: Path, copy: Path) -> None:
    path.rename(path.with_name("moved.db"))


def rename_all(path: Path, copy: Path) -> None:
    for file in path.parent.glob("history.db*"):
        file.rename(file.with_name(file.name.replace("history", "moved")))


def replace(path: Path, copy: Path) -> None:
    copy.rename(path)


def replace_and_clear(path: Path, copy: Path) -> None:
    """As one restores by hand."""
    copy.rename(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


def replace_folder(path: Path, copy: Path) -> None:
    folder = path.parent
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    shutil.move(str(folder.with_name("moved") / copy.name), path)


CHANGES = [remove, rename, rename_all, replace, replace_and_clear, replace_folder]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_the_file_that_was_opened_is_not_written_to(tmp_path: Path, change):
    """The writer is told at its next append, whatever it is, and the file that has the name now stays as it is."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path, copy = folder / "history.db", folder / "copy.db"
    with open_store(f"sqlite:///{path}") as store:
        append(store, "in the copy")
        back_up(store, str(copy))
        append(store, "after the copy")
        change(path, copy)
        now = path.read_bytes() if path.exists() else None
        for _ in range(3):
            with pytest.raises(
                StoreUnavailable, match=r"(was removed or renamed|another file took the place).*nothing was written"
            ):
                append(store, "never")
        with pytest.raises(StoreUnavailable, match=r"was removed or renamed|another file took the place"):
            list(store.follow())
        with pytest.raises(StoreUnavailable, match=r"was removed or renamed|another file took the place"):
            store.database.data_version()
        with pytest.raises(StoreUnavailable, match=r"was removed or renamed|another file took the place"):
            vacuum(store)
        assert [event.content for event in store.events("c1")] == ["in the copy", "after the copy"]  # type: ignore[union-attr]
        saved = tmp_path / "saved.db"
        assert back_up(store, str(saved)).findings == ()
    assert (path.read_bytes() if path.exists() else None) == now
    assert contents(saved) == ["in the copy", "after the copy"]
    if change in (rename_all, replace_folder):  # the store itself is whole, wherever it is now
        moved = folder / "moved.db" if change is rename_all else tmp_path / "moved" / "history.db"
        assert contents(moved) == ["in the copy", "after the copy"]
    if change is replace:
        for mode in ("rwc", "ro"):
            with pytest.raises(StoreUnavailable, match=r"history.db-wal is the log of a file that .* has replaced"):
                open_store(f"sqlite:///{path}?mode={mode}")
        path.with_name("history.db-wal").unlink()
    if change in (replace, replace_and_clear):
        assert contents(path) == ["in the copy"]


def remove_log(path: Path, copy: Path) -> None:
    path.with_name("history.db-wal").unlink()


@pytest.mark.parametrize("change", [remove, rename, remove_log])
@pytest.mark.parametrize("events", [50, 3_000])
@pytest.mark.parametrize("opened", ["when it was new", "again"])
def test_what_a_process_has_appended_can_be_read_and_saved_also_where_it_had_read_nothing(
    path: Path, tmp_path: Path, change, events: int, opened: str
):
    if opened == "again":
        open_store(path).close()
    with open_store(path) as store:
        for _ in range(50):
            store.append("c1", [message()] * (events // 50), expected_version=ANY_VERSION)
        change(path, path)
        with pytest.raises(StoreUnavailable, match=r"nothing was written; .*Store.back_up"):
            append(store, "never")
        assert len(list(store.events("c1"))) == events
        assert back_up(store, str(tmp_path / "saved.db"))[3:] == (events, ())
    assert len(contents(tmp_path / "saved.db")) == events


@pytest.mark.parametrize("log", ["none", "empty"])
def test_a_file_without_a_log_gets_one_whatever_lies_beside_it(path: Path, log: str):
    """An empty file with the name of the log does not say that SQLite uses it."""
    with open_store(path) as store:
        append(store, "before")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    if log == "empty":
        for suffix in ("-wal", "-shm"):
            path.with_name(f"history.db{suffix}").touch()
    open_store(path).close()
    assert path.read_bytes()[18:20] == b"\2\2"
    assert contents(path) == ["before"]


def test_a_log_that_the_first_connection_makes_is_seen_without_a_question(path: Path):
    with open_store(path) as store:
        append(store, "before")
    statements: list[str] = []
    with traced(statements), open_store(path) as store:
        assert store.version("c1") == 1
        assert not [statement for statement in statements if "journal_mode" in statement]
        path.with_name("history.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match=r"history.db-wal or .* was removed"):
            append(store, "never")


def test_a_file_that_was_put_back_is_written_to_again(store: Store, path: Path):
    path.rename(path.with_name("moved.db"))
    with pytest.raises(StoreUnavailable, match="was removed or renamed"):
        append(store, "never")
    path.with_name("moved.db").rename(path)
    append(store, "again")
    assert [event.content for event in store.events("c1")] == ["before", "again"]  # type: ignore[union-attr]


def test_a_file_that_is_removed_during_a_commit_acknowledges_nothing(store: Store, path: Path):
    def work(transaction: object) -> None:
        transaction.begin(Beginning("c2", 5, b"s" * 16))  # type: ignore[attr-defined]
        path.unlink()  # after the look before the commit

    lost = "was removed or replaced during a commit, so what was written may be"
    with pytest.raises(StoreUnavailable, match=lost), translated():
        store._recorder.transact(work)


def test_a_new_connection_is_to_the_file_that_was_opened_or_to_none(store: Store, path: Path, tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        append(other, "other")
    with reading(store, "c1"):  # the one connection that there is for readers is in use
        (tmp_path / "other.db").rename(path)
        with pytest.raises(StoreUnavailable, match=r"another file took the place"), reading(store, "c1"):
            pass


# -- a log without its file -------------------------------------------------------------------------------------------


@pytest.fixture
def alone(path: Path) -> Path:
    """The log of a store whose writer was killed after the file was moved away."""
    assert kill_after(path, 50) == "done"
    path.rename(path.with_name("moved.db"))
    return path.with_name("history.db-wal")


def kill_after(path: Path, events: int) -> str:
    agent = Agent(path)
    answer = [agent.do(f"{n}") for n in range(events)][-1]
    agent.kill()
    return answer


@pytest.mark.parametrize("there", ["nothing", "an empty file"])
def test_no_store_is_made_beside_the_log_of_a_file_that_was_moved(path: Path, alone: Path, there: str):
    log = alone.read_bytes()
    if there == "an empty file":
        path.touch()
    for mode in ("rwc", "rw", "ro"):
        with pytest.raises(StoreUnavailable, match=r"history.db-wal has [0-9,]+ bytes: .*put that file back"):
            open_store(f"sqlite:///{path}?mode={mode}")
    with open_store(path.with_name("other.db")) as other:
        path.unlink(missing_ok=True)
        with pytest.raises(StoreUnavailable, match=r"does not exist, but .*history.db-wal has"):
            back_up(other, str(path))
    assert alone.read_bytes() == log
    assert not path.exists()
    path.with_name("moved.db").rename(path)
    assert contents(path) == [f"{n}" for n in range(50)]


def test_a_rollback_journal_of_a_file_that_was_moved_is_kept_and_that_of_a_new_file_is_not(path: Path):
    journal = path.with_name("history.db-journal")
    header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(8)
    journal.write_bytes(header + (7).to_bytes(4, "big") + bytes(492))
    with pytest.raises(StoreUnavailable, match=r"history.db-journal has 512 bytes"):
        open_store(path)
    journal.write_bytes(header + bytes(496))  # as a process leaves it that is killed while it makes a file
    open_store(path).close()


# -- two names --------------------------------------------------------------------------------------------------------


def test_a_file_with_a_second_name_is_not_opened(store: Store, path: Path):
    store.close()
    os.link(path, path.with_name("second.db"))
    for name in (path, path.with_name("second.db")):
        for mode in ("rwc", "ro"):
            with pytest.raises(StoreUnavailable, match=r"has 2 names \(hard links\).*remove the other names"):
                open_store(f"sqlite:///{name}?mode={mode}")
    path.with_name("second.db").unlink()
    assert contents(path) == ["before"]


def test_a_file_that_gets_a_second_name_is_not_written_to_as_long_as_it_has_it(store: Store, path: Path):
    os.link(path, path.with_name("second.db"))
    with pytest.raises(StoreUnavailable, match="has 2 names"):
        append(store, "never")
    path.with_name("second.db").unlink()
    append(store, "again")
    assert [event.content for event in store.events("c1")] == ["before", "again"]  # type: ignore[union-attr]


def test_a_file_that_is_mounted_alone_is_not_opened(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A container's view of ``-v /srv/history.db:/data/history.db``: the log beside it is another one than outside."""
    with open_store(f"sqlite:///{path}") as store:
        append(store, "before")
    assert contents(path) == ["before"]
    monkeypatch.setattr(store_file, "_in_its_folder", set())  # as another process would find it
    mounts = iter([b"99", b"1"])  # of the file, and of its folder
    monkeypatch.setattr(store_file, "_mount_of", lambda _: next(mounts))
    with pytest.raises(StoreUnavailable, match=r"is mounted as a single file.*mount the folder that holds it instead"):
        open_store(f"sqlite:///{path}")


def test_a_file_that_is_really_mounted_alone_is_not_opened(path: Path, tmp_path: Path):
    with open_store(f"sqlite:///{path}") as store:
        append(store, "before")
    target = tmp_path / "mounted.db"
    target.touch()
    opening = (
        "import sys, eventstore\n"
        "try: eventstore.open_store('sqlite:///' + sys.argv[1])\n"
        "except eventstore.StoreUnavailable as error: print(error)\n"
    )
    command = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2"'
    mounted = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, "sh", str(path), str(target), sys.executable, opening],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if mounted.returncode != 0 and "eventstore" not in mounted.stderr:
        pytest.skip(f"this user may not mount anything here: {mounted.stderr.strip()}")
    assert "is mounted as a single file" in mounted.stdout


# -- the log ----------------------------------------------------------------------------------------------------------

AGENT = """
import sys
from eventstore import ANY_VERSION, Message, StoreUnavailable, open_store
store = open_store("sqlite:///" + sys.argv[1])
for line in sys.stdin:
    try:
        if line.strip() == "close":
            store.close()
        elif line.strip() == "write back":
            with store._recorder._alone() as connection:
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
        elif line.strip() == "open":
            store = open_store("sqlite:///" + sys.argv[1])
        else:
            store.append("c1", Message(source="user", content=line.strip()), expected_version=ANY_VERSION)
        print("done", flush=True)
    except StoreUnavailable as error:
        print(error, flush=True)
"""


class Agent:
    """A process that has a store open, and does what it is told."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, what: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)

    def end(self) -> None:
        self._process.communicate(timeout=300)
        assert self._process.returncode == 0


@pytest.mark.parametrize("suffixes", [["-wal", "-shm"], ["-wal"], ["-shm"]])
def test_a_store_whose_log_was_removed_is_not_written_to_and_never_gets_the_old_log(path: Path, suffixes: list[str]):
    """``cp backup.db history.db`` keeps the inode; to remove the log then is what one restores with by hand."""
    agent = Agent(path)
    assert agent.do("in the copy") == "done"
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        back_up(store, str(path.with_name("copy.db")))
    assert agent.do("after the copy") == "done"
    subprocess.run(["cp", path.with_name("copy.db"), path], check=True)
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink()
    assert "was removed while the store was open, and nothing was written" in agent.do("never")
    assert agent.do("close") == "done"
    assert path.read_bytes() == path.with_name("copy.db").read_bytes()
    assert "end the process, then open the store again" in agent.do("open")
    agent.end()
    assert path.read_bytes() == path.with_name("copy.db").read_bytes()


def test_the_log_is_lengthened_through_the_writers_own_descriptor(store: Store, path: Path):
    """The name may be another store's by now: nothing is written to it."""
    log = store._recorder._writing._log_space._log  # type: ignore[union-attr]
    if log is None:
        pytest.skip("this system does not list the descriptors of a process")
    assert os.path.samestat(os.fstat(log), os.stat(f"{path}-wal"))
    opened = os.open
    try:
        os.open = None  # type: ignore[assignment]
        for n in range(50):
            append(store, f"{n}")
    finally:
        os.open = opened
    assert path.with_name("history.db-wal").stat().st_size > 200_000


# -- the content ------------------------------------------------------------------------------------------------------


def copy_over(path: Path, other: Path) -> None:
    """As ``cp`` does: the file keeps its inode. The log stays where it is."""
    subprocess.run(["cp", str(other), str(path)], check=True)


@pytest.mark.parametrize("what", ["a backup", "another store", "a letter"])
def test_a_store_that_is_overwritten_in_place_is_not_written_to_and_never_gets_its_old_log(path: Path, what: str):
    other = path.with_name("other.db")
    agent = Agent(path)
    assert agent.do("first") == "done"
    if what == "a backup":
        with open_store(f"sqlite:///{path}?mode=ro") as store:
            back_up(store, str(other))
    elif what == "another store":
        with open_store(f"sqlite:///{other}") as store:
            append(store, "of another store")
    else:
        other.write_bytes(b"a letter, and no database " * 1_000)
    checkpoint(path)
    assert agent.do("second") == "done"
    checkpoint(path)
    assert agent.do("third") == "done"
    copy_over(path, other)
    for _ in range(2):
        assert "was overwritten while it was open, and nothing was written" in agent.do("never")
    assert agent.do("close") == "done"
    assert path.read_bytes() == other.read_bytes()
    agent.end()
    assert path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("what", ["a backup", "another store", "a database", "a letter"])
def test_a_store_that_is_only_in_its_log_is_not_taken_for_what_was_copied_over_it(path: Path, what: str):
    other = path.with_name("other.db")
    with open_store(other) as store:
        append(store, "of another store")
    agent = Agent(path)
    for n in range(50):
        assert agent.do(f"{n}") == "done"
    os.utime(path)  # the file is still ours
    assert agent.do("50") == "done"
    if what == "a backup":
        other.unlink()
        with open_store(f"sqlite:///{path}?mode=ro") as store:
            back_up(store, str(other))
    elif what == "a database":
        other.unlink()
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE notes (text)")
    elif what == "a letter":
        other.write_bytes(b"a letter, and no database " * 1_000)
    copy_over(path, other)
    assert "was overwritten while it was open, and nothing was written" in agent.do("never")
    assert agent.do("close") == "done"
    agent.end()
    assert path.read_bytes() == other.read_bytes()


def test_a_store_that_is_overwritten_and_then_closed_never_gets_its_old_log(path: Path):
    agent = Agent(path)
    assert agent.do("first") == "done"
    with open_store(f"sqlite:///{path}?mode=ro") as store:
        back_up(store, str(path.with_name("copy.db")))
    assert agent.do("second") == "done"
    checkpoint(path)
    assert agent.do("third") == "done"
    copy_over(path, path.with_name("copy.db"))
    assert agent.do("close") == "done"
    agent.end()
    assert path.read_bytes() == path.with_name("copy.db").read_bytes()


def checkpoint(path: Path) -> None:
    """Another program writes the log back: the file changes, and is still the same store."""
    command = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint').fetchone()[0])"
    done = subprocess.run([sys.executable, "-c", command, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("other", ["of its own path", "copied over"])
@pytest.mark.parametrize("writer", ["of a new store", "of a store that was closed", "of a log that began again"])
def test_the_log_of_a_killed_writer_is_not_read_into_another_store(path: Path, other: str, writer: str):
    second = path.with_name("second.db")
    with open_store(second) as store:
        for n in range(5):
            append(store, f"second {n}")
    if writer == "of a store that was closed":
        with open_store(path) as store:
            for n in range(50):
                append(store, f"{n}")
    agent = Agent(path)
    assert agent.do("first") == "done"
    if writer == "of a log that began again":
        assert agent.do("write back") == "done"
    assert agent.do("last") == "done"
    agent.kill()
    log = path.with_name("history.db-wal").read_bytes()
    kept = path.read_bytes()
    if other == "copied over":
        copy_over(path, second)
    else:
        path.rename(path.with_name("moved.db"))
        second.rename(path)
    now = path.read_bytes()
    for mode in ("rwc", "ro"):
        with pytest.raises(StoreUnavailable, match=r"history.db-wal is the log of a file that .* has replaced"):
            open_store(f"sqlite:///{path}?mode={mode}")
    assert (path.read_bytes(), path.with_name("history.db-wal").read_bytes()) == (now, log)
    path.write_bytes(kept)
    assert contents(path)[-1] == "last"


def test_a_checkpoint_that_was_killed_is_no_overwriting(path: Path):
    """Its first page may be on disk, which says how many pages there are, and the others not: SQLite calls the file
    malformed, until the log is written back by whoever appends next.
    """
    agent = Agent(path)
    assert agent.do("first") == "done"
    checkpoint(path)
    long = "x" * 20_000
    assert agent.do(long) == "done"  # the file grows, so that its first page is in the log
    by_half = "with open(__import__('sys').argv[1], 'r+b') as f: f.seek(28); f.write((10_000).to_bytes(4, 'big'))"
    subprocess.run([sys.executable, "-c", by_half, str(path)], check=True)
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as alone, pytest.raises(sqlite3.DatabaseError):
        alone.execute("SELECT * FROM store").fetchall()
    for n in range(3):
        assert agent.do(f"after it {n}") == "done"
    agent.end()
    assert contents(path) == ["first", long, "after it 0", "after it 1", "after it 2"]


def test_checkpoints_of_others_and_vacuums_are_no_overwriting(path: Path):
    agent = Agent(path)
    with open_store(f"sqlite:///{path}") as store:
        for n in range(5):
            assert agent.do(f"{n}") == "done"
            checkpoint(path)
            append(store, f"{n} too")
            store.append("gone", message("x" * 50_000), expected_version=ANY_VERSION)
        erase(store, "gone", reason="asked to")
        assert agent.do("after an erasure") == "done"
        vacuum(store)
        assert agent.do("after a vacuum") == "done"
        assert store.version("c1") == 12
    agent.end()
