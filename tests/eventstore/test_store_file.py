"""A store is the file that was opened. A file that was moved, replaced or doubled is not written
to.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest

from foldlog.eventstore import (
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import store_file
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile
from tests.reading import reading
from tests.said import say, texts


def append(store, content):
    say(store, "c1", content)


def contents(path):
    with open_store(f"sqlite:///{path}") as store:
        return texts(store, "c1")


@pytest.fixture
def store(path):
    with open_store(f"sqlite:///{path}") as store:
        append(store, "before")
        yield store


def test_an_error_of_a_signal_handler_is_raised_as_it_is(store, monkeypatch):
    with monkeypatch.context() as patched:

        def interrupted(descriptor):
            raise TimeoutError("the handler's alarm")

        patched.setattr(store_file.os, "fstat", interrupted)
        with pytest.raises(TimeoutError, match="the handler's alarm"):
            append(store, "interrupted")
    append(store, "after")
    assert texts(store, "c1") == ["before", "after"]


# -- one name
# --------------------------------------------------------------------------------------------------


def test_relative_name_is_resolved_at_opening(tmp_path, monkeypatch):
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
    assert (
        contents(tmp_path / "a" / "history.db")
        == contents(tmp_path / "copy.db")
        == ["in a", "in a too"]
    )
    assert contents(tmp_path / "b" / "history.db") == ["in b"]


@pytest.mark.parametrize("link", ["other.db", "folder/link.db"])
def test_symbolic_link_shares_log_and_lock(path, tmp_path, link):
    (tmp_path / "folder").mkdir()
    (tmp_path / link).symlink_to(path)
    with (
        open_store(f"sqlite:///{tmp_path / link}") as linked,
        open_store(f"sqlite:///{path}") as store,
    ):
        for n in range(3):
            append(linked, f"link {n}")
            append(store, f"name {n}")
        assert {
            file.name for file in tmp_path.iterdir() if file.is_file() and not file.is_symlink()
        } == {
            "history.db",
            "history.db-wal",
            "history.db-shm",
            "history.db-queue",
        }
        assert list((tmp_path / "folder").glob("*-*")) == []
    assert contents(path) == ["link 0", "name 0", "link 1", "name 1", "link 2", "name 2"]


def test_link_that_changed_is_not_written_through(store, path, tmp_path):
    link = tmp_path / "current.db"
    other = tmp_path / "other.db"
    link.symlink_to(path)
    with open_store(f"sqlite:///{other}") as second:
        append(second, "other")
    with open_store(f"sqlite:///{link}") as linked:
        append(linked, "through the link")
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(
            StoreRefused,
            match=(
                r"took the place of .*current.db while .*, and nothing was written; open the store"
                r" again$"
            ),
        ):
            append(linked, "never")
    assert contents(path) == ["before", "through the link"]
    assert contents(other) == ["other"]


# -- the file under the name
# ------------------------------------------------------------------------------------------


def remove(path, copy):
    path.unlink()


def rename(path, copy):
    path.rename(path.with_name("moved.db"))


def rename_all(path, copy):
    for file in path.parent.glob("history.db*"):
        file.rename(file.with_name(file.name.replace("history", "moved")))


def replace(path, copy):
    copy.rename(path)


def remove_log(path):
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


def replace_and_clear(path, copy):
    """Replace the file and delete its log, as somebody does who restores a backup by hand."""
    copy.rename(path)
    remove_log(path)


def replace_folder(path, copy):
    folder = path.parent
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    shutil.move(str(folder.with_name("moved") / copy.name), path)


def close(store, change, caplog):
    """Close a store, and check its notices. If the file was moved away without its log, its newest
    events are in this log, and a notice says what to do.
    """
    store.close()
    notices = [
        record.getMessage() for record in caplog.records if record.name == "foldlog.store.moved"
    ]
    remedy = {
        remove: "put the store file back",
        rename: "put the store file back",
        replace: "first end all programs .* and move .*-wal away",
    }.get(change)
    if remedy is None:
        assert notices == []
    else:
        [notice] = notices
        assert re.search(remedy, notice)


CHANGES = [remove, rename, rename_all, replace, replace_and_clear, replace_folder]


@contextmanager
def store_after(change, folder):
    """A store whose file was changed while it was open, and the path of the file. ``copy.db`` has
    only the first of its two events.
    """
    folder.mkdir()
    path = folder / "history.db"
    copy = folder / "copy.db"
    with open_store(f"sqlite:///{path}") as store:
        append(store, "in the copy")
        back_up(store, str(copy))
        append(store, "after the copy")
        change(path, copy)
        yield store, path


IS_GONE = r"(was removed or renamed|another file took the place)"


def check_not_written(store):
    for _ in range(3):
        with pytest.raises(FAILURES, match=f"{IS_GONE}.*nothing was written"):
            append(store, "never")


@pytest.mark.parametrize("change", CHANGES)
def test_moved_or_replaced_file_is_not_written(tmp_path, change, caplog):
    """The writer's next append fails, and the file that has the name now does not change."""
    saved = tmp_path / "saved.db"
    with store_after(change, tmp_path / "folder") as (store, path):
        now = path.read_bytes() if path.exists() else None
        check_not_written(store)
        for use in (store.database.data_version, partial(vacuum, store)):
            with pytest.raises(FAILURES, match=IS_GONE):
                use()
        assert texts(store, "c1") == ["in the copy", "after the copy"]
        assert back_up(store, str(saved)).findings == ()
        close(store, change, caplog)
    assert (path.read_bytes() if path.exists() else None) == now
    assert contents(saved) == ["in the copy", "after the copy"]


