"""The recorder on a SQLite file: group commit, connections for readers, forks of the process, and
closing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from foldlog._base.telemetry import tell
from foldlog.eventstore.errors import EventsNotMade, StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.base import (
    PATIENCE_S,
    Reader,
    Recorder,
    Transaction,
    makes_missing_events,
)
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import process_forks, rewriting, schema
from foldlog.eventstore.recorders.sqlite.errors import raise_translated, translate_errors
from foldlog.eventstore.recorders.sqlite.group_commit import CommitQueue, Job
from foldlog.eventstore.recorders.sqlite.log_checkpoints import LogCheckpoints
from foldlog.eventstore.recorders.sqlite.log_syncs import LogSyncs
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile, check_not_moved
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock
from foldlog.eventstore.recorders.sqlite.writing import SQLiteWriting
from foldlog.eventstore.recorders.types import Outcome
from foldlog.eventstore.recorders.writers import INSIDE, check_not_writing

T = TypeVar("T")

_RETRY_S = 0.05
_POLL_S = 0.001
_STEPS_TO_STOP = 10_000
"""After this number of steps, some milliseconds, SQLite looks whether a check is to stop."""

_TO_WRITE = (
    "open it as a user who may write the file and its folder, without ?mode=ro at the end of its"
    " URL"
)


class ReaderPool:
    """Only one thread at a time uses a connection of the pool. After a read, the connection is kept
    for the next reader.

    A signal handler may interrupt its thread at any line of ``ReaderPool``, and the handler may
    read from the store. The class therefore has no lock, and each step changes only one list or set
    in a single operation.
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self._idle: list[sqlite3.Connection] = []
        self._uses: set[ReadConnection] = set()
        self._resting = False
        self._closed = False

    def take(self, use: ReadConnection) -> sqlite3.Connection:
        """Return a connection for one thread. The caller of ``take`` must call ``give_back``, even
        if ``take`` raises an error.
        """
        self._uses.add(use)
        # Add the use before the check: then either ``rest`` sees the use, or this loop sees that
        # the pool rests.
        while self._resting:
            self._uses.discard(use)
            time.sleep(_POLL_S)
            self._uses.add(use)
        try:  # noqa: SIM105 - suppress() is two calls in every read
            use.connection = self._idle.pop()
        except IndexError:
            pass
        if use.connection is None:
            use.connection = self.file.connect()
        return use.connection

    def give_back(self, use: ReadConnection, *, sound: bool) -> None:
        """Take a connection back after its use, to use it again. Close it if it is not sound."""
        try:
            connection = use.connection
            use.connection = None
            if connection is None:
                return
            if sound and not connection.in_transaction:
                self._idle.append(connection)
                if self._closed:
                    self._close_idle()
            else:
                connection.close()
        finally:
            self._uses.discard(use)

    def close(self) -> None:
        # Connections in use are closed when they are given back.
        self._closed = True
        self._close_idle()

    def rest(self, patience_s: float) -> bool:
        """Begin no read until ``resume``, and close the connections. Return False if a read still
        runs after ``patience_s`` seconds.
        """
        self._resting = True
        until = time.monotonic() + patience_s
        while self._uses and time.monotonic() < until:
            time.sleep(_POLL_S)
        self._close_idle()
        return not self._uses

    def resume(self) -> None:
        self._resting = False

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


