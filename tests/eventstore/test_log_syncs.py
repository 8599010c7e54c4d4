"""Commits that do not wait for the disk: when SQLite syncs its log, and when a thread does."""

import os
import threading

import pytest

from foldlog.eventstore.recorders.sqlite import SQLiteRecorder, log_syncs
from tests.waiting import until


@pytest.fixture
def synced(monkeypatch):
    """The names of the files that were synced."""
    paths = []
    monkeypatch.setattr(log_syncs, "sync", paths.append)
    return paths


def write(recorder, name, *, durable):
    def work(transaction):
        transaction.set_value("name", name)
        return transaction.cursor.execute("PRAGMA synchronous").fetchone()[0]

    return recorder.transact(work, durable=durable)


def test_a_thread_syncs_once_for_the_commits_that_do_not_wait(tmp_path, synced):
    path = str(tmp_path / "s.db")
    recorder = SQLiteRecorder(path)
    full = 2
    normal = 1
    assert [write(recorder, "a", durable=False) for _ in range(3)] == [normal] * 3
    assert write(recorder, "b", durable=True) == full
    until(lambda: synced)
    assert synced == [f"{path}-wal"]
    until(lambda: all(each.name != log_syncs.THREAD for each in threading.enumerate()))
    write(recorder, "c", durable=True)
    assert len(synced) == 1  # SQLite itself synced that one
    write(recorder, "d", durable=False)
    recorder.close()  # syncs at once
    assert len(synced) == 2


def test_a_group_waits_for_the_disk_if_one_of_it_does(tmp_path, synced):
    recorder = SQLiteRecorder(str(tmp_path / "s.db"), durable=False)
    assert write(recorder, "a", durable=True) == 1  # the whole store is relaxed
    assert write(recorder, "a", durable=False) == 1
    recorder.close()


def test_a_log_that_is_gone_needs_no_sync(tmp_path):
    log_syncs.sync(str(tmp_path / "no-wal"))
    file = tmp_path / "s.db-wal"
    file.write_bytes(b"pages")
    descriptors = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    log_syncs.sync(str(file))
    assert len(os.listdir("/proc/self/fd") if descriptors else []) == len(descriptors)
