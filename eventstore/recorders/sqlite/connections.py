"""Connections to the file, and for readers a pool of them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from eventstore.recorders.base import PATIENCE_S
from eventstore.recorders.errors import OperationalError
from eventstore.recorders.sqlite import process_forks

__all__ = ["ReaderPool", "create_private", "is_empty", "open_reader", "open_writer"]


def create_private(path: str) -> None:
    """Create the file with mode 0600 from its first moment; SQLite gives its WAL the same mode. An existing one is not
    opened: closing it would take its locks from every connection of this process.
    """
    if os.path.exists(path):
        return
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def is_empty(path: str) -> bool:
    """Whether nothing at all is in the file: SQLite takes it for a new database, and it may have been a whole one."""
    return os.path.exists(path) and os.path.getsize(path) == 0 and not os.path.exists(f"{path}-wal")


def open_reader(path: str, *, patience_s: float = PATIENCE_S, writable: bool = True) -> sqlite3.Connection:
    """``writable`` says whether the file may be written at all: a reader then helps to recover it after a crash.

    SQLite waits up to ``patience_s`` for its own locks. Only writers that are not foldlog make it wait: ours wait for
    the write lock first.
    """
    process_forks.check_not_inherited(path)
    options = "mode=rw" if writable else "mode=ro"
    if not writable and _nobody_can_write(path):
        options = "immutable=1"  # else SQLite would make files beside it, for those who read and write at once
    connection = sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?{options}",
        uri=True,
        timeout=patience_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.text_factory = bytes
    connection.execute("PRAGMA trusted_schema = OFF")  # functions with side effects are for our statements only
    return connection


def _nobody_can_write(path: str) -> bool:
    """Whether the file is on a read-only file system, complete in itself."""
    if not os.path.exists(path) or os.path.exists(f"{path}-wal"):
        return False
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def open_writer(path: str, *, durable: bool, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """``durable``: a commit returns when it is on disk. Otherwise the newest may be lost in a power cut, whole."""
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


class ReaderPool:
    """Connections for readers: each is used by one thread at a time, and kept for the next.

    A signal handler may read while its thread is anywhere in here, so the lock lets a thread in again, and what has to
    hold together is changed without a call in between.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], disconnect: Callable[[sqlite3.Connection], object]
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._idle: list[sqlite3.Connection] = []
        self._uses: set[object] = set()
        self._resting = False
        self._closed = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        use, connection, sound = object(), None, False
        try:
            with self._lock:
                while self._resting:
                    self._changed.wait()
                self._uses.add(use)
                with contextlib.suppress(IndexError):
                    connection = self._idle.pop()
            if connection is None:
                connection = self._connect()
            sound = True
            yield connection
        except sqlite3.Error:
            sound = False
            raise
        finally:
            with self._lock:
                self._uses.discard(use)
                if connection is not None:
                    self._give_back(connection, sound=sound and not connection.in_transaction)
                if self._resting:
                    self._changed.notify_all()

    def close(self) -> None:
        """Close the pool. Connections in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            self._close_idle()

    def rest(self, patience_s: float) -> bool:
        """Close every connection and open none until ``resume``; False if some stayed in use for so long."""
        with self._lock:
            self._resting = True
            left_alone = self._changed.wait_for(lambda: not self._uses, patience_s)
            self._close_idle()
            return left_alone

    def resume(self) -> None:
        with self._lock:
            self._resting = False
            self._changed.notify_all()

    def _give_back(self, connection: sqlite3.Connection, *, sound: bool) -> None:
        if sound and not self._closed:
            self._idle.append(connection)
        else:
            self._disconnect(connection)

    def _close_idle(self) -> None:
        while self._idle:
            self._disconnect(self._idle.pop())
