"""The lock between processes: who holds it, how long others wait, and what happens after a wait
that was given up.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from foldlog.eventstore import (
    InvalidOption,
    Store,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock
from tests.eventstore.test_group_commit import PATIENCE_S, a_held_transaction
from tests.said import say
from tests.waiting import until

HOLD = """
import sys
from types import SimpleNamespace
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock
lock = WriteLock(sys.argv[1], 60)
lock.take(SimpleNamespace(deadline=0))
print("held", flush=True)
sys.stdin.readline()
"""


def within(seconds):
    """Return the deadline of a wait for so many seconds from now."""
    return time.monotonic() + seconds


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def ours(path):
    lock = WriteLock(path, 60)
    yield lock
    lock.close()


@pytest.fixture
def other(path):
    """The lock of another writer, which has taken it."""
    lock = WriteLock(path, 60)
    lock.take(within(0))
    yield lock
    lock.close()


@contextmanager
def held_by_another_process(path):
    """Hold the write lock of a store in another process."""
    command = [sys.executable, "-c", HOLD, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_stopped_writer_is_named(path):
    with (
        Store(SQLiteRecorder(path, patience_s=0.2)) as store,
        held_by_another_process(path) as holder,
    ):
        os.kill(holder.pid, signal.SIGSTOP)
        for _ in range(3):
            with pytest.raises(StoreUnavailable) as raised:
                say(store, "c", "hi")
            for text in (
                f"process {holder.pid} on host {socket.gethostname()} holds the lock",
                f"kill -CONT {holder.pid}",
                "waited 0.2 s",
                "nothing was written",
                "set patience_s in the URL",
            ):
                assert text in str(raised.value)
        waiting = [
            thread for thread in threading.enumerate() if thread.name == "foldlog-write-lock"
        ]
        # Each writer that gives up leaves its thread to the next one.
        assert len(waiting) == 1
        holder.kill()
        holder.wait()
        until(lambda: not waiting[0].is_alive())
        assert say(store, "c", "hi")[0].id == 0


def test_late_lock_is_released(ours, other):
    with pytest.raises(StoreUnavailable, match="waited"):
        ours.take(within(0.05))
    ours.release()
    other.release()
    ours._pending.join(PATIENCE_S)  # Now the late lock has come.
    other.take(within(0.05))


def test_a_wait_for_a_thread_that_closed_the_lock_names_the_thread(ours):
    ours.open()
    ours.close()
    assert "thread 'closer' of this process" in str(ours.waited("closer"))


def test_waiter_gets_and_holds_the_lock(ours, other):
    waiter = threading.Thread(target=ours.take, args=(within(PATIENCE_S),), daemon=True)
    waiter.start()
    until(lambda: ours._pending)
    other.release()
    waiter.join(PATIENCE_S)
    with pytest.raises(StoreUnavailable):
        other.take(within(0.01))
    ours.release()
    other.take(within(PATIENCE_S))


def test_the_lock_needs_no_waiting_thread(ours, other, monkeypatch):
    def no_more(*_, **__):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(StoreUnavailable, match="waited 60 s"):
            ours.take(within(0.01))
        other.release()
        ours.take(within(PATIENCE_S))
    with pytest.raises(StoreUnavailable):
        other.take(within(0.01))


@pytest.mark.parametrize("content", [b"", b"\0" * 300, b"?? not a name", b"\xff\xfe\n"])
def test_lock_file_without_a_name(path, ours, content):
    with held_by_another_process(path):
        Path(f"{path}-queue").write_bytes(content)
        with pytest.raises(StoreUnavailable, match="a process that did not write its name"):
            ours.take(within(0.01))


def test_lock_file_names_the_last_writer(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    with open_store(url) as store:
        say(store, "c", "a word")
    lock_file = tmp_path / "history.db-queue"
    assert lock_file.read_text() == f"{os.getpid()} {os.uname().nodename}\n"
    lock_file.unlink()
    with open_store(url) as store:
        assert say(store, "c", "another word")[0].id == 1


def test_the_lock_is_taken_on_a_full_disk(path):
    if not os.path.exists("/dev/full"):
        pytest.skip("a full disk is played by /dev/full, which is not here")
    lock = WriteLock(path, 60)
    lock.take(within(0))
    lock.release()
    os.close(lock._file)
    lock._file = os.open("/dev/full", os.O_RDWR)
    with pytest.raises(OSError, match="No space left"):
        os.pwrite(lock._file, b"x", 0)
    lock.take(within(0))
    lock.close()


CUT_WHILE_OPEN = """
import os, sys
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock
lock = WriteLock(sys.argv[1], 60)
lock.take(0.0)
lock.release()
os.truncate(f"{sys.argv[1]}-queue", 0)
lock.take(0.0)
"""


def test_a_lock_file_that_is_cut_kills_nobody(path):
    """A full disk in memory has no room for a page of the file. A process that read the file
    through a mapping would get SIGBUS.
    """
    ended = subprocess.run([sys.executable, "-c", CUT_WHILE_OPEN, path], check=False)
    assert ended.returncode == 0
    assert Path(f"{path}-queue").read_bytes().partition(b" ")[0].isdigit()


@pytest.mark.parametrize("address", ["sqlite:///{}", "postgresql://h/d"])
def test_invalid_patience_is_refused(tmp_path, address):
    for patience in ("0", "-1", "soon", "1.5", "", "1000000", "٣"):
        with pytest.raises(
            InvalidOption, match=r"sets patience_s to .* use a whole number from 1 to 999999"
        ):
            open_store(f"{address.format(tmp_path / 'h.db')}?patience_s={patience}")


def test_the_url_sets_the_patience(path):
    with open_store(f"sqlite:///{path}?patience_s=7") as store:
        assert store._recorder._patience_s == 7.0
    with open_store(f"sqlite:///{path}") as store:
        assert store._recorder._patience_s == 60.0


def test_slow_thread_of_this_process_is_named(path):
    with Store(SQLiteRecorder(path, patience_s=0.2)) as store:
        say(store, "c", "hi")
        with (
            a_held_transaction(store._recorder._queue, lambda transaction: None) as holder,
            pytest.raises(
                StoreUnavailable,
                match=re.escape(
                    f"thread '{holder.name}' of this process (process {os.getpid()} on"
                ),
            ),
        ):
            say(store, "c", "hi")
        assert say(store, "c", "hi")[0].id == 1


def test_a_long_wait_names_another_process_before_a_thread(ours, monkeypatch):
    monkeypatch.setattr(WriteLock, "_holder", lambda lock: (os.getpid() + 1, "elsewhere"))
    assert "thread" not in str(ours.waited("the writer"))
    assert f"{os.getpid() + 1}" in str(ours.waited("the writer"))
    for holder in (None, (os.getpid(), "here")):
        monkeypatch.setattr(WriteLock, "_holder", lambda lock, holder=holder: holder)
        assert f"thread 'the writer' of this process (process {os.getpid()} on host" in str(
            ours.waited("the writer")
        )
