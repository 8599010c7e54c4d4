"""Connections to the file, and for readers a pool of them."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from urllib.parse import quote_from_bytes

from foldlog.eventstore.recorders.base import PATIENCE_S
from foldlog.eventstore.recorders.errors import DatabaseError, OperationalError
from foldlog.eventstore.recorders.sqlite import process_forks, schema
from foldlog.eventstore.recorders.urls import absolute_hint


def create_private(path: str) -> os.stat_result | None:
    """Create the file with mode 0600 from its first moment, and return its status; SQLite gives its WAL the same mode.
    A file that exists by now is not opened: closing it would release the locks of every connection of this process.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        remedy = absolute_hint(path) or "; make its folder first"
        raise OperationalError(f"cannot make {path}: {error.strerror}{remedy}") from error
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise OperationalError(
            f"cannot make {path}: {error.strerror}; name a file in a folder that this user may write"
        ) from error
    return status_of(path)


def status_of(path: str) -> os.stat_result | None:
    """Return the status of the path; None if it cannot be read. Opening it then raises the error."""
    try:
        return os.stat(path)
    except OSError:
        return None


def check_is_file(path: str, status: os.stat_result | None) -> None:
    """Raise ``DatabaseError`` if the path is not a regular file, or has one byte: SQLite takes it for an empty one."""
    if status is not None and not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, a pipe or a socket"
        raise DatabaseError(f"{path} is {kind}, and a store is a regular file; name another file")
    if status is not None and status.st_size == 1:
        raise DatabaseError(f"cannot open {path}: file is not a database; choose another file, or restore a backup")


def is_empty(path: str, status: os.stat_result) -> bool:
    """Return whether the file is empty: SQLite takes it for a new database, but it may have been a store."""
    return status.st_size == 0 and not os.path.exists(f"{path}-wal")


def open_reader(path: str, *, patience_s: float = PATIENCE_S, writable: bool = True) -> sqlite3.Connection:
    """Open a connection for a reader. ``writable``: the file may be written, so it helps to recover it after a crash.

    SQLite waits up to ``patience_s`` for its own locks. Only other programs make it wait: foldlog's writers wait for
    the write lock first.
    """
    process_forks.check_not_inherited(path)
    options = "mode=rw" if writable else "mode=ro"
    if not writable and _is_read_only(path):
        options = "immutable=1"  # else SQLite would make files beside it, for those who read and write at once
    connection = sqlite3.connect(
        f"{file_uri(path)}?{options}",
        uri=True,
        timeout=patience_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.text_factory = bytes
    # Functions with side effects are for our statements only.
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)
    else:
        connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def file_uri(path: str) -> str:
    """Return the file's URI: what ``Path.as_uri`` returns, in a tenth of the time."""
    absolute = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    return f"file://{quote_from_bytes(os.fsencode(absolute))}"


def _is_read_only(path: str) -> bool:
    """Return whether no user can write the file, by its file system or by its rights and those of its folder, and none
    has it open: no log is beside it.
    """
    if not os.path.exists(path) or os.path.exists(f"{path}-wal"):
        return False
    return is_on_read_only_disk(path) or _is_read_only_for_all(path)


def _is_read_only_for_all(path: str) -> bool:
    """Return whether no user has the right to write the file or its folder; root has it without being given it."""
    folder = os.path.dirname(os.path.realpath(path))
    given = os.stat(path).st_mode | os.stat(folder).st_mode
    return not given & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) and not os.access(folder, os.W_OK)


def is_on_read_only_disk(path: str) -> bool:
    """Return whether the file system of this file is mounted read-only: its permissions then do not matter."""
    return os.path.exists(path) and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def open_writer(path: str, *, durable: bool, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """Open a writer's connection. Unless it is ``durable``, a power cut may lose the newest commits, each whole."""
    connection = open_reader(path, patience_s=patience_s)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != b"wal":
        raise OperationalError(
            f"{path} cannot have a write-ahead log (SQLite stays in mode {mode.decode()}); "
            f"keep the store on a local disk, not on a network file system"
        )
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute("PRAGMA fullfsync = ON")  # on macOS a plain fsync stops at the drive's cache
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def check_unchanged(connection: sqlite3.Connection, path: str) -> None:
    """Check within a transaction that no newer version has migrated the file since it was opened. Takes under 1 µs."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != schema.NEWEST:
        schema.checked_number(connection, path)


class Use:
    """One use of a connection, by one thread."""

    __slots__ = ("connection",)

    connection: sqlite3.Connection | None

    def __init__(self) -> None:
        self.connection = None


class ReaderPool:
    """Connections for readers. One thread at a time uses a connection, which is kept for the next reader.

    A signal handler may read while its thread is anywhere in here. So a thread may take the lock again, and fields that
    belong together are changed without a call in between.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[sqlite3.Connection] = []
        self._uses: set[Use] = set()
        self._resting = False
        self._closed = False

    def take(self, use: Use) -> sqlite3.Connection:
        """Give a connection to one thread, and note it in ``use`` at once: an exception of a signal handler may come
        right after. The caller must call ``give_back``, also where this raises.
        """
        with self._lock:
            while self._resting:
                self._changed.wait()
            self._uses.add(use)
            if self._idle:
                try:  # noqa: SIM105 - suppress() is two calls in every read
                    use.connection = self._idle.pop()
                except IndexError:  # a signal handler has read in between
                    pass
        if use.connection is None:
            use.connection = self._connect()
        return use.connection

    def add(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next reader."""
        with self._lock:
            self._idle.append(connection)

    def give_back(self, use: Use, *, sound: bool) -> None:
        """Keep the connection of a use for the next, if it is ``sound``."""
        with self._lock:
            self._uses.discard(use)
            connection, use.connection = use.connection, None
            if connection is not None:
                if sound and not self._closed and not connection.in_transaction:
                    self._idle.append(connection)
                else:
                    connection.close()
            if self._resting:
                self._changed.notify_all()

    def close(self) -> None:
        """Close the pool. Connections in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            self._close_idle()

    def rest(self, patience_s: float) -> bool:
        """Close every connection and open none until ``resume``. Return False if some stay in use for that time."""
        with self._lock:
            self._resting = True
            left_alone = self._changed.wait_for(lambda: not self._uses, patience_s)
            self._close_idle()
            return left_alone

    def resume(self) -> None:
        with self._lock:
            self._resting = False
            self._changed.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
