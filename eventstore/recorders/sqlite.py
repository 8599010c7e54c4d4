"""A store in one SQLite file, for any number of threads and processes.

Writers stand in a fair queue: within a process they share transactions (``CommitQueue``), between processes they take
turns by a lock on a file beside the database, which dies with its holder. SQLite's own busy handler lets some wait for
seconds, and gives up on them. Readers never wait: the database is in WAL mode.

``synchronous=FULL``: when ``transact`` returns, what was written is on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)

from eventstore.recorders.base import Conversation, Erasure, PlacedRow, Record, Row, Transaction
from eventstore.recorders.commit_queue import CommitQueue, Job
from eventstore.recorders.statements import migrations, statements

__all__ = ["SQLiteRecorder"]

T = TypeVar("T")

_SQL: Final = statements("sqlite")
_APPLICATION_ID: Final = 0x666C6F67  # "flog"
_PLAIN: Final = 0
_BUSY_TIMEOUT_MS: Final = 10_000
"""Only writers that are not foldlog can keep us waiting in SQLite itself; ours wait in the queue."""
_PURGE_TIMEOUT_MS: Final = 20

_ERRORS: Final[tuple[tuple[type[sqlite3.Error], type[PersistenceError]], ...]] = (
    (sqlite3.IntegrityError, IntegrityError),
    (sqlite3.InternalError, InternalError),
    (sqlite3.NotSupportedError, NotSupportedError),
    (sqlite3.ProgrammingError, ProgrammingError),
    (sqlite3.OperationalError, OperationalError),
    (sqlite3.DataError, DataError),
    (sqlite3.DatabaseError, DatabaseError),
    (sqlite3.InterfaceError, InterfaceError),
)


class SQLiteRecorder:
    """A recorder on a SQLite file.

    ``create`` makes the file, with mode 0600, if it is not there. ``writable=False`` opens an existing file for
    reading only. ``durable=False`` (``synchronous=NORMAL``) may lose the
    newest commits in a power cut, never a part of one.

    Raises ``OperationalError`` where the file cannot be opened, and ``DatabaseError`` where it is no store of ours or
    is of a newer schema. After an error in a commit, whose outcome nobody knows, the recorder closes itself.
    """

    _queue: CommitQueue
    _writing: threading.Lock
    _polling: threading.Lock
    _writer: sqlite3.Connection | None
    _poller: sqlite3.Connection | None
    _idle: list[sqlite3.Connection]

    def __init__(self, path: str, *, create: bool = True, writable: bool = True, durable: bool = True) -> None:
        self.path = path
        self.writable = writable
        self._durable = durable
        self._closed_because: str | None = None
        self._open_process_state()
        _recorders.add(self)
        with _translated(f"open {path}"):
            if writable:
                if create:
                    _create_private(path)
                self._lock_file = _open_lock_file(path)
                self._migrate()
            else:
                self._lock_file = -1
                with self._connection() as connection:
                    _check_schema(connection, path)

    # -- the seam -----------------------------------------------------------------------------------------------------

    def transact(self, work: Callable[[Transaction], T]) -> T:
        if not self.writable:
            raise OperationalError(f"{self.path} is open for reading only")
        self._check_open()
        return self._queue.run(work)

    @contextlib.contextmanager
    def read(self) -> Iterator[SQLiteReader]:
        self._check_open()
        with _translated(f"read {self.path}"), self._connection() as connection:
            connection.execute("BEGIN")
            try:
                yield SQLiteReader(connection)
            finally:
                connection.execute("ROLLBACK")

    def store_value(self, name: str) -> str:
        self._check_open()
        with _translated(f"read {self.path}"), self._connection() as connection:
            row = connection.execute("SELECT value FROM store WHERE name = ?", (name,)).fetchone()
            return str(row[0], "utf-8") if row else ""

    def data_version(self) -> int:
        self._check_open()
        with _translated(f"read {self.path}"), self._polling:
            if self._poller is None:
                self._poller = self._connect()
            return int(self._poller.execute("PRAGMA data_version").fetchone()[0])

    def purge(self) -> None:
        """The content of deleted cells was overwritten with zeros when they were deleted; what is left is in the WAL,
        which is written back and emptied here.
        """
        self._check_open()
        with _translated(f"purge {self.path}"), self._writing, self._turn():
            if self._writer is None:
                self._writer = self._connect()
            # It waits for readers, and while it waits nobody can write: so it hardly waits, and is tried again.
            self._writer.execute(f"PRAGMA busy_timeout = {_PURGE_TIMEOUT_MS}")
            try:
                busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._writer.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        if busy:
            raise OperationalError(f"{self.path} is being read, so its WAL cannot be emptied now; try again")

    def check(self) -> Iterator[str]:
        self._check_open()
        with _translated(f"check {self.path}"), self._connection() as connection:
            for (finding,) in connection.execute("PRAGMA integrity_check"):
                if finding != b"ok":
                    yield str(finding, "utf-8", "replace")
            for key, count in connection.execute(_SQL["rows_of_nobody"]):
                yield f"{count} events are of conversation number {key}, which is not there"

    def close(self) -> None:
        """Close every connection. Transactions that run are waited for; what comes later is refused."""
        if self._closed_because is None:
            self._closed_because = "it was closed"
        with self._writing:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            while self._idle:
                self._idle.pop().close()
            with self._polling:
                if self._poller is not None:
                    self._poller.close()
                    self._poller = None
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    # -- connections --------------------------------------------------------------------------------------------------

    def _open_process_state(self) -> None:
        """What belongs to one process. SQLite connections and locks must not cross a fork, so a child begins anew."""
        self._queue = CommitQueue(self._run_group)
        self._writing = threading.Lock()
        self._polling = threading.Lock()
        self._writer = None
        self._poller = None
        self._idle = []

    def _after_fork_in_child(self) -> None:
        # Closing the parent's connections here could drop its locks, so they are left alone.
        self._inherited = (self._writer, self._poller, self._idle)
        self._open_process_state()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = _open_lock_file(self.path)

    def _connect(self) -> sqlite3.Connection:
        mode = "rw" if self.writable else "ro"
        connection = sqlite3.connect(
            f"{Path(self.path).absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.text_factory = bytes
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        if self.writable:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute("PRAGMA secure_delete = ON")
        return connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for reading, kept for the next reader afterwards."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        if self._closed_because is None:
            self._idle.append(connection)
        else:
            connection.close()

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise InterfaceError(f"{self.path} is closed: {self._closed_because}; open it again")

    def _migrate(self) -> None:
        with self._writing, self._turn():
            connection = self._writer = self._connect()
            schema = _check_schema(connection, self.path, may_be_new=True)
            for number, script in migrations("sqlite").items():
                if number <= schema:
                    continue
                with _immediate(connection):
                    for statement in _split(script):
                        connection.execute(statement)
                    if number == 1:
                        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                        connection.execute("INSERT INTO store VALUES ('uuid', ?)", (str(uuid.uuid4()),))
                    connection.execute(f"PRAGMA user_version = {number}")

    # -- writing ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """This process's turn in the queue of processes. The kernel ends it if the process dies."""
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _run_group(self, group: Sequence[Job[Any]]) -> None:
        """Run jobs in one transaction. One that fails after it wrote something is taken out, and the rest run again."""
        jobs = list(group)
        while jobs:
            with self._writing:
                try:
                    with _translated(f"write to {self.path}"):
                        jobs = self._run_once(jobs)
                except PersistenceError as error:
                    for job in jobs:
                        job.fail(error)
                    return

    def _run_once(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """One transaction; returns the jobs that must run again because another one of the group was taken out."""
        self._check_open()
        if self._writer is None:
            self._writer = self._connect()
        connection = self._writer
        done: list[tuple[Job[Any], Any]] = []
        with self._turn():
            try:
                connection.execute("BEGIN IMMEDIATE")
                transaction = SQLiteTransaction(connection)
                for job in jobs:
                    changes = connection.total_changes
                    try:
                        done.append((job, job.work(transaction)))
                    except Exception as error:
                        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
                            raise  # the database's trouble, not the job's
                        job.fail(_library_error(error, f"write to {self.path}"))
                        if connection.total_changes != changes:
                            done.clear()
                            connection.execute("ROLLBACK")
                            return [other for other in jobs if not other.failed]
                self._commit(connection)
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                elif not isinstance(error, sqlite3.Error):
                    _succeed(done)  # interrupted just behind the commit: it stands, and must not be run again
                raise
            _succeed(done)
        return []

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Whether it is on disk, nobody knows: an fsync reports its failure once, so trying again would hide it.
            self._closed_because = f"a commit failed ({error}), and whether it is on disk is not known"
            raise


class SQLiteReader:
    """The questions that one transaction answers. All of them walk an index to what they return."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute
        self._ids: dict[int, str] = {}

    def conversation(self, conversation_id: str) -> Conversation | None:
        found = self._execute(_SQL["conversation"], (_bytes(conversation_id),)).fetchone()
        return _conversation(conversation_id, found) if found else None

    def conversations(self, after: str | None, limit: int) -> Sequence[Conversation]:
        # The text that follows ``after`` at once is itself with a zero byte behind it.
        start = b"" if after is None else _bytes(after) + b"\0"
        rows = self._execute(_SQL["conversations"], (start, limit)).fetchall()
        return [_conversation(_text(row[0]), row[1:]) for row in rows]

    def conversation_of(self, key: int) -> Conversation | None:
        found = self._execute(_SQL["conversation_of"], (key,)).fetchone()
        return _conversation(_text(found[0]), found[1:]) if found else None

    def staged(self, conversation_id: str) -> Sequence[int]:
        return [row[0] for row in self._execute(_SQL["in_staging"], (_bytes(conversation_id),))]

    def rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return list(map(_row, self._execute(_SQL["rows"], (key, start, stop, limit))))

    def structural_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return list(map(_row, self._execute(_SQL["structural_rows"], (key, start, stop, limit))))

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, int]]) -> Sequence[Row]:
        return list(map(_row, self._execute(_SQL["shown_rows"], (json.dumps(intervals), key))))

    def counts_before(self, key: int, event_ids: Sequence[int]) -> Sequence[tuple[int, int, int]]:
        return self._execute(_SQL["counts_before"], (json.dumps(event_ids), key)).fetchall()

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Live rows have their positions; those of an import are reckoned from where it was published."""
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._publication(after_position)
            if block is not None and block[2] <= after_position + 1:
                key, conversation_id, first, size = block
                start = after_position + 1 - first
                rows = self.rows(key, start, size, limit - len(placed))
                placed += [PlacedRow(first + row.id, conversation_id, row) for row in rows]
                # What is missing was erased: go on behind the block.
                after_position = placed[-1].position if rows and len(placed) == limit else first + size - 1
                continue
            before = block[2] - 1 if block is not None else self.last_position()
            live = self._execute(_SQL["live_rows_from"], (after_position, before, limit - len(placed))).fetchall()
            placed += [PlacedRow(row[12], self._id(row[13]), _row(row)) for row in live]
            if block is None or len(placed) == limit:
                break
            after_position = before
        return placed

    def last_position(self) -> int:
        return int(self._execute(_SQL["last_position"]).fetchone()[0])

    def record_at(self, projection: str, key: int, version: int) -> Record | None:
        found = self._execute(_SQL["record_at"], (projection, key, version)).fetchone()
        return Record(*found) if found else None

    def records(self, projection: str, key: int, after: int, limit: int) -> Sequence[Record]:
        return [Record(*row) for row in self._execute(_SQL["records"], (projection, key, after, limit))]

    def position(self, key: int, event_id: int) -> int:
        return int(self._execute(_SQL["position"], (key, event_id)).fetchone()[0])

    def recall(self, key: int, idempotency_key: str) -> tuple[int, int] | None:
        found = self._execute(_SQL["recall"], (key, _bytes(idempotency_key))).fetchone()
        return (found[0], found[1]) if found else None

    def remembered(self, key: int, after: str, limit: int) -> Sequence[tuple[str, int, int]]:
        rows = self._execute(_SQL["remembered"], (key, _bytes(after), limit))
        return [(_text(name), first_id, events) for name, first_id, events in rows]

    def projections(self, key: int) -> Sequence[str]:
        return [_text(row[0]) for row in self._execute(_SQL["projections"], (key,))]

    def max_tracking_id(self, application: str) -> int | None:
        found: int | None = self._execute(_SQL["max_tracking_id"], (application,)).fetchone()[0]
        return found

    def _publication(self, after_position: int) -> tuple[int, str, int, int] | None:
        """The published import that holds the next position, else the first one behind it."""
        row = self._execute(_SQL["publication_at"], (after_position + 1,)).fetchone()
        if row is None or row[2] + row[3] <= after_position + 1:
            row = self._execute(_SQL["publications_after"], (after_position + 1, 1)).fetchone()
        return (row[0], _text(row[1]), row[2], row[3]) if row else None

    def _id(self, key: int) -> str:
        if key not in self._ids:
            self._ids[key] = _text(self._execute(_SQL["conversation_id"], (key,)).fetchone()[0])
        return self._ids[key]


class SQLiteTransaction(SQLiteReader):
    """What may be written, under the one write lock that SQLite has."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._executemany = connection.executemany
        self._next_position: int | None = None

    def begin(self, conversation_id: str, created_at: int, salt: bytes, *, staged: bool = False) -> Conversation:
        cursor = self._execute(
            _SQL["begin_conversation"], (_bytes(conversation_id), 0 if staged else 1, created_at, salt)
        )
        key = cursor.lastrowid
        assert key is not None  # an INSERT into a rowid table has one
        return Conversation(key, conversation_id, created_at, salt, 0, None, None)

    def insert(self, key: int, rows: Sequence[Row]) -> int:
        if self._next_position is None:
            self._next_position = self.last_position() + 1
        first = self._next_position
        self._insert(key, rows, first)
        self._next_position = first + len(rows)
        return first

    def stage(self, key: int, rows: Sequence[Row]) -> None:
        # Below every live position, so that no follower meets them, and ordered by id within the conversation.
        self._insert(key, rows, _staged_position(key, 0) + rows[0].id)

    def publish(self, key: int, size: int) -> int:
        first = self.last_position() + 1
        self._execute(_SQL["reserve_positions"], (size,))
        self._execute(_SQL["publish"], (first, size, key))
        self._next_position = first + size
        return first

    def discard(self, key: int, limit: int) -> bool:
        if self._execute(_SQL["delete_rows"], (key, limit)).rowcount == limit:
            return False
        self._execute(_SQL["delete_conversation"], (key,))
        return True

    def set_key(self, key: int, salt: bytes, key_id: str | None, sealed_key: bytes | None) -> None:
        self._execute(_SQL["set_key"], (salt, None if key_id is None else _bytes(key_id), sealed_key, key))

    def replace(self, key: int, rows: Sequence[Row]) -> None:
        self._executemany(
            _SQL["replace_row"],
            [(r.encoding, r.checksum, r.encoding == _PLAIN, r.body, r.body, key, r.id) for r in rows],
        )

    def erase(self, key: int, erasure: Erasure) -> None:
        self._execute(
            _SQL["erase_conversation"],
            (erasure.erased_at, _bytes(erasure.reason), erasure.events, erasure.head, key),
        )

    def expunge(self, key: int, limit: int) -> bool:
        if self._execute(_SQL["delete_rows"], (key, limit)).rowcount == limit:
            return False
        self._execute(_SQL["forget_keys"], (key,))
        for projection in self.projections(key):
            self.delete_records(projection, key)
        return True

    def remember(self, key: int, idempotency_key: str, first_id: int, events: int) -> None:
        self._execute(_SQL["remember"], (key, _bytes(idempotency_key), first_id, events))

    def put_records(self, projection: str, key: int, records: Iterable[Record]) -> None:
        self._executemany(_SQL["put_record"], [(projection, key, *record) for record in records])

    def delete_records(self, projection: str, key: int) -> None:
        self._execute(_SQL["delete_records"], (projection, key))

    def insert_tracking(self, application: str, notification_id: int) -> None:
        newest = self.max_tracking_id(application)
        if newest is not None and newest >= notification_id:
            raise IntegrityError(
                f"{application!r} is at notification {newest} already, {notification_id} comes too late"
            )
        self._execute(_SQL["insert_tracking"], (application, notification_id))

    def _insert(self, key: int, rows: Sequence[Row], position: int) -> None:
        if len(rows) == 1 and rows[0].encoding == _PLAIN:
            self._execute(_SQL["insert_event"], _plain_parameters(position, key, rows[0]))
        elif all(row.encoding == _PLAIN for row in rows):
            self._executemany(
                _SQL["insert_event"], [_plain_parameters(position + n, key, row) for n, row in enumerate(rows)]
            )
        else:
            self._executemany(
                _SQL["insert_sealed_event"],
                [
                    (
                        position + n,
                        key,
                        r.id,
                        r.kind,
                        r.schema,
                        r.shown,
                        r.structural,
                        r.recorded_at,
                        r.encoding,
                        r.shown_before,
                        r.structural_before,
                        r.checksum,
                        r.head,
                        r.body,
                    )
                    for n, r in enumerate(rows)
                ],
            )


_recorders: weakref.WeakSet[SQLiteRecorder] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    for recorder in _recorders:
        recorder._after_fork_in_child()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


def _succeed(done: Iterable[tuple[Job[Any], Any]]) -> None:
    for job, result in done:
        job.succeed(result)


def _staged_position(key: int, event_id: int) -> int:
    return event_id - ((key + 1) << 32)


def _plain_parameters(position: int, key: int, row: Row) -> tuple[Any, ...]:
    return (
        position, key, row.id, row.kind, row.schema, row.shown, row.structural, row.recorded_at,
        row.shown_before, row.structural_before, row.checksum, row.head, row.body,
    )  # fmt: skip


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def _row(row: tuple[Any, ...]) -> Row:
    return Row(
        row[0], str(row[1], "utf-8", "replace"), row[2], row[3] == 1, row[4] == 1, row[5], row[6], row[7], row[8],
        row[9], row[10], row[11],
    )  # fmt: skip


def _conversation(conversation_id: str, found: tuple[Any, ...]) -> Conversation:
    (key, _visible, created_at, parent, parent_version, salt, key_id, sealed_key,
     erased_at, erased_reason, erased_events, erased_head, last_id, updated_at, head,
     shown, structural) = found  # fmt: skip
    return Conversation(
        key=key,
        id=conversation_id,
        created_at=created_at,
        salt=salt or b"",
        version=0 if last_id is None else last_id + 1,
        updated_at=updated_at,
        head=head,
        parent=parent,
        parent_version=parent_version,
        key_id=None if key_id is None else _text(key_id),
        sealed_key=sealed_key,
        erasure=None
        if erased_at is None
        else Erasure(erased_at, _text(erased_reason or b""), erased_events, erased_head or b""),
        shown=shown or 0,
        structural=structural or 0,
    )


def _library_error(error: Exception, doing: str) -> Exception:
    """A driver's error as the library's, with what was being done; any other error as it is."""
    for driver_error, library_error in _ERRORS:
        if isinstance(error, driver_error):
            translated = library_error(f"cannot {doing}: {error}")
            translated.__cause__ = error
            return translated
    return error


@contextlib.contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Driver errors as the taxonomy of eventsourcing, with what was being done."""
    try:
        yield
    except sqlite3.Error as error:
        raise _library_error(error, doing) from error
    except OSError as error:
        raise OperationalError(f"cannot {doing}: {error.strerror or error}") from error


@contextlib.contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create_private(path: str) -> None:
    """The file with mode 0600 from its first moment; SQLite gives its WAL the same mode."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _open_lock_file(path: str) -> int:
    return os.open(f"{path}-queue", os.O_CREAT | os.O_RDWR, 0o600)


def _check_schema(connection: sqlite3.Connection, path: str, *, may_be_new: bool = False) -> int:
    """The schema version of a store of ours; 0 for an empty database where that is welcome."""
    newest = max(migrations("sqlite"))
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if empty and application == 0 and may_be_new:
        return 0
    if application != _APPLICATION_ID:
        raise DatabaseError(f"{path} is a SQLite database, but not a foldlog store; choose another file")
    if schema > newest:
        raise DatabaseError(
            f"{path} has schema {schema}, this version of foldlog knows schemas up to {newest}; "
            f"upgrade foldlog to open it"
        )
    return schema


def _split(script: str) -> Iterator[str]:
    """The statements of a migration, so that each runs within our transaction (``executescript`` would commit it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
