"""Commits that do not wait for the disk: when SQLite syncs its log, and when a thread does."""

import threading

import pytest

from foldlog.eventstore.recorders.sqlite import SQLiteRecorder, log_syncs
from foldlog.eventstore.recorders.sqlite.store_file import descriptors_of
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


def test_a_thread_syncs_once_for_the_commits_that_do_not_wait(tmp_path, synced, monkeypatch):
    path = str(tmp_path / "s.db")
    recorder = SQLiteRecorder(path)
    full = 2
    normal = 1
    interval_ends = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(recorder._syncs._is_stopped, "wait", lambda _: interval_ends.wait(60))
        assert [write(recorder, "a", durable=False) for _ in range(3)] == [normal] * 3
        assert write(recorder, "b", durable=True) == full
        assert synced == []
        interval_ends.set()
        until(lambda: all(thread.name != log_syncs.THREAD for thread in threading.enumerate()))
    assert synced == [f"{path}-wal"]
    write(recorder, "c", durable=True)
    assert len(synced) == 1, "SQLite itself synced this commit"
    write(recorder, "d", durable=False)
    recorder.close()
    assert len(synced) == 2, "the recorder syncs at its end"


def test_no_commit_of_a_relaxed_store_waits_for_the_disk(tmp_path, synced):
    normal = 1
    recorder = SQLiteRecorder(str(tmp_path / "s.db"), durable=False)
    assert write(recorder, "a", durable=True) == normal
    assert write(recorder, "a", durable=False) == normal
    recorder.close()


def test_a_sync_that_fails_is_logged(tmp_path, monkeypatch, caplog):
    def fail(path):
        raise OSError(5, "the disk is gone", path)

    monkeypatch.setattr(log_syncs, "sync", fail)
    recorder = SQLiteRecorder(str(tmp_path / "s.db"))
    write(recorder, "a", durable=False)
    recorder.close()
    [failure] = [record for record in caplog.records if record.name == "foldlog.store.not_synced"]
    assert "the disk is gone" in failure.getMessage()


def test_a_log_that_is_gone_needs_no_sync(tmp_path):
    log_syncs.sync(str(tmp_path / "no-wal"))


def test_a_sync_leaves_no_file_open(tmp_path):
    file = tmp_path / "s.db-wal"
    file.write_bytes(b"pages")
    log_syncs.sync(str(file))
    assert descriptors_of(str(file)) == []
