"""Write the log back into the file beside the commits, and not in them.

SQLite writes it back in the commit that makes it long, and the caller of that commit waits for it: a third of the time
of large batches. Here a thread does it, which lives as long as that takes. Most of it needs no lock: SQLite writes back
what is committed while others commit and read (``PASSIVE``). But then a log that is always written never ends, so the
rest is written back under the write lock, and the next commit begins the log again (``RESTART``). Readers
that are in the log are waited for, briefly.

Nothing depends on the thread. What is in the log is committed, whether the thread is killed or fails; where it does
not keep up, or cannot, SQLite writes the log back in a commit, as it does without it. See
docs/decisions/0022-checkpoints-beside-commits.md.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from eventstore.recorders.errors import RecorderError
from eventstore.recorders.sqlite import upkeep
from eventstore.recorders.sqlite.store_file import StoreFile

__all__ = ["IN_COMMITS_AT", "THREAD", "LogCheckpoints", "is_next_commit"]

THREAD: Final = "foldlog-checkpoint"
_AT = 1_000
"""Pages in the log at which it is written back: SQLite's own default."""
IN_COMMITS_AT: Final = 4_000
"""Pages at which SQLite writes it back in a commit."""

_HEADER_BYTES: Final = 48
_COMMITS: Final = slice(8, 12)
_FRAMES: Final = slice(16, 20)
"""The header of the log's index: a commit changes it. It counts commits, and the pages in the log:
https://sqlite.org/walformat.html.
"""


class LogCheckpoints:
    """Those of one file by one process. ``connect`` opens a connection for them, and ``alone`` gives the connection
    that writes, under the write lock.
    """

    def __init__(
        self,
        file: StoreFile,
        connect: Callable[[], sqlite3.Connection],
        alone: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._file = file
        self._connect = connect
        self._alone = alone
        self._connection: sqlite3.Connection | None = None
        self._index: int | None = None
        self._next_at = _AT
        self._stopped = False
        self._turn = threading.Lock()
        """Held by the one thread that is at work."""
        self._beside_commits = threading.Lock()
        """Held while the log is written back without the write lock."""

    def watch(self, index: int | None) -> bool:
        """Look at the log from now on. ``index`` is the descriptor with which SQLite has the index of the log open, for
        as long as the connection that writes is open; None if it is not known. Return whether it is.
        """
        self._index = index
        return index is not None

    def header(self) -> bytes | None:
        """Return the header of the log's index, which stays the same while nothing is committed; None where it is not
        known. Cost: one system call.
        """
        index = self._index
        return None if index is None else os.pread(index, _HEADER_BYTES, 0)

    def look(self) -> bytes | None:
        """Have the log written back if it is long, and where it gets too long, wait. Return the header of its index, as
        ``header`` does. To be called after a commit, under the write lock.
        """
        header = self.header()
        if header is None:
            return None
        frames = int.from_bytes(header[_FRAMES], sys.byteorder)
        if frames >= self._next_at and not self._turn.locked():
            self._start()
        elif frames >= IN_COMMITS_AT:
            with self._beside_commits:  # as long as it is held, SQLite could not write back in a commit
                pass
        return header

    @contextmanager
    def none_beside(self) -> Iterator[None]:
        """Have none in progress, and begin none. To be entered under the write lock."""
        with self._beside_commits:
            yield

    def stop(self, patience_s: float) -> bool:
        """Begin none until ``go_on``, and close the connection. False if one is in progress for longer than that."""
        self._stopped = True
        if not self._turn.acquire(timeout=patience_s):
            return False
        try:
            self._disconnect()
        finally:
            self._turn.release()
        return True

    def go_on(self) -> None:
        self._stopped = False

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=THREAD, daemon=False)
        try:
            thread.start()
        except RuntimeError:  # the program ends: the log stays as it is, or SQLite writes it back
            self._index = None

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._stopped:
                self._next_at = self._write_back()
        except (sqlite3.Error, OSError, RecorderError):
            # Who commits next meets the same trouble, if it lasts, and is told. The log is complete.
            self._next_at += _AT
        finally:
            if self._stopped:
                self._disconnect()
            self._turn.release()

    def _write_back(self) -> int:
        """Write the log back; return the length at which to do it next."""
        connection = self._connection = self._connection or self._connect()
        with self._beside_commits, self._file.written_back():
            _, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if frames - done >= _AT:  # a reader needs it, or another process is at it
            return int(frames) + _AT
        with self._alone() as writer:
            return _AT if upkeep.restart_log(writer) else int(frames) + _AT

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._file.disconnect(connection)


def is_next_commit(before: bytes, after: bytes) -> bool:
    """Return whether there is exactly one commit between two headers of the log's index."""
    return int.from_bytes(after[_COMMITS], sys.byteorder) == int.from_bytes(before[_COMMITS], sys.byteorder) + 1
