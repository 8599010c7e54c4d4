"""Which file is this?

A store is the file that was opened, not the file that has its name later. SQLite knows its files by descriptor and
beside them by name, so it goes on without an error when somebody removes the file, puts another one in its place or
gives it a second name. Then what one process acknowledges is in a file that no other process opens. So the name is
resolved once, and every write compares the file under that name with the file that was opened.

The database file is never opened here: closing any descriptor of a file drops all POSIX locks that the process holds
on it, SQLite's among them. ``O_PATH`` opens no file: such a descriptor holds no lock and drops none. It keeps the inode
from being given to another file, and its link count says whether the file still has a name.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable
from typing import Final

from eventstore.recorders.errors import OperationalError

__all__ = ["StoreFile", "WrongFile", "has_log"]

_PATH_ONLY: Final = getattr(os, "O_PATH", 0)
_DESCRIPTORS: Final = "/proc/self/fd"
_MOUNTS: Final = "/proc/self/mountinfo"

_MAGIC: Final = b"SQLite format 3\0"
_NO_LOG: Final = b"\1\1"
"""In a file's header: it is written and read without a write-ahead log."""

_abandoned: set[tuple[int, int]] = set()
"""Files of which a connection of this process must stay open: no other one may be opened beside it."""


class WrongFile(OperationalError):
    """What is under the store's name is not, or not only, the file that was opened."""


class StoreFile:
    """The file of one store, as one recorder opened it.

    ``name`` is what the user called it, made absolute; ``path`` is the file behind all symbolic links, so that every
    process meets at the same log and the same write lock.
    """

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        self.path = os.path.realpath(path)
        self._file: _Held | None = None
        self._log: tuple[_Held, ...] = ()
        self._keep_the_log: set[sqlite3.Connection] = set()
        """Connections that are in WAL mode: as long as one of them is open, no other process removes the log."""
        self._one_at_a_time = _one_at_a_time(self.path)

    def connect(self, open_connection: Callable[[str], sqlite3.Connection]) -> sqlite3.Connection:
        """Open a connection to this very file. Close it with ``disconnect``.

        The name is looked at before and after: SQLite opens the file in between.
        """
        with self._one_at_a_time.lock:
            return self._connect(open_connection)

    def connect_and_find(
        self, open_connection: Callable[[str], sqlite3.Connection], suffix: str = ""
    ) -> tuple[sqlite3.Connection, int | None]:
        """The same, and the descriptor with which this connection, and no other, has the file open, or with the suffix
        ``-wal`` its log. None where the system does not tell: then nothing may be written but through SQLite.
        """
        with self._one_at_a_time.lock:
            before = _descriptors()
            connection = self._connect(open_connection)
            opened = self._log[:1] if suffix else (self._file,)
            found = [d for held in opened if held is not None for d in _descriptors() - before if held.is_at(d)]
            return connection, found[0] if len(found) == 1 else None

    def disconnect(self, connection: sqlite3.Connection) -> None:
        """Close a connection, unless closing it would write a log that was removed into the file."""
        with self._one_at_a_time.lock:
            if self._has_lost_its_log():
                self._abandon(connection)
                return
            connection.close()
            self._keep_the_log.discard(connection)
            if not self._keep_the_log:  # the last one to be closed removes the log
                self._release_log()

    def check(self) -> None:
        """Compare the file under the name with the file that was opened. Raises ``WrongFile``."""
        try:
            status = os.stat(self.name)
        except (FileNotFoundError, NotADirectoryError):
            if self._file is None:
                return
            raise WrongFile(
                f"{self.name} was removed or renamed while it was open, and nothing was written; "
                f"put the file back, or open the store again"
            ) from None
        if self._file is not None and (status.st_dev, status.st_ino) != self._file.identity:
            raise WrongFile(
                f"another file took the place of {self.name} while it was open, and nothing was written; "
                f"open the store again"
            )
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            raise WrongFile(
                f"{self.name} has {status.st_nlink} names (hard links), and nothing was written: SQLite keeps a log "
                f"for each name, so events written under one name are lost under the other; remove the other names, "
                f"or make a copy with 'foldlog backup'"
            )
        if self._has_lost_its_log():
            raise WrongFile(
                f"{self.path}-wal or {self.path}-shm was removed while the store was open, and nothing was written; "
                f"save what this process can still read with 'Store.back_up', then end the process"
            )

    def check_committed(self) -> None:
        """After a commit, check that its file and its log still have names. Raises ``WrongFile``."""
        for held in (self._file, *self._log[:1]):
            if held is not None and held.is_unlinked():
                raise WrongFile(
                    f"{held.path} was removed or replaced during a commit, so what was written may be lost; "
                    f"open the store again and read the conversation before you repeat the call"
                )

    def close(self) -> None:
        """Let go of the file. Its log is let go of with the last connection."""
        if self._file is not None:
            self._file.close()

    def begin_anew(self) -> None:
        """In a forked child: the connections stayed with the parent."""
        self._one_at_a_time = _one_at_a_time(self.path)
        self._keep_the_log = set()
        self._release_log()

    def _connect(self, open_connection: Callable[[str], sqlite3.Connection]) -> sqlite3.Connection:
        self._hold()
        self.check()
        connection = open_connection(self.path)
        try:
            self._hold()
            if has_log(connection):
                self._hold_log()
                self._keep_the_log.add(connection)
            self.check()
        except BaseException:
            self._keep_the_log.discard(connection)
            connection.close()
            raise
        return connection

    def _hold(self) -> None:
        """Remember the file. A name that no file has is left to SQLite, whose error says so."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                held = _Held(self.path)
                _check_not_mounted(self.path)
                _check_log(held)
                self._file = held
        if self._file is not None and self._file.identity in _abandoned:
            raise WrongFile(
                f"the log of {self.path} was removed while this process had the store open; end the process, "
                f"then open the store again"
            )

    def _hold_log(self) -> None:
        """Remember the log and its index. On a disk that cannot be written there may be none."""
        if not self._log:
            with contextlib.suppress(FileNotFoundError):
                self._log = (_Held(f"{self.path}-wal"), _Held(f"{self.path}-shm"))

    def _has_lost_its_log(self) -> bool:
        for held in self._log:  # noqa: SIM110 - runs twice in every append: a generator takes as long as the loop
            if held.is_unlinked():
                return True
        return False

    def _abandon(self, connection: sqlite3.Connection) -> None:
        """Keep a connection open until the process has ended, also while the interpreter shuts down.

        The last connection to be closed writes the log into the file. The file may have got other content since: a
        backup that was copied over it, or what another process wrote with a log of its own.
        """
        assert self._file is not None
        _abandoned.add(self._file.identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _release_log(self) -> None:
        for held in self._log:
            held.close()
        self._log = ()


class _OneAtATime:
    """A lock under which connections to one file are opened and closed, so that their descriptors can be told apart."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_by_path: weakref.WeakValueDictionary[tuple[int, str], _OneAtATime] = weakref.WeakValueDictionary()