def test_renamed_file_without_its_log_is_not_opened(tmp_path):
    with (
        store_after(rename, tmp_path / "folder"),
        pytest.raises(StoreUnavailable, match=r"moved.db was renamed while .* rename it back"),
    ):
        open_store(tmp_path / "folder/moved.db")


@pytest.mark.parametrize(
    "change, moved", [(rename_all, "folder/moved.db"), (replace_folder, "moved/history.db")]
)
def test_file_that_was_moved_with_its_log_is_whole(tmp_path, change, moved):
    with store_after(change, tmp_path / "folder") as (store, _):
        check_not_written(store)
        assert contents(tmp_path / moved) == ["in the copy", "after the copy"]
    assert contents(tmp_path / moved) == ["in the copy", "after the copy"]


def test_backup_that_was_put_in_place_by_hand_is_whole(tmp_path):
    with store_after(replace_and_clear, tmp_path / "folder") as (store, path):
        check_not_written(store)
    assert contents(path) == ["in the copy"]


@pytest.fixture
def another(path):
    """Run statements in another process, which opens the store."""

    def run(statements):
        code = (
            "import os, sqlite3, sys\nfrom foldlog.eventstore import *\nwith"
            " open_store(sys.argv[1]) as store:\n"
        )
        subprocess.run([sys.executable, "-c", f"{code} {statements}", str(path)], check=True)

    return run


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of one opening")
def test_log_survives_lost_locks(store, path, another):
    """A process that closes a file loses all its locks on this file, so reading the store's file, as
    a copy does, takes away the locks of SQLite in the same process.
    """
    path.read_bytes()
    another("store.append('d', Message(source='user', content='d'), expected_version=0)")
    append(store, "after")
    path.read_bytes()
    with pytest.raises(subprocess.CalledProcessError):
        another(
            "store.append('e', Message(source='user', content='e'), expected_version=0);"
            " os.kill(os.getpid(), 9)"
        )
    append(store, "at last")
    store.close()
    assert not path.with_name("history.db-wal").exists()
    with open_store(path) as again:
        assert [again.version(name) for name in ["c1", "d", "e"]] == [3, 1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of one opening")
def test_index_of_a_log_in_use_stays(store, path, another):
    """A process that opens a log cuts its index to zero bytes if it gets an exclusive lock of byte
    128, SQLite's "dead man's switch". An access to the index then ends the process that uses it. So
    a store keeps a shared lock of this byte, even after its own process has read and closed the
    file.
    """
    path.with_name("history.db-shm").read_bytes()
    lock = (
        "import fcntl; fcntl.lockf(open(sys.argv[1] + '-shm', 'rb+'), fcntl.{} | fcntl.LOCK_NB,"
        " 1, 128)"
    )
    another(lock.format("LOCK_SH"))
    with pytest.raises(subprocess.CalledProcessError):
        another(lock.format("LOCK_EX"))


def test_removed_log_is_not_written(store, path, tmp_path):
    remove_log(path)
    for _ in range(2):
        with pytest.raises(
            StoreRefused, match=r"-wal was removed while it was open, and nothing was written"
        ):
            append(store, "never")
    with pytest.raises(StoreRefused, match=r"-wal was removed"):
        vacuum(store)
    assert back_up(store, str(tmp_path / "saved.db")).findings == ()
    assert contents(tmp_path / "saved.db") == ["before"]


def test_removed_log_is_no_damage(store, path, another):
    """For SQLite, the file with what another process wrote after that looks damaged."""
    checkpoint = "sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint').fetchall()"
    another(checkpoint)
    remove_log(path)
    another(f"sqlite3.connect(sys.argv[1]).execute('VACUUM'); {checkpoint}")
    written = (
        "store.append('d', [Message(source='user', content='x' * 9_000)] * 90, expected_version=0)"
    )
    another(f"{written}; {checkpoint}")
    calls = [
        lambda: append(store, "never"),
        lambda: list(store.events("d")),
        lambda: store.database.data_version(),
    ]
    for call in calls:
        with pytest.raises(StoreRefused, match=r"-wal was removed while it was open"):
            call()
    store.close()
    with open_store(path) as again:
        assert again.version("d") == 90


@pytest.mark.parametrize(
    "change, events, opened",
    [(remove, 50, "again"), (rename, 3_000, "again"), (remove, 3_000, "when it was new")],
)
def test_appender_saves_events_of_a_moved_file(path, tmp_path, change, events, opened, caplog):
    if opened == "again":
        open_store(path).close()
    with open_store(path) as store:
        for _ in range(50):
            say(store, "c1", *["hi"] * (events // 50))
        change(path, path)
        with pytest.raises(StoreUnavailable, match=r"nothing was written; .*maintenance.back_up"):
            append(store, "never")
        assert len(list(store.events("c1"))) == events
        saved = back_up(store, str(tmp_path / "saved.db"))
        assert (saved.events, saved.findings) == (events, ())
        close(store, change, caplog)
    assert len(contents(tmp_path / "saved.db")) == events


def test_file_that_was_put_back(store, path):
    path.rename(path.with_name("moved.db"))
    # The version is in memory since the append, and another file may be there next.
    with pytest.raises(StoreUnavailable, match="was removed or renamed"):
        store.version("c1")
    with pytest.raises(StoreUnavailable, match="was removed or renamed"):
        append(store, "never")
    path.with_name("moved.db").rename(path)
    append(store, "again")
    assert texts(store, "c1") == ["before", "again"]


def test_new_connection_refuses_another_file(store, path, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        append(other, "other")
    # The only connection for readers is in use, so the next reader opens another one.
    with reading(store, "c1"):
        (tmp_path / "other.db").rename(path)
        with (
            pytest.raises(
                StoreRefused,
                match=r"another file took the place.*first end all programs.*move .*-wal away",
            ),
            reading(store, "c1"),
        ):
            pass


# -- a log without its file
# -------------------------------------------------------------------------------------------


@pytest.fixture
def alone(path):
    """The log of a store whose writer was killed after the file was moved away."""
    assert kill_after(path, 50) == "done"
    path.rename(path.with_name("moved.db"))
    return path.with_name("history.db-wal")


def kill_after(path, events):
    agent = Agent(path)
    answer = [agent.do(f"{n}") for n in range(events)][-1]
    agent.kill()
    return answer


@pytest.mark.parametrize("there", ["nothing", "an empty file"])
def test_no_store_beside_a_moved_files_log(path, alone, there):
    log = alone.read_bytes()
    if there == "an empty file":
        path.touch()
    for mode in ("rwc", "rw", "ro"):
        with pytest.raises(
            StoreUnavailable, match=r"history.db-wal has [0-9,]+ bytes: .*put the store file back"
        ):
            open_store(f"sqlite:///{path}?mode={mode}")
    with open_store(path.with_name("other.db")) as other:
        path.unlink(missing_ok=True)
        with pytest.raises(StoreUnavailable, match=r"does not exist, but .*history.db-wal has"):
            back_up(other, str(path))
    assert alone.read_bytes() == log
    assert not path.exists()
    path.with_name("moved.db").rename(path)
    assert contents(path) == [f"{n}" for n in range(50)]


# -- two names
# --------------------------------------------------------------------------------------------------


def test_a_file_with_two_names_is_refused(store, path):
    os.link(path, path.with_name("second.db"))
    with pytest.raises(StoreUnavailable, match="has 2 names"):
        append(store, "never")
    for name in (path, path.with_name("second.db")):
        for mode in ("rwc", "ro"):
            with pytest.raises(
                StoreUnavailable, match=r"has 2 names \(hard links\).*remove the other names"
            ):
                open_store(f"sqlite:///{name}?mode={mode}")
    path.with_name("second.db").unlink()
    append(store, "again")
    assert contents(path) == ["before", "again"]


# -- the log
# --------------------------------------------------------------------------------------------------

AGENT = """
import sys
from foldlog.eventstore import ANY_VERSION, Message, StoreUnavailable, StoreRefused, open_store
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
    except (StoreUnavailable, StoreRefused) as error:
        print(error, flush=True)
"""


class Agent:
    """A process that has a store open and runs the commands that it gets."""

    def __init__(self, path):
        self._process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, what):
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def kill(self):
        with self._process:
            self._process.kill()

    def end(self):
        self._process.communicate(timeout=300)
        assert self._process.returncode == 0


def test_only_a_reader_opens_a_file_without_locks(tmp_path, monkeypatch):
    """On a read-only disk, a reader makes no files beside a store. A writer gets SQLite's error."""
    opened = []
    connect = sqlite3.connect

    def noted_connect(database, **options):
        opened.append(str(database).partition("?")[2])
        return connect(database, **options)

    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        append(store, "first")
    monkeypatch.setattr(StoreFile, "_is_on_read_only_disk", lambda file: True)
    monkeypatch.setattr(store_file.sqlite3, "connect", noted_connect)
    with open_store(url) as store:
        append(store, "second")
    assert {*opened} == {"mode=rw"}
    opened.clear()
    with open_store(f"{url}?mode=ro") as store:
        assert texts(store, "c1") == ["first", "second"]
    assert "immutable=1" in opened
