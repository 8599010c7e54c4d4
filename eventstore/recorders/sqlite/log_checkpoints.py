"""Write the write-ahead log back into the file in a separate thread instead of in commits.

By default, SQLite writes the log back within a commit, when the log has become long. With batches
of 500 events, writing the log back took a third of the time, so foldlog does it in a short-lived
thread. Most of the work needs no lock: SQLite writes committed pages back while other connections
commit and read (``PASSIVE``). While commits continue, ``PASSIVE`` never reaches the end of the log.
The thread therefore writes the last pages back under the write lock, and the next commit writes at
the beginning of the log again (``RESTART``). The thread waits briefly for readers of the log.

Commits do not depend on the thread. Everything in the log is committed, even if the thread is
killed or fails. If the thread is too slow, SQLite writes the log back in a commit, as it does
without the thread. docs/internals/decisions/0022-checkpoints-beside-commits.md gives the
measurements.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Final

from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import rewriting
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile

THREAD: Final = "foldlog-checkpoint"
AT = 1_000
"""The length of the log, in pages, at which the thread begins to write it back. The default of
SQLite is also 1,000 pages.
"""
IN_COMMITS_AT: Final = 8_000
"""The length of the log, in pages, at which SQLite writes it back in a commit. Two events of 14 MB
have fewer pages, so the thread has the time of two commits.
"""


class LogCheckpoints:
    """Runs the checkpoints of one file in one process. ``alone()`` takes the write lock and yields
    the connection that writes.
    """

    def __init__(
        self, file: StoreFile, alone: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._file = file
        self._alone = alone
        self._next_at = AT
        """The length of the log, in pages, at which the next checkpoint begins."""
        self._pages = 0
        """The length of the log at the last commit."""
        self._stopped = False
        self._turn = threading.Lock()
        """The thread that writes the log back holds this lock."""
        self.beside_commits = threading.Lock()
        """``beside_commits`` is held while the log is written back beside commits, without the
        write lock. To stop checkpoints, the holder of the write lock also takes ``beside_commits``.
        """

    def look(self, pages: int) -> None:
        """If the log has ``AT`` pages, or ``AT`` more than a checkpoint had to leave, begin to
        write it back. If the log is much too long, wait until it is written back. Call ``look``
        after each commit, under the write lock, with the number of pages in the log.
        """
        if pages < self._pages:  # A commit has begun the log again, so nothing is left in it.
            self._next_at = AT
        self._pages = pages
        if self._stopped:
            return
        if pages >= self._next_at and not self._turn.locked():
            # If no thread can be started, SQLite writes the log back in a commit.
            with suppress(RuntimeError):
                threading.Thread(target=self._run, name=THREAD, daemon=False).start()
        elif pages >= IN_COMMITS_AT:
            # Wait, because SQLite cannot write the log back in a commit while another thread holds
            # this lock.
            with self.beside_commits:
                pass

    def stop(self, patience_s: float) -> bool:
        """Begin no checkpoint until ``go_on``. Return False if a checkpoint still runs after
        ``patience_s`` seconds.
        """
        self._stopped = True
        if not self._turn.acquire(timeout=patience_s):
            return False
        self._turn.release()
        return True

    def go_on(self) -> None:
        self._stopped = False

    def _run(self) -> None:
        """Write the log back, unless another thread is writing it back or the checkpoints were
        stopped.
        """
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._stopped:
                self._next_at = self._write_back()
        except (sqlite3.Error, OSError, *FAILURES):
            # If the problem continues, the next commit raises its error. The log itself is
            # complete.
            self._next_at += AT
        finally:
            self._turn.release()

    def _write_back(self) -> int:
        with closing(self._file.connect(to_write=True)) as connection, self.beside_commits:
            frames, done = rewriting.write_back(connection)
        if frames - done >= AT:  # a reader needs the log, or another process is writing it back
            return int(frames) + AT
        with self._alone() as writer:
            if rewriting.written_back(writer, "RESTART"):
                return AT
            return int(frames) + AT