def _one_at_a_time(path: str) -> _OneAtATime:
    """The lock of this process: a thread that held it when the process was forked is not in the child."""
    return _by_path.setdefault((os.getpid(), path), _OneAtATime())


class _Held:
    """A file that was found under a name, held without being opened."""

    _descriptor = -1

    def __init__(self, path: str) -> None:
        self.path = path
        if _PATH_ONLY:
            self._descriptor = os.open(path, _PATH_ONLY)
        status = os.fstat(self._descriptor) if _PATH_ONLY else os.stat(path)
        self.identity = status.st_dev, status.st_ino

    def is_unlinked(self) -> bool:
        """Whether the file has lost its name."""
        if self._descriptor >= 0:
            return os.fstat(self._descriptor).st_nlink == 0
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return True
        return (status.st_dev, status.st_ino) != self.identity

    def is_at(self, descriptor: int) -> bool:
        """Whether the file is open with this descriptor, so that closing it would drop locks."""
        with contextlib.suppress(OSError):  # closed since it was listed
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == self.identity:
                return not fcntl.fcntl(descriptor, fcntl.F_GETFL) & _PATH_ONLY
        return False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close


def _descriptors() -> set[int]:
    """The open descriptors of this process, where the system lists them."""
    try:
        return set(map(int, os.listdir(_DESCRIPTORS)))
    except OSError:
        return set()


def has_log(connection: sqlite3.Connection) -> bool:
    """Return whether the file is in WAL mode: then readers and writers do not wait for one another, and this connection
    has opened the log. A file that was copied gets its log when it is opened for writing.
    """
    connection.execute("PRAGMA schema_version").fetchone()  # the first read opens the log
    return connection.execute("PRAGMA journal_mode").fetchone()[0] in (b"wal", "wal")


def _check_log(file: _Held) -> None:
    """Raises ``WrongFile`` where a log lies beside a file that is not in WAL mode, as a backup is not.

    That log belongs to the file that had the name before, and SQLite would write it into this one.

    A file gets into WAL mode before its log gets content, so the log is looked at first.
    """
    try:
        if os.stat(f"{file.path}-wal").st_size == 0:
            return
    except FileNotFoundError:
        return
    descriptors = _descriptors()
    if not descriptors or any(map(file.is_at, descriptors)):
        return  # to open and close it here would drop the locks of another connection
    with open(file.path, "rb") as opened:
        header = opened.read(20)
    if header.startswith(_MAGIC) and header[18:] == _NO_LOG:
        raise WrongFile(
            f"{file.path}-wal is the log of a file that {file.path} has replaced; remove it and {file.path}-shm, then "
            f"open the store again ('foldlog restore' does that)"
        )


def _check_not_mounted(path: str) -> None:
    """Raises ``WrongFile`` where the file alone, not its folder, is mounted: then it has another name elsewhere, and
    the log beside that name is out of sight.
    """
    try:
        with open(_MOUNTS, "rb") as mounts:
            points = [line.split(b" ")[4] for line in mounts]
    except OSError:  # not Linux
        return
    encoded = os.fsencode(path)
    for byte in b"\\ \t\n":
        encoded = encoded.replace(bytes([byte]), b"\\%03o" % byte)
    if encoded in points:
        raise WrongFile(
            f"{path} is mounted as a single file, so SQLite cannot share its log with other processes; "
            f"mount the folder that holds it instead"
        )
