"""The recorder on a SQLite file: group commit, what follows an error, and closing."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import NoReturn, TypeVar

from foldlog.eventstore.recorders.base import PATIENCE_S, Reader, Transaction
from foldlog.eventstore.recorders.errors import DatabaseError, ReadOnly, RecorderError, StillRead
from foldlog.eventstore.recorders.group_commit import INSIDE, CommitQueue, outside
from foldlog.eventstore.recorders.sqlite import maintenance, process_forks, schema
from foldlog.eventstore.recorders.sqlite.checkpoints import LogCheckpoints
from foldlog.eventstore.recorders.sqlite.connections import (
    ReaderPool,
    Use,
    check_is_file,
    check_unchanged,
    create_private,
    is_empty,
    is_on_read_only_disk,
    open_reader,
    open_writer,
    status_of,
)
from foldlog.eventstore.recorders.sqlite.errors import raise_translated, translated
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile, check_not_moved
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock
from foldlog.eventstore.recorders.sqlite.writing import SQLiteWriting
from foldlog.eventstore.recorders.types import Outcome

T = TypeVar("T")

_RETRY_S = 0.05

_TO_WRITE = "to write, open it as a user who may write the file and its folder, without ?mode=ro at the end of its URL"


class SQLiteRecorder:
    """A recorder on a SQLite file.

    ``create`` makes the file, with mode 0600, if it does not exist. ``writable=False`` only reads an existing file.
    ``patience_s`` is how long a call waits for writers of other processes and threads. ``durable``: a write is on
    disk when ``transact`` returns (``synchronous=FULL``); otherwise a power cut may lose the newest commits, each as a
    whole.

    Raises ``OperationalError`` where the file cannot be opened, and ``DatabaseError`` if it is not a store of ours or
    is of a newer schema. After an error of the disk the recorder closes itself: it is unknown whether the failed writes
    are stored, until the file is read again.
    """

    on_server = False
    on_copy: Callable[[Transaction, int], None] = staticmethod(lambda transaction, last: None)
    _checkpoints: LogCheckpoints
    _poller: sqlite3.Connection | None

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        writable: bool = True,
        durable: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._file = StoreFile(path)
        self.path: str | None = self._file.path
        self._path = self._file.path
        self.writable = writable
        self._durable = durable
        self._patience_s = patience_s
        self._lock: WriteLock | None = None
        self._database = ""
        self._pollers = 0
        self._begin()
        try:
            self._open(create)
        except BaseException as error:  # as ``translated``, without a generator in a new process
            self.close()
            raise_translated(error, f"open {path}")
            raise
        process_forks.watch(self)

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        if self._lock is None:
            self._refuse_to_write()
        return self._queue.run(work, any_thread)

    def transact_all(self, works: Sequence[tuple[Callable[[Transaction], T], bool]]) -> list[Outcome[T]]:
        if self._lock is None:
            self._refuse_to_write()
        return self._queue.run_all(works)

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        with _ReadTransaction(self, "read") as connection:
            yield SQLiteReader(connection, self._file.check)

    def query(self, work: Callable[[Reader], T]) -> T:
        with _ReadTransaction(self, "read") as connection:
            return work(SQLiteReader(connection, self._file.check))

    def value(self, name: str) -> str:
        if name not in ("era", "data_version"):
            with _ReadTransaction(self, "read") as connection:
                return SQLiteReader(connection).value(name)
        self._file.check_open()
        try:
            self._file.check()
            if name == "data_version":
                return str(self._data_version())
            era = None if self._lock is None else self._writing.era()
            return "" if era is None else str(era)
        except BaseException as error:  # as ``translated``, without a generator for what is asked often
            raise_translated(error, f"read {self._path}")
            raise

    def _data_version(self) -> int:
        with self._polling:
            if self._poller is None:
                self._poller = self._connect()
                self._pollers += 1
            # Each connection counts for itself: a new one must not come to a number that an earlier one has told.
            return (self._pollers << 32) + int(self._poller.execute("PRAGMA data_version").fetchone()[0])

    # -- the file as a whole ------------------------------------------------------------------------------------------

    def check(self) -> Iterator[str]:
        with _ReadTransaction(self, "check") as connection:
            yield from maintenance.findings(connection)

    def copy_to(self, path: str, on_progress: Callable[[int, int], object]) -> SQLiteRecorder:
        """Write the newest state to a new file while the store is used, and return a recorder that reads the copy.
        ``on_progress(done, of)`` counts pages.
        """
        with _ReadTransaction(self, f"copy to {path} from") as connection:
            maintenance.copy(connection, path, on_progress)
        return SQLiteRecorder(path, writable=False)

    def compact(self, patience_s: float) -> bool:
        with translated(f"compact {self._path}"):
            with self._alone() as connection:
                pending = maintenance.rewrite(connection)
            until = time.monotonic() + patience_s
            while True:
                with self._alone() as connection:
                    if maintenance.empty_log(connection, pending):
                        return True
                if time.monotonic() >= until:
                    raise StillRead(
                        f"{self._path} is rewritten, but the deleted bytes are still in the files, because a reader "
                        f"that was opened before is still open"
                    )
                time.sleep(_RETRY_S)

    def close(self) -> None:
        """Wait for a running transaction, then close every connection. Later calls are refused.

        Raises ``InterfaceError`` if this thread is inside a write, and ``OperationalError`` if another thread's write
        does not end within the patience; the recorder then closes when that write ends.
        """
        outside(self._database, self._path)
        self._close_because("it was closed")
        self._checkpoints.stop(self._patience_s)
        self._close_poller()
        self._readers.close()
        if self._lock is not None:
            with self._queue.alone():
                self._writing.close()
                self._lock.close()

    # -- a fork -------------------------------------------------------------------------------------------------------

    def rest(self, patience_s: float) -> bool:
        rested = self._checkpoints.stop(patience_s)  # first: it takes the write lock
        try:
            if self._lock is not None:
                self._no_writers.enter_context(self._queue.alone(patience_s))
                INSIDE.discard((threading.get_ident(), self._database))  # another recorder may have the same file
                self._writing.close()
        except RecorderError:  # a thread writes, or this one does
            rested = False
        self._close_poller()
        return self._readers.rest(patience_s) and rested

    def resume(self) -> None:
        self._readers.resume()
        self._no_writers.close()
        self._checkpoints.go_on()

    def renew_in_child(self, *, inherited: bool) -> None:
        if inherited:
            process_forks.refuse(self._path)
            self._close_because("it was in use in another thread when this process was forked")
        if self._lock is not None:
            self._lock.renew_in_child()
        # The parent's are kept: other threads may have been inside of them, and no finalizer must wait for these.
        of_writers = vars(self).get("_queue"), vars(self).get("_writing")
        self._of_parent = (*of_writers, self._readers, self._checkpoints, self._no_writers)
        self._begin()

    # -- opening and closing ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make what belongs to one process: queue, connections and their locks."""
        self._polling = threading.RLock()  # a signal handler may poll while this thread does
        self._readers = ReaderPool(self._connect)
        self._poller = None
        self._checkpoints = LogCheckpoints(self._file, self._connect_to_write, self._alone)
        self._no_writers = contextlib.ExitStack()
        if self._lock is not None:
            self._begin_writing(self._lock)

    def _begin_writing(self, lock: WriteLock) -> None:
        self._writing = SQLiteWriting(
            self._file,
            lock,
            self._checkpoints,
            connect=self._connect_to_write,
            close_recorder=self._close_because,
            on_copy=lambda transaction, last: self.on_copy(transaction, last),
        )
        self._queue = CommitQueue(self._writing, database=self._database, name=self._path, patience_s=self._patience_s)

    def _connect(self) -> sqlite3.Connection:
        return self._file.connect(self._open_reader)

    def _open_reader(self, path: str) -> sqlite3.Connection:
        return open_reader(path, patience_s=self._patience_s, writable=self.writable)

    def _connect_to_write(self) -> sqlite3.Connection:
        return self._file.connect(partial(open_writer, durable=self._durable, patience_s=self._patience_s))

    def _open(self, create: bool) -> None:
        status = status_of(self._path)
        check_is_file(self._path, status)
        has_content = status is not None and not is_empty(self._path, status)
        if status is None or not status.st_size:
            check_not_moved(self._path)
        if not create and status is not None and not has_content:
            raise DatabaseError(
                f"{self._path} is an empty file, not a store; restore a backup, or begin with 'foldlog import PATH'"
            )
        look = self._look() if has_content else None  # first: no file is made beside what is not a store
        if self.writable:
            if create and status is None:
                status = create_private(self._path)
            lock = WriteLock(self._path, self._patience_s)
            self._database = _named(self._path, status)
            self._begin_writing(lock)
            self._lock = lock
        look = look or self._look()
        is_current, has_log = look
        if is_current and (has_log or not self.writable):
            return
        if not self.writable:
            raise DatabaseError(f"{self._path} is empty or of an older schema; {_TO_WRITE}, once")
        with self._alone() as connection:
            schema.migrate(connection, self._path, self._file.inode)
        with _ReadTransaction(self, "open"):
            pass  # it opens the log that was made just now, while it has its name

    def _look(self) -> tuple[bool, bool]:
        """Return whether the file has the newest schema, and whether it has a log. Check the file on a reader's
        connection, which the next reader then gets.
        """
        try:
            connection = self._connect()
        except sqlite3.OperationalError as error:
            if self.writable and is_on_read_only_disk(self._path):  # SQLite says only that it cannot open the file
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._path) from error
            raise
        try:
            is_current = schema.is_current(connection, self._path)
        except BaseException:
            connection.close()
            raise
        self._readers.add(connection)
        return is_current, os.path.exists(f"{self._path}-wal")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Give the writing connection, under the write lock, to this thread alone."""
        self._file.check_open()
        if self._lock is None:
            self._refuse_to_write()
        with self._queue.alone() as deadline:
            self._writing.take(deadline)
            connection = self._writing.connection or self._writing.open()
            self._file.check()
            with self._checkpoints.none_beside():
                yield connection

    def _refuse_to_write(self) -> NoReturn:
        self._file.check_open()
        raise ReadOnly(f"{self._path} is open for reading only; {_TO_WRITE}")

    def _close_because(self, reason: str) -> None:
        if self._file.closed_because is None:
            self._file.closed_because = reason

    def _close_poller(self) -> None:
        with self._polling:
            if self._poller is not None:
                self._poller.close()
                self._poller = None


class _ReadTransaction(Use):
    """A reader's connection in a transaction: what it reads is of one moment. It is a class because every read enters
    one: a context manager made of a generator executes four times as many bytecodes.
    """

    __slots__ = ("_doing", "_readers", "_recorder")

    def __init__(self, recorder: SQLiteRecorder, doing: str) -> None:
        self._recorder = recorder
        self._readers = recorder._readers
        self._doing = doing
        self.connection = None

    def __enter__(self) -> sqlite3.Connection:
        recorder = self._recorder
        if recorder._file.closed_because is not None:
            recorder._file.check_open()  # which raises
        try:
            connection = self._readers.take(self)
            connection.execute("BEGIN")
            check_unchanged(connection, recorder._path)
        except BaseException as error:
            self._end(error)
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        try:
            if self.connection is not None:
                self.connection.rollback()
        except BaseException as another:
            self._readers.give_back(self, sound=False)
            raise_translated(another, f"{self._doing} {self._recorder._path}")
            raise
        self._readers.give_back(self, sound=not isinstance(error, sqlite3.Error))
        if error is not None:
            raise_translated(error, f"{self._doing} {self._recorder._path}")


def _named(path: str, status: os.stat_result | None) -> str:
    """Return the identity of the file, the same for two recorders on it. A missing file is named by its path."""
    return path if status is None else f"sqlite {status.st_dev}:{status.st_ino}"
