"""The seam to SQLite: group commit, what becomes of an error, the end."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, TypeVar

from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.commit_queue import CommitQueue, Job
from eventstore.recorders.errors import DatabaseError, InterfaceError, OperationalError, RecorderError
from eventstore.recorders.sqlite import epochs, forks, schema, upkeep
from eventstore.recorders.sqlite.connections import (
    ReaderPool,
    create_private,
    is_empty,
    open_reader,
    open_writer,
)
from eventstore.recorders.sqlite.errors import leaves_doubt, translate, translated
from eventstore.recorders.sqlite.log_space import LogSpace
from eventstore.recorders.sqlite.reader import SQLiteReader
from eventstore.recorders.sqlite.scrub import Scrubber
from eventstore.recorders.sqlite.store_file import StoreFile, WrongFile
from eventstore.recorders.sqlite.tails import Tails
from eventstore.recorders.sqlite.transaction import SQLiteTransaction
from eventstore.recorders.sqlite.turns import Turns

__all__ = ["SQLiteRecorder"]

T = TypeVar("T")


class SQLiteRecorder:
    """A recorder on a SQLite file.

    ``create`` makes the file, with mode 0600, if it is not there. ``writable=False`` opens an existing file for reading
    only. ``durable``: when ``transact`` returns, what was written is on disk (``synchronous=FULL``); otherwise the
    newest commits may be lost in a power cut, never a part of one.

    Raises ``OperationalError`` where the file cannot be opened, and ``DatabaseError`` where it is no store of ours or
    is of a newer schema. After an error of the disk the recorder closes itself: of the writes that failed, nobody knows
    whether they are there, and only reading the file anew tells.
    """

    _queue: CommitQueue
    _writing: threading.Lock
    _polling: threading.Lock
    _scrubbing: threading.Lock
    _scrubber: Scrubber
    _readers: ReaderPool
    _writer: sqlite3.Connection | None
    _tails: Tails
    _in_its_epoch: bool
    _log_space: LogSpace
    _poller: sqlite3.Connection | None
    _holds_writers: bool
    _holds_scrubber: bool

    def __init__(self, path: str, *, create: bool = True, writable: bool = True, durable: bool = True) -> None:
        self._file = StoreFile(path)
        self.path = self._file.path
        self.writable = writable
        self._durable = durable
        self._turns: Turns | None = None
        self._closed_because: str | None = None
        self._pollers = 0
        self._begin()
        try:
            with translated(f"open {path}"):
                self._open(create)
        except BaseException:
            self.close()
            raise
        forks.watch(self)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        self._check_open()
        if self._turns is None:
            raise OperationalError(f"{self.path} is open for reading only; open it without ?mode=ro to write")
        return self._queue.run(work)

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        with self._snapshot("read") as connection:
            yield SQLiteReader(connection, self._file.check)

    def query(self, work: Callable[[Reader], T]) -> T:
        with self.read() as reader:
            return work(reader)

    def store_value(self, name: str) -> str:
        with self._snapshot("read") as connection:
            return SQLiteReader(connection).store_value(name)

    def data_version(self) -> int:
        self._check_open()
        with translated(f"read {self.path}"), self._polling:
            if self._poller is None:
                self._poller = self._connect_reader()
                self._pollers += 1
            self._file.check()
            # Each connection counts for itself: a new one must not come to a number that an earlier one has told.
            return (self._pollers << 32) + int(self._poller.execute("PRAGMA data_version").fetchone()[0])

    # -- the file as a whole ------------------------------------------------------------------------------------------

    def purge(self) -> bool:
        with translated(f"purge {self.path}"):
            with self._alone() as connection:
                upkeep.empty_wal(connection)
            with self._scrubbing:
                return self._scrubber.scrub(self._alone, self._readers.connection, self._check_open)

    def check(self) -> Iterator[str]:
        with self._snapshot("check") as connection:
            yield from upkeep.findings(connection)

    def beside(self, path: str) -> SQLiteRecorder:
        return SQLiteRecorder(path, writable=False)

    def copy_to(self, path: str, on_progress: Callable[[int, int], object]) -> None:
        with self._snapshot(f"copy to {path} from") as connection:
            upkeep.copy(connection, path, on_progress)

    def lost_after(self, position: int) -> int | None:
        with self._snapshot("read") as connection:
            return epochs.lost_after(connection, position)

    def left_in_staging(self, before: int) -> Sequence[int]:
        with self._snapshot("read") as connection:
            return upkeep.left_in_staging(connection, before)

    def left_of_erased(self) -> Sequence[int]:
        with self._snapshot("read") as connection:
            return upkeep.left_of_erased(connection)

    def compact(self) -> bool:
        with translated(f"compact {self.path}"), self._alone() as connection:
            return upkeep.compact(connection)

    def close(self) -> None:
        """Close every connection. A transaction that runs is waited for; what comes later is refused."""
        if self._closed_because is None:
            self._closed_because = "it was closed"
        with self._writing:
            self._close_writer()
            if self._turns is not None:
                self._turns.close()
        self._close_poller()
        with self._scrubbing:
            self._scrubber.close()
        self._readers.close()
        self._file.close()

    # -- a fork -------------------------------------------------------------------------------------------------------

    def rest(self, patience_s: float) -> bool:
        self._holds_scrubber = self._scrubbing.acquire(timeout=patience_s)  # first: whoever scrubs also writes
        if self._holds_scrubber:
            self._scrubber.close()
        self._holds_writers = self._writing.acquire(timeout=patience_s)
        if self._holds_writers:
            self._close_writer()
        self._close_poller()
        return self._readers.rest(patience_s) and self._holds_writers and self._holds_scrubber

    def resume(self) -> None:
        self._readers.resume()
        if self._holds_writers:
            self._writing.release()
        if self._holds_scrubber:
            self._scrubbing.release()

    def begin_anew(self, *, inherited: bool) -> None:
        if inherited:
            self._closed_because = "it was in use in another thread when this process was forked"
        if self._turns is not None:
            self._turns.begin_anew()
        self._file.begin_anew()
        self._begin()

    # -- writing ------------------------------------------------------------------------------------------------------

    def _run_group(self, collect: Callable[[], list[Job[Any]]]) -> None:
        with self._writing:
            self._check_open()
            assert self._turns is not None
            try:
                self._turns.take()
                jobs = collect()  # whoever came while this process waited for its turn goes with it
                while jobs:
                    jobs = self._run_together(jobs)
            except OSError as error:
                raise translate(error, f"write to {self.path}") from error
            finally:
                self._turns.give_back()

    def _run_together(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """One transaction. A job that fails after it wrote something is taken out, and the others are to be run again:
        they are returned.
        """
        done: list[tuple[Job[Any], Any]] = []
        connection = None
        committing = False
        try:
            connection = self._writer or self._open_writer()
            connection.execute("BEGIN IMMEDIATE")
            self._file.check_contents()
            if not self._tails.still_hold(connection):
                schema.check_unchanged(connection, self.path)
            if not self._in_its_epoch:
                epochs.begin_where_copied(connection, self._file.inode)
            self._log_space.make()
            transaction = SQLiteTransaction(connection, self._tails)
            for job in jobs:
                changes = connection.total_changes
                try:
                    done.append((job, job.work(transaction)))
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
                        raise  # the database's trouble, not the job's
                    job.fail(translate(error, f"write to {self.path}"))
                    if connection.total_changes != changes:
                        done.clear()
                        self._roll_back(connection)
                        return [other for other in jobs if not other.done]
            committing = True
            connection.execute("COMMIT")
            self._in_its_epoch = True
            self._succeed(done)
        except (sqlite3.Error, OSError, RecorderError) as error:
            self._fail(jobs, error, committing)
        except BaseException:  # Ctrl-C
            if connection is not None and connection.in_transaction:
                self._roll_back(connection)
            else:
                self._succeed(done)  # it came just after the commit, which stands and must not be run again
            raise
        return []

    def _succeed(self, done: list[tuple[Job[Any], Any]]) -> None:
        """End jobs whose commit stands. Raises ``WrongFile`` where it stands in a file that has no name any more."""
        self._file.check_committed()
        for job, result in done:
            job.succeed(result)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._tails.forget()
        connection.rollback()

    def _fail(self, jobs: list[Job[Any]], error: Exception, committing: bool) -> None:
        """End all jobs with an error of the database; where the disk failed, that is the end of the recorder too.

        An fsync reports its failure once, and what it could not write may be gone from the cache as well: trying again
        would look like success.
        """
        if isinstance(error, WrongFile):  # its connection stays: what it has can still be read and backed up
            if self._writer is not None:
                self._roll_back(self._writer)
        else:
            self._close_writer()
        if isinstance(error, sqlite3.Error) and (committing or leaves_doubt(error)):
            self._closed_because = f"a write failed ({error})"
        for job in jobs:
            if not job.done:
                # Each caller gets an error of its own: raising one writes a traceback into it.
                job.fail(translate(copy(error), f"write to {self.path}"))

    # -- opening and closing ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """What belongs to one process: locks, queue, connections."""
        self._queue = CommitQueue(self._run_group)
        self._writing = threading.Lock()
        self._polling = threading.Lock()
        self._scrubbing = threading.Lock()
        self._scrubber = Scrubber(self._file)
        self._readers = ReaderPool(self._connect_reader, self._file.disconnect)
        self._writer = None
        self._poller = None
        self._holds_writers = False
        self._holds_scrubber = False

    def _open(self, create: bool) -> None:
        if not create and is_empty(self.path):
            raise DatabaseError(
                f"{self.path} is empty, which no store is; restore a backup, or begin with 'foldlog import'"
            )
        if self.writable:
            if create:
                create_private(self.path)
            self._turns = Turns(self.path)
        with self._readers.connection() as connection:
            connection.execute("BEGIN")  # one moment, and the file is looked at once
            try:
                ready = schema.is_current(connection, self.path) and (
                    not self.writable or self._file.has_log(connection)
                )
            finally:
                connection.rollback()
        if ready:
            return
        if not self.writable:
            raise DatabaseError(f"{self.path} is empty or of an older schema; open it once without ?mode=ro")
        with self._alone() as connection:
            schema.migrate(connection, self.path, self._file.inode)

    @contextlib.contextmanager
    def _snapshot(self, doing: str) -> Iterator[sqlite3.Connection]:
        """A reader's connection, in a transaction: all that it reads is of one moment."""
        self._check_open()
        with translated(f"{doing} {self.path}"), self._readers.connection() as connection:
            try:
                connection.execute("BEGIN")
                schema.check_unchanged(connection, self.path)
                yield connection
            finally:
                connection.rollback()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection, in a turn of its own."""
        self._check_open()
        if self._turns is None:
            raise OperationalError(f"{self.path} is open for reading only; open it without ?mode=ro to write")
        with self._writing:
            try:
                self._turns.take()
                connection = self._writer or self._open_writer()
                self._file.check()
                yield connection
            finally:
                self._turns.give_back()

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise InterfaceError(f"{self.path} is closed: {self._closed_because}; open the store again")

    def _connect_reader(self) -> sqlite3.Connection:
        return self._file.connect(partial(open_reader, writable=self.writable))

    def _open_writer(self) -> sqlite3.Connection:
        self._writer, log = self._file.connect_to_log(partial(open_writer, durable=self._durable))
        self._tails = Tails()
        self._in_its_epoch = False
        self._log_space = LogSpace(log)
        return self._writer

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._file.disconnect(self._writer)
            self._writer = None

    def _close_poller(self) -> None:
        with self._polling:
            if self._poller is not None:
                self._file.disconnect(self._poller)
                self._poller = None
