"""Bring commits to the disk that did not wait for it.

A commit that is not durable leaves its pages in the system's cache: they survive the end of the
process, but not a power cut. A thread writes them to the disk ``SYNC_S`` seconds after the first of
these commits, so a writer of small commits neither waits for the disk nor syncs at each of them.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

from foldlog._base.telemetry import tell
from foldlog.eventstore.recorders.base import SYNC_S

THREAD: Final = "foldlog-sync"


class LogSyncs:
    """Syncs the write-ahead log of one file in one process."""

    def __init__(self, path: str) -> None:
        self._log = f"{path}-wal"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = threading.Event()
        self._is_dirty = False

    def look(self) -> None:
        """Sync the log soon. Call ``look`` after a commit that is not durable."""
        with self._lock:
            self._is_dirty = True
            if self._thread is not None or self._is_stopped.is_set():
                return
            thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
            # If no thread can be started, the next durable commit syncs the log.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        """Sync the commits that are not synced yet, and sync nothing more until ``go_on``."""
        self._is_stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def go_on(self) -> None:
        self._is_stopped.clear()

    def _run(self) -> None:
        """Sync the log at intervals, until an interval has passed without a commit."""
        while True:
            self._is_stopped.wait(SYNC_S)
            with self._lock:
                if not self._is_dirty:
                    self._thread = None
                    return
                self._is_dirty = False
            try:
                sync(self._log)
            except OSError as error:
                # The next durable commit meets the same error, and raises it.
                tell("foldlog.store.not_synced", problem=str(error))


def sync(path: str) -> None:
    """Write the pages of a file to the disk. A file that is gone needs no sync: SQLite syncs its
    log before it writes the log back.
    """
    try:
        # SQLite takes its locks on other files, so closing this descriptor frees none.
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
