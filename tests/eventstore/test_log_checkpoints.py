"""SQLite's log is written back while commits go on, and stays short. If the thread that writes it
back fails, commits do it.
"""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from foldlog.eventstore import open_store
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.recorders.sqlite import log_checkpoints, rewriting, writing
from foldlog.eventstore.recorders.sqlite.log_checkpoints import LogCheckpoints
from tests.reading import reading
from tests.said import say

AT = 50
PAGE_BYTES = 4_096 + 24
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(),
    reason="this system does not tell how SQLite has the log open",
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(log_checkpoints, "AT", AT)
    with open_store(tmp_path / "history.db") as store:
        append_in_turn(store, 1)  # The tables alone make the log long enough for a checkpoint.
        yield store


def append(store, pages=1):
    say(store, "c1", "x" * 4_000 * pages)


def in_progress():
    return [thread for thread in threading.enumerate() if thread.name == log_checkpoints.THREAD]


def append_in_turn(store, count):
    """Append, and wait each time until a checkpoint that this began has ended."""
    for _ in range(count):
        append(store)
        for thread in in_progress():
            thread.join()


def pages_of_log(path):
    return os.path.getsize(f"{path}-wal") // PAGE_BYTES


def versions_without_log(path, tmp_path):
    """Return how many events are in the file itself."""
    # If this process opened and closed the file, it would lose the locks of SQLite.
    subprocess.run(["cp", path, tmp_path / "copy.db"], check=True)
    with sqlite3.connect(f"file:{tmp_path}/copy.db?immutable=1", uri=True) as copy:
        return int(copy.execute("SELECT count(*) FROM events").fetchone()[0])


@pytest.fixture
def committed_between(monkeypatch):
    """A function after which each checkpoint meets a commit: after most of the log was written
    back, and before the checkpoint takes the write lock. Because of a reader, this commit does not
    begin the log again.
    """

    def between(store):
        write_back = rewriting.write_back

        def then_append(connection):
            with reading(store, "c1"):
                written_back = write_back(connection)
                append(store)
                return written_back

        monkeypatch.setattr(rewriting, "write_back", then_append)

    return between


@pytest.fixture
def held(monkeypatch):
    """Two events: a checkpoint sets the first one, and then waits for the second one."""
    at_work = threading.Event()
    go_on = threading.Event()
    write_back = rewriting.write_back

    def slowly(connection):
        at_work.set()
        assert go_on.wait(60)
        return write_back(connection)

    monkeypatch.setattr(rewriting, "write_back", slowly)
    yield at_work, go_on
    go_on.set()  # a test that failed has not set it


def test_long_log_is_written_back_beside_commits(store, tmp_path):
    append_in_turn(store, 40)
    assert store.version("c1") == 41
    assert versions_without_log(tmp_path / "history.db", tmp_path) > 10


def test_short_log_is_not_written_back(monkeypatch):
    began = []
    monkeypatch.setattr(LogCheckpoints, "_run", lambda checkpoints: began.append(checkpoints))
    checkpoints = LogCheckpoints(None, None)
    for pages in (1, log_checkpoints.AT - 1, log_checkpoints.AT):
        checkpoints.look(pages)
        for thread in in_progress():
            thread.join()
        assert len(began) == (pages == log_checkpoints.AT)


def test_a_log_that_a_reader_needs_is_not_tried_at_each_commit(store, monkeypatch):
    tried = []
    write_back = rewriting.write_back
    monkeypatch.setattr(
        rewriting, "write_back", lambda connection: tried.append(1) or write_back(connection)
    )
    append_in_turn(store, 1)
    with reading(store, "c1"):
        append_in_turn(store, 2 * AT)
        so_far = len(tried)
        assert so_far > 0, "the log was long enough to be tried"
        append_in_turn(store, 4)
        assert len(tried) - so_far <= 1


def test_log_under_constant_writes_begins_again(store, tmp_path, committed_between):
    committed_between(store)
    append_in_turn(store, 200)
    assert pages_of_log(tmp_path / "history.db") < 2 * AT


