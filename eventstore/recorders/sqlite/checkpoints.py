"""Write the log back into the file at the same time as commits, not within them.

SQLite writes the log back in the commit that makes it long, and the caller of that commit waits:
for large batches, a third of the time. Here a short-lived thread writes the log back. Most of the
work needs no lock: SQLite writes committed pages back while other connections commit and read
(``PASSIVE``). But a log that is written all the time would never end, so its last pages are written
back under the write lock, and the next commit begins the log again (``RESTART``). The thread waits
briefly for readers of the log.

Nothing depends on the thread. Everything in the log is committed, even if the thread is killed or
fails. If the thread does not keep up, SQLite writes the log back in a commit, as it does without
the thread. See docs/internals/decisions/0022-checkpoints-beside-commits.md.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Final

from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import maintenance
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile

THREAD: Final = "foldlog-checkpoint"
AT = 1_000
"""The number of pages at which the log is written back. SQLite's own default is the same."""
IN_COMMITS_AT: Final = 4_000
"""The number of pages at which SQLite writes the log back in a commit."""


class LogCheckpoints:
    """The checkpoints of one file by one process. ``alone`` yields the connection that writes,
    under the write lock.
    """

    def __init__(
        self, file: StoreFile, alone: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._file = file
        self._alone = alone
        self._next_at = AT
        self._stopped = False
        self._turn = threading.Lock()
        """The lock of the one thread that is at work."""
        self.beside_commits = threading.Lock()
        """The lock that is held while the log is written back without the write lock. A holder of
        the write lock that takes this lock waits for the end of a running checkpoint, and no other
        checkpoint begins.
        """

    def look(self, pages: int) -> None:
        """Begin to write the log back if it is long, and wait if it is too long. Call this method
        after a commit, under the write lock, with the number of pages in the log; below ``AT`` the
        log is not long.
        """
        if self._stopped:
            return
        if pages >= self._next_at and not self._turn.locked():
            # if no thread can be started, SQLite writes the log back in a commit
            with suppress(RuntimeError):
                threading.Thread(target=self._run, name=THREAD, daemon=False).start()
        elif pages >= IN_COMMITS_AT:
            # wait: while another thread holds it, SQLite cannot write the log back in a commit
            with self.beside_commits:
                pass

    def stop(self, patience_s: float) -> bool:
        """Begin no checkpoint until ``go_on``. Return False if a checkpoint still runs after
        ``patience_s``.
        """
        self._stopped = True
        if not self._turn.acquire(timeout=patience_s):
            return False
        self._turn.release()
        return True

    def go_on(self) -> None:
        self._stopped = False

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._stopped:
                self._next_at = self._write_back()
        except (sqlite3.Error, OSError, *FAILURES):
            # If the problem lasts, the next commit raises its error. The log is complete.
            self._next_at += AT
        finally:
            self._turn.release()

    def _write_back(self) -> int:
        """Write the log back. Return the length at which the log is to be written back next."""
        with closing(self._file.connect(to_write=True)) as connection, self.beside_commits:
            frames, done = maintenance.write_back(connection)
        if frames - done >= AT:  # a reader needs the log, or another process writes it back
            return int(frames) + AT
        with self._alone() as writer:
            if maintenance.written_back(writer, "RESTART"):
                return AT
            return int(frames) + AT