class ReadConnection:
    """The context of a read. ``ReadConnection`` is a class, because a generator would execute four
    times as many bytecodes.
    """

    __slots__ = ("_doing", "_readers", "connection")

    def __init__(self, readers: ReaderPool, doing: str = "read") -> None:
        self._readers = readers
        self._doing = doing
        self.connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:
        file = self._readers.file
        if file.closed_because is not None:
            file.check_open()  # raises the error
        try:
            connection = self._readers.take(self)
            connection.execute("BEGIN")
            schema.check_unchanged(connection, file.path)
        except BaseException as error:
            self._end(error)
            raise
        return connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Give the connection back, and raise the error, if any, in the words of foldlog."""
        try:
            if self.connection is not None:
                self.connection.rollback()
        except BaseException as another:
            self._readers.give_back(self, sound=False)
            raise_translated(another, f"{self._doing} {self._readers.file.path}")
            raise
        self._readers.give_back(self, sound=not isinstance(error, sqlite3.Error))
        if isinstance(error, sqlite3.DatabaseError) and self._readers.file.index is not None:
            self._readers.file.check()  # perhaps the file was replaced, not damaged
        if error is not None:
            raise_translated(error, f"{self._doing} {self._readers.file.path}")


class SQLiteRecorder(Recorder):
    """A recorder on a SQLite file.

    If ``create`` is true and the file does not exist, the file is made with mode 0600. If
    ``writable`` is false, the file is only read. ``patience_s`` is the number of seconds that a
    call waits for other writers. If ``durable`` is true, a write is on disk when ``transact``
    returns (``synchronous=FULL``). If ``durable`` is false, a power cut may lose the newest
    commits, but never a part of a commit.

    Raises ``StoreUnavailable`` if the file cannot be opened. Raises ``StoreRefused`` if the file
    is not a foldlog store or has a newer schema. A file that is only read must have the newest
    schema. If ``to_copy`` is true, it may have an older schema, but only ``copy_to`` may be called,
    which migrates the copy. After a disk error, the next call opens the file again.
    """

    _poller: sqlite3.Connection | None
    _no_writers: Job[None] | None

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        writable: bool = True,
        to_copy: bool = False,
        durable: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._to_copy = to_copy
        self._file = StoreFile(path, writable=writable, durable=durable, patience_s=patience_s)
        self.path = self._path = self._file.path
        self.writable = writable
        self._patience_s = patience_s
        self._lock = WriteLock(self._path, patience_s)
        self._pollers = 0
        self._begin()
        try:
            self._open(create)
        except BaseException as error:
            # This code replaces ``translate_errors``, because a generator would slow the start of
            # a process.
            self.close()
            raise_translated(error, f"open {path}")
            raise
        process_forks.watch(self)

    def transact(
        self,
        work: Callable[[Transaction], T],
        *,
        any_thread: bool = False,
        at_once: bool = False,
        durable: bool = True,
    ) -> T:
        if not self.writable:
            self._check_writable()
        while True:
            try:
                return self._queue.run(work, any_thread, at_once, durable)
            except EventsNotMade as missing:
                self.make(missing)

    def transact_all(
        self, works: Sequence[tuple[Callable[[Transaction], T], bool]]
    ) -> list[Outcome[T]]:
        self._check_writable()
        return self._queue.run_all(works)

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        with ReadConnection(self._readers) as connection:
            yield SQLiteReader(connection)

    @makes_missing_events
    def query(self, work: Callable[[Reader], T]) -> T:
        with ReadConnection(self._readers) as connection:
            return work(SQLiteReader(connection))

    def value(self, name: str) -> str:
        if name != "data_version":
            with ReadConnection(self._readers) as connection:
                return SQLiteReader(connection).value(name)
        self._file.check_open()
        with translate_errors(f"read {self._path}"):
            self._file.check()
            return str(self._data_version())

    @property
    def last_conversation(self) -> Any:
        self._file.check_open()
        try:
            self._file.check()
            return self._writing.last_conversation
        except BaseException as error:
            # This code replaces ``translate_errors``, because this property is read often and a
            # generator is slower.
            raise_translated(error, f"read {self._path}")
            raise

    def _data_version(self) -> int:
        """Return a number that differs from all earlier ones if another connection has committed
        since.
        """
        with self._polling:
            if self._poller is None:
                self._poller = self._file.connect()
                self._pollers += 1
            try:
                counted = self._poller.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                self._close_poller()
                raise
            # Each connection counts commits from its own start. A new connection must not return a
            # number that an earlier connection has returned.
            return (self._pollers << 32) + int(counted)

    # -- the file as a whole
    # ------------------------------------------------------------------------------------------

    def check(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[str]:
        from foldlog.eventstore.recorders.sqlite.checking import findings  # only verify needs it

        def checked() -> Iterator[str]:
            with ReadConnection(self._readers, "check") as connection:
                connection.set_progress_handler(is_stopped, _STEPS_TO_STOP)
                try:
                    yield from findings(connection)
                finally:
                    connection.set_progress_handler(None, 0)

        return checked()

    def copy_to(self, path: str, on_progress: Callable[[int, int], object]) -> SQLiteRecorder:
        with ReadConnection(self._readers, f"copy to {path} from") as connection:
            rewriting.copy(connection, path, on_progress)
        if self._to_copy:
            SQLiteRecorder(path, create=False).close()  # migrates the copy
        return SQLiteRecorder(path, writable=False)

    def compact(self, patience_s: float) -> bool:
        with translate_errors(f"compact {self._path}"):
            with self._alone() as connection:
                pending = rewriting.rewrite(connection)
            until = time.monotonic() + patience_s
            while True:
                with self._alone() as connection:
                    if rewriting.empty_log(connection, pending):
                        return True
                if time.monotonic() >= until:
                    raise StoreUnavailable(
                        f"{self._path} is rewritten, but the deleted bytes are still in the files,"
                        " because a reader that began earlier is still open",
                        kind="read",
                    )
                time.sleep(_RETRY_S)

    def close(self) -> None:
        """Wait for a running transaction, then close every connection. After ``close``, every call
        raises ``StoreRefused``.

        Raises ``StoreRefused`` if this thread is inside a write. Raises ``StoreUnavailable`` if
        another thread's write does not end within the patience. If ``close`` raises
        ``StoreUnavailable``, the recorder closes after the other thread's write. If the file was
        moved or replaced while the write-ahead log had events, ``close`` logs a message, because
        the file lacks these events under its new name.
        """
        check_not_writing(self._path, self._path)
        index = self._file.index
        index_in_use = () if index is None else process_forks.identity(index)
        is_our_log = index_in_use != () and (
            index_in_use == process_forks.identity(f"{self._path}-shm")
        )
        self._file.close()
        self._checkpoints.stop(self._patience_s)
        self._syncs.stop()
        self._close_poller()
        self._readers.close()
        with self._queue.alone():
            self._writing.close()
            self._lock.close()
        try:
            if is_our_log:
                check_not_moved(self._path)
                self._file.check()
        except (*FAILURES, OSError) as problem:
            # Log the problem, because raising it would hide an error of the caller.
            tell("foldlog.store.moved", problem=str(problem))

    # -- a fork
    # ----------------------------------------------------------------------------------------------

    def rest(self, patience_s: float) -> bool:
        rested = self._checkpoints.stop(patience_s)  # first, because it takes the write lock
        self._syncs.stop()
        try:
            self._no_writers = self._queue.begin_alone(patience_s)
            INSIDE.discard(self._no_writers.writer)  # another recorder may have this file too
            self._writing.close()
        except FAILURES:  # a thread of this process is writing
            rested = False
        self._close_poller()
        return self._readers.rest(patience_s) and rested

    def resume(self) -> None:
        self._readers.resume()
        # Clear ``_no_writers`` before ``end_alone``, because another thread that forks may set it
        # next.
        job = self._no_writers
        self._no_writers = None
        if job is not None:
            self._queue.end_alone(job)
        self._checkpoints.go_on()
        self._syncs.go_on()

    def renew_in_child(self, *, inherited: bool) -> None:
        if inherited:
            process_forks.refuse(self._path)
            self._file.close("it was in use in another thread when this process was forked")
        self._lock.renew_in_child()
        # Keep a reference to the objects of the parent. The finalizers of these objects could wait
        # for threads that do not exist in the child.
        self._of_parent = (
            self._queue,
            self._writing,
            self._readers,
            self._checkpoints,
            self._syncs,
        )
        self._begin()

    # -- opening and closing
    # ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Set what belongs to this process: the connections, the queue and the threads."""
        self._polling = threading.RLock()  # a signal handler may poll while this thread is polling
        self._poller = None
        self._no_writers = None
        self._readers = ReaderPool(self._file)
        self._checkpoints = LogCheckpoints(self._file, self._alone)
        self._syncs = LogSyncs(self._path)
        self._writing = SQLiteWriting(
            self._file,
            self._lock,
            self._checkpoints,
            self._syncs,
            lambda transaction, last: self.on_copy(transaction, last),
        )
        self._queue = CommitQueue(self._writing, self._path, self._patience_s)

    def _open(self, create: bool) -> None:
        """Make the file if it has no content and ``create`` allows it, and bring an older schema up
        to date.
        """
        has_content = self._file.has_content()
        if has_content and self.writable and os.stat(self._path).st_nlink > 1:
            from foldlog.eventstore.recorders.sqlite.replacing import finish_replacing

            finish_replacing(self._path)
        if has_content is False and not create:
            raise StoreRefused(
                f"{self._path} is an empty file, not a store; restore a backup, or begin with"
                " 'foldlog import PATH'",
                kind="foreign",
            )
        # Look first, so that no file is made beside a file that is not a store.
        look = self._look() if has_content else None
        if self.writable:
            if create and not has_content:
                self._file.make()
            self._lock.open()
        number, has_log = look or self._look()
        if number == schema.NEWEST and (has_log or not self.writable):
            return
        if number > 0 and self._to_copy:
            return
        if not self.writable:
            raise StoreRefused(
                f"{self._path} is empty or of an older schema; to bring it up to date, {_TO_WRITE}",
                kind="schema",
            )
        with self._alone() as connection:
            schema.migrate(connection, self._path, self._file.inode)
        with ReadConnection(self._readers, "open"):
            pass  # opens the new log now, while its name still leads to it

    def _look(self) -> tuple[int, bool]:
        """Return the number of the file's schema, and whether the file has a log."""
        with ReadConnection(self._readers, "open") as connection:
            number = schema.checked_number(connection, self._path)
        return number, os.path.exists(f"{self._path}-wal")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection outside of a transaction. During the block, no other thread
        or process writes, and no thread writes the log back.
        """
        self._file.check_open()
        self._check_writable()
        with self._queue.alone() as deadline:
            self._writing.take(deadline)
            connection = self._writing.connection or self._writing.open()
            self._file.check()
            try:
                with self._checkpoints.beside_commits:
                    yield connection
            except sqlite3.Error as error:
                self._writing.replace(error, may_be_committed=True)
                raise

    def _check_writable(self) -> None:
        if not self.writable:
            self._file.check_open()
            raise StoreRefused(
                f"{self._path} is open for reading only; to write, {_TO_WRITE}", kind="read_only"
            )

    def _close_poller(self) -> None:
        with self._polling:
            if self._poller is not None:
                self._poller.close()
                self._poller = None