def test_log_begins_again_after_its_last_reader(store, tmp_path, committed_between):
    committed_between(store)
    with reading(store, "c1") as snapshot:
        append_in_turn(store, 60)
        grown = pages_of_log(tmp_path / "history.db")
        assert snapshot.version == 1
    assert grown > 2 * AT
    append_in_turn(store, 200)
    assert pages_of_log(tmp_path / "history.db") < grown + 2 * AT


def test_thread_goes_on_when_a_commit_has_begun_the_log_again(tmp_path, monkeypatch):
    runs = list[int]()
    write_back = rewriting.write_back

    def counted(connection):
        runs.append(1)
        return write_back(connection)

    monkeypatch.setattr(rewriting, "write_back", counted)
    monkeypatch.setattr(log_checkpoints, "AT", AT)
    for module in (log_checkpoints, writing):
        monkeypatch.setattr(module, "IN_COMMITS_AT", 2 * AT)
    with open_store(tmp_path / "history.db") as store:
        append_in_turn(store, 1)
        with reading(store, "c1"):
            append_in_turn(store, 5 * AT)
        append_in_turn(store, 3)  # one writes all back, so the next begins the log again
        runs.clear()
        append_in_turn(store, 2 * AT)
        assert runs


def test_commit_writes_back_where_the_thread_fails(tmp_path, monkeypatch):
    def fail(self):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(log_checkpoints, "AT", AT)
    monkeypatch.setattr(log_checkpoints, "IN_COMMITS_AT", 2 * AT)
    monkeypatch.setattr(writing, "IN_COMMITS_AT", 2 * AT)
    monkeypatch.setattr(LogCheckpoints, "_write_back", fail)
    with open_store(tmp_path / "history.db") as store:
        append_in_turn(store, 200)
        assert pages_of_log(tmp_path / "history.db") < 3 * AT
        assert store.version("c1") == 200


def test_writer_waits_for_a_late_checkpoint(store, held, monkeypatch):
    monkeypatch.setattr(log_checkpoints, "IN_COMMITS_AT", AT)
    at_work, go_on = held

    def write():
        while not at_work.is_set():
            append(store)
        append(store)
        ended.set()

    ended = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert at_work.wait(60)
    waited = not ended.wait(0.1)
    go_on.set()
    writer.join()
    assert waited


def test_vacuum_waits_for_the_checkpoint(store, held):
    at_work, go_on = held
    append(store, 2 * AT)
    assert at_work.wait(60)
    vacuumed = []
    thread = threading.Thread(target=lambda: vacuumed.append(vacuum(store)))
    thread.start()
    thread.join(0.1)
    assert vacuumed == []
    go_on.set()
    thread.join()
    assert [result.space_returned for result in vacuumed] == [True]


def test_close_waits_for_the_checkpoint(store, held):
    at_work, go_on = held
    append(store, 2 * AT)
    assert at_work.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join()
    assert in_progress() == []


def test_process_fork_waits_for_the_checkpoint(tmp_path):
    program = """
import os, sys, threading, time
from foldlog.eventstore import ANY_VERSION, Message, open_store
from foldlog.eventstore.recorders.sqlite import log_checkpoints, rewriting
log_checkpoints.AT = 4
begun, busy = threading.Event(), [False]
write_back = rewriting.write_back
def slowly(connection):
    busy[0] = True
    begun.set()
    time.sleep(0.1)
    written_back = write_back(connection)
    busy[0] = False
    return written_back
rewriting.write_back = slowly
store = open_store(sys.argv[1])
def append(n):
    for _ in range(n):
        store.append("c1", Message(source="user", content="x" * 4_000), expected_version=ANY_VERSION)
for _ in range(5):
    append(3)
    begun.wait(5)
    begun.clear()
    child = os.fork()
    if child == 0:
        assert not busy[0]
        append(5)
        store.close()
        os._exit(0)
    append(2)
    assert os.waitpid(child, 0)[1] == 0
print(store.version("c1"))
store.close()
"""
    process = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "h.db"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stdout) == (0, "50\n"), process.stderr
