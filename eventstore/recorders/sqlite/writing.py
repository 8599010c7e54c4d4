"""The writing connection: its transaction, and the handling of an exception in the transaction."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any, Final, TypeVar

from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.recorders.base import AT_ONCE_S
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN
from foldlog.eventstore.recorders.sqlite import log_checkpoints, rewriting, schema
from foldlog.eventstore.recorders.sqlite.errors import (
    NOT_KNOWN,
    is_full,
    is_of_disk,
    is_ours,
    translate,
)
from foldlog.eventstore.recorders.sqlite.log_checkpoints import IN_COMMITS_AT, LogCheckpoints
from foldlog.eventstore.recorders.sqlite.log_syncs import LogSyncs
from foldlog.eventstore.recorders.sqlite.store_file import MOVED, StoreFile, descriptors_of
from foldlog.eventstore.recorders.sqlite.stream_commits import StreamCommits
from foldlog.eventstore.recorders.sqlite.transaction import SQLiteTransaction
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock

T = TypeVar("T")

# The stages of a transaction:
_NONE: Final = 0
_OPEN: Final = 1
_COMMITTING: Final = 2
_COMMIT_FAILED: Final = 3
_COMMITTED: Final = 4

_HEADER_BYTES: Final = 48
_header: Final = struct.Struct("=8xI4xI28x").unpack
"""The header of the log's index (https://sqlite.org/walformat.html). SQLite changes the header with
every commit. While the header is unchanged, the cache of a connection is current. The header
contains a count of commits and the number of pages in the log.
"""


class SQLiteWriting:
    """Runs transactions on the connection of a process that writes. The first transaction on a
    copied file begins an epoch, a new range of positions, and calls ``on_copy`` with the last
    position before the epoch.
    """

    def __init__(
        self,
        file: StoreFile,
        lock: WriteLock,
        checkpoints: LogCheckpoints,
        syncs: LogSyncs,
        on_copy: Callable[[SQLiteTransaction, int], None],
    ) -> None:
        self._file = file
        self._path = file.path
        self._lock = lock
        self.release = lock.release
        self._checkpoints = checkpoints
        self._syncs = syncs
        self._is_durable = True
        """Whether the connection syncs the log at the next commit."""
        self._on_copy = on_copy
        self._stage = _NONE
        self._changes = self._changed_before = 0
        self._begun_at: bytes | None = None
        """The header of the log's index when the transaction began, or None if the system does not
        show it.
        """
        self._own_header: bytes | None = None
        """The header of the log's index after the last commit of this process. Until the header
        changes, the values that the transaction remembers are valid. ``_own_header`` is None in a
        transaction, after a rollback, or if another connection may have committed.
        """
        self._first_header = b""
        """The earliest header since which only streams were written, up to ``_own_header``: see
        ``StreamCommits``.
        """
        self._stream_commits = StreamCommits(lock, _HEADER_BYTES)
        self._in_doubt = False
        """Whether the log may end with a failed commit: see ``_begin_log_again``."""
        self.connection: sqlite3.Connection | None = None

    def take(self, deadline: float) -> None:
        """Take the write lock for a group of jobs, until ``release``."""
        self._stage = _NONE
        if self._file.closed_because is not None:
            self._file.check_open()  # raises the error
        self._lock.take(deadline)
        # The time to wait for SQLite's lock, which a program other than foldlog may hold.
        self._patience_s = deadline - time.monotonic()

    def begin(self, *, durable: bool = True) -> None:
        """Begin a transaction. What is remembered from the last one is forgotten if another process
        has committed in the meantime.
        """
        self._stage = _OPEN
        connection = self.connection or self.open()
        if durable != self._is_durable and self._file.durable:
            # SQLite refuses this inside a transaction.
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        try:
            if self._patience_s > AT_ONCE_S:
                self._transaction.cursor.execute("BEGIN IMMEDIATE")
            else:
                with rewriting.waiting_at_most(connection, self._patience_s):
                    connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:
            # If another file took the place of this file, SQLite reports a damaged file.
            self._file.check()
            raise
        self._file.check()
        self._changed_before = connection.total_changes
        self._transaction.stream_rows = 0
        index = self._file.index
        self._begun_at = None if index is None else os.pread(index, _HEADER_BYTES, 0)
        own = self._own_header
        self._own_header = None
        if own is None or self._begun_at != own:
            # Another process has committed, or this process's last transaction was rolled back.
            if own is not None and self._only_streams_since():
                self._transaction.forget_streams()
                return
            self._transaction.forget()
            schema.check_unchanged(connection, self._path)
            last = rewriting.begin_epoch_where_copied(connection, self._file.inode)
            if last is not None:
                self._on_copy(self._transaction, last)

    def _only_streams_since(self) -> bool:
        """Return whether only streams were written since this process's last commit."""
        begun_at = self._begun_at
        if begun_at is None:
            return False
        return self._stream_commits.first_header(begun_at) == self._first_header

    def run(self, work: Callable[[Any], T]) -> T:
        self._changes = self.connection.total_changes  # type: ignore[union-attr]  # it has begun
        return work(self._transaction)

    def wrote(self) -> bool:
        """Return whether the last job has changed the database, or SQLite has rolled it back."""
        assert self.connection is not None
        return not self.connection.in_transaction or self.connection.total_changes != self._changes

    def error_of_job(self, error: BaseException) -> BaseException | None:
        """Return the error for the caller of a job that has failed. Return None if the database has
        failed, and with it the whole group.
        """
        if not is_ours(error):
            return error
        if isinstance(error, sqlite3.Error) and not isinstance(
            error, sqlite3.IntegrityError | sqlite3.DataError
        ):
            return None
        return translate(error, f"write to {self._path}", NOTHING_WRITTEN)

    def commit(self) -> None:
        """Commit the transaction, and note the file's header, which shows later whether another
        process has committed.
        """
        self._stage = _COMMITTING
        try:
            self._transaction.cursor.execute("COMMIT")
        except sqlite3.Error as error:
            # Make no call before this assignment, because signal handlers run at calls. If a signal
            # handler raises right after COMMIT, its error has a frame of its own, and COMMIT has
            # not failed.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                self._stage = _COMMIT_FAILED
            raise
        self._stage = _COMMITTED
        if not self._is_durable:
            self._syncs.look()
        index = self._file.index
        if index is None or self._begun_at is None:
            return
        header = os.pread(index, _HEADER_BYTES, 0)
        commits, pages = _header(header)
        # A program other than foldlog does not take foldlog's lock, and may have committed in the
        # meantime.
        changed = self.connection.total_changes - self._changed_before  # type: ignore[union-attr]
        if commits - _header(self._begun_at)[0] == (changed > 0):
            self._own_header = self._first_header = header
            if changed and changed == self._transaction.stream_rows:
                self._first_header = self._stream_commits.note(self._begun_at, header)
        if pages >= log_checkpoints.AT:
            self._checkpoints.look(pages)

    @property
    def last_conversation(self) -> Any:
        """The conversation that the last transaction wrote, as it is now, or None if it may have
        changed. Any thread may read this property at any time, also during a transaction of another
        thread. The docstring of ``_own_header`` says when the remembered value is valid.
        """
        own = self._own_header
        index = self._file.index
        if own is None or index is None:
            return None
        # Read this first, because a transaction that begins now clears the header.
        last_conversation = self._transaction.last_conversation
        try:
            header = os.pread(index, _HEADER_BYTES, 0)
        except OSError as error:
            if error.errno != errno.EBADF:  # the error comes from a signal handler
                raise
            return None  # the connection was closed
        is_unchanged = header == own and self._own_header is own
        return last_conversation if is_unchanged else None

    def settle(self) -> bool:
        """Roll back the transaction if it is still open. Return True if the transaction was
        committed. A second call of ``settle`` changes nothing.
        """
        connection = self.connection
        if self._stage == _COMMITTING and connection is not None and not connection.in_transaction:
            # A failed COMMIT sets the stage ``_COMMIT_FAILED``. Here COMMIT has succeeded, and the
            # exception came right after it.
            self._stage = _COMMITTED
        if self._stage == _COMMITTED:
            return True
        self._stage = _NONE
        if connection is not None and connection.in_transaction:
            try:
                connection.rollback()
            except sqlite3.Error:
                self.close()  # closing rolls back too
        return False

    def fail(self, error: BaseException) -> Callable[[], BaseException] | None:
        """Close the connection after a failure of the database. Return a function that makes the
        error for one caller. Each caller needs its own error object, because raising an error adds
        a traceback to the object. Return None if ``error`` did not come from the database, or if
        the transaction was already committed.
        """
        if not is_ours(error) or self._stage == _COMMITTED:
            return None
        commit_failed = self._stage == _COMMIT_FAILED
        if isinstance(error, FAILURES) and error.kind in MOVED:
            self.settle()  # keep the connection, because its data can still be read and backed up
        elif self._stage != _NONE:  # if only the write lock was not granted, keep the connection
            self.replace(error, may_be_committed=commit_failed)
        if commit_failed and self._in_doubt:
            outcome = NOT_KNOWN
        else:
            outcome = NOTHING_WRITTEN
        doing = f"write to {self._path}"
        return lambda: translate(copy(error), doing, outcome)

    def replace(self, error: BaseException, *, may_be_committed: bool) -> None:
        """Close the connection after an error of the database, so that the next transaction opens
        another. ``may_be_committed`` is true if the log may end with the failed commit.
        """
        self.settle()
        former = self.connection
        self.connection = None
        self._own_header = None
        self._in_doubt |= may_be_committed and is_of_disk(error)
        try:
            if is_of_disk(error) or is_full(error):
                # Open the new connection before closing the former connection: while a connection
                # is open, SQLite keeps its index of the log, which lacks the failed commit. If the
                # opening fails, the next write tries again.
                with suppress(sqlite3.Error, OSError, *FAILURES):
                    self.open()
        finally:
            if former is not None:
                former.close()
            if self.connection is None:
                self._file.index = None

    def waited(self, leader: int | None) -> StoreUnavailable:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return self._lock.waited(names.get(leader, "that has ended"))

    def open(self) -> sqlite3.Connection:
        """Open the connection. The caller must hold the write lock. Raises the errors of
        ``StoreFile.connect``, and ``StoreUnavailable`` if the log may end with a failed commit and
        a reader is open.
        """
        connection = self._file.connect(to_write=True)
        try:
            if self._in_doubt:
                self._begin_log_again(connection)
            self._transaction = SQLiteTransaction(connection)
            self._is_durable = True
            self._own_header = None
            descriptors = descriptors_of(f"{self._file.path}-shm")
            index = descriptors[0] if len(descriptors) == 1 else None
            if index is not None:
                # ``commit`` reads the size of the log from the index, and lets the thread of
                # ``LogCheckpoints`` write the log into the file. So SQLite need not do that in a
                # commit, except if the thread cannot keep up. Without the index, SQLite's default
                # stays.
                connection.execute(f"PRAGMA wal_autocheckpoint = {IN_COMMITS_AT}")
            self._file.index = index
        except BaseException:
            connection.close()
            raise
        # This is the last step, so that a signal handler that raises cannot leave a half open
        # connection.
        self.connection = connection
        return connection

    def _begin_log_again(self, connection: sqlite3.Connection) -> None:
        """Write the log into the file and empty the log, because a commit has failed.

        The end of the log may be only in the cache of the system, and not on the disk. An fsync
        reports its failure only once, and the next fsync would seem to succeed. If SQLite makes its
        index of the log again, it treats a failed commit at the end of the log as a commit. Nothing
        may be written after a failed commit at the end of the log.
        """
        with self._checkpoints.beside_commits:
            is_empty = rewriting.written_back(connection, "TRUNCATE")
        if not is_empty:
            raise StoreUnavailable(
                f"a write to the log of {self._path} failed, and the log cannot be emptied while a"
                f" reader is open; try again when the readers have ended{NOTHING_WRITTEN}",
                kind="read",
            )
        self._in_doubt = False

    def close(self) -> None:
        # Closing rolls an open transaction back.
        connection = self.connection
        self.connection = None
        self._own_header = None
        self._file.index = None
        if connection is not None:
            connection.close()
