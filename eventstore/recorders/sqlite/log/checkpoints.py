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

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from eventstore.recorders.errors import RecorderError
from eventstore.recorders.sqlite import upkeep
from eventstore.recorders.sqlite.store_file import StoreFile

__all__ = ["AT", "IN_COMMITS_AT", "THREAD", "LogCheckpoints"]

THREAD: Final = "foldlog-checkpoint"
AT = 1_000
"""The log is written back when it has this number of pages: SQLite's own default."""
IN_COMMITS_AT: Final = 4_000
"""SQLite writes the log back in a commit when it has this number of pages."""


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
        self._next_at = AT
        self._stopped = self._ending = False
        self._turn = threading.Lock()
        """Held by the one thread that is at work."""
        self._beside_commits = threading.Lock()
        """Held while the log is written back without the write lock."""

    def look(self, pages: int) -> None:
        """Have the log written back if it is long, and where it gets too long, wait. To be called after a commit, under
        the write lock, with the number of pages in the log; less than ``AT`` are not long.
        """
        if self._ending:
            return
        if pages >= self._next_at and not self._turn.locked():
            self._start()
        elif pages >= IN_COMMITS_AT:
            with self._beside_commits:  # as long as it is held, SQLite could not write back in a commit
                pass

    @contextmanager
    def none_beside(self) -> Iterator[None]:
        """Wait until none is in progress, and begin none in the block. Enter it under the write lock."""
        with self._beside_commits:
            yield

    def stop(self, patience_s: float) -> bool:
        """Begin none until ``go_on``, and close the connection. Return False if one is in progress for longer."""
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
            self._ending = True

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        try:
            if not self._stopped:
                self._next_at = self._write_back()
        except (sqlite3.Error, OSError, RecorderError):
            # Who commits next meets the same trouble, if it lasts, and is told. The log is complete.
            self._next_at += AT
        finally:
            if self._stopped:
                self._disconnect()
            self._turn.release()

    def _write_back(self) -> int:
        """Write the log back; return the length at which to do it next."""
        connection = self._connection = self._connection or self._connect()
        with self._beside_commits, self._file.written_back():
            _, frames, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if frames - done >= AT:  # a reader needs it, or another process is at it
            return int(frames) + AT
        with self._alone() as writer:
            return AT if upkeep.restart_log(writer) else int(frames) + AT

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._file.disconnect(connection)
