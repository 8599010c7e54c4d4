"""The file of a store: connections to the file, and checks of its name.

SQLite finds the main file by its descriptor, but finds the files beside it by their names. SQLite
reports no error when somebody removes the main file, replaces it or gives it a second name. A
process that has the former file open could then acknowledge events in a file that no other process
opens. The name of the file is made absolute once, when the store is opened. Every write transaction
checks that the absolute name still leads to the opened file: the device, the inode, and the number
of names must be unchanged.

A process that closes any descriptor of a file loses all its POSIX locks on the file, including
SQLite's locks. If the locks are lost, another process believes that it is the last user of the
file, and removes the log when it ends. On Linux, each connection to a file with a log therefore
holds a second lock. Closing another descriptor does not release the second lock. Other code of
foldlog opens the file only through ``eventstore.files.open_files``, which keeps these locks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import sqlite3
import stat
import struct
import sys
import time
import weakref
from typing import Final
from urllib.parse import quote_from_bytes

from foldlog.eventstore.errors import StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.base import PATIENCE_S
from foldlog.eventstore.recorders.sqlite.errors import primary_code
from foldlog.eventstore.recorders.sqlite.process_forks import check_not_inherited, identity
from foldlog.eventstore.recorders.urls import absolute_hint

_LOCK: Final = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0x40000002, 510, 0)
"""A read lock on the bytes that each connection of SQLite locks in the file
(https://sqlite.org/src/file/src/os.h).
"""
_INDEX_LOCK: Final = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 128, 1, 0)
"""A read lock on a byte of the log's index. If no connection holds a lock on the index, SQLite
truncates the index and makes it again (SQLite's os_unix.c).
"""
_INTEGER_MAX: Final = 2**63 - 1
_DESCRIPTORS: Final = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
TO_SAVE: Final = (
    "to save what this process can still read, call 'histories.maintenance.back_up(path)' before it"
    " ends"
)


_AGAIN_S: Final = 0.01
"""The time between two attempts to turn on the log. A killed process releases its locks in less."""
MOVED: Final = ("moved", "replaced")
"""If an error has one of these kinds, the store's name no longer leads to the opened file."""


class Connection(sqlite3.Connection):
    """A connection that keeps its locks if this process closes another descriptor of the file."""

    _held = -1

    def hold(self, path: str) -> None:
        """Hold a read lock on bytes that SQLite must lock before it removes the log. On systems
        other than Linux, no lock is taken.
        """
        if sys.platform == "linux" and _has_lasting_locks():
            self._held = os.open(path, os.O_RDONLY)
            fcntl.fcntl(self._held, fcntl.F_OFD_SETLK, _LOCK)
            # SQLite's own descriptor, one for each process
            for index in descriptors_of(f"{path}-shm"):
                fcntl.fcntl(index, fcntl.F_OFD_SETLK, _INDEX_LOCK)

    def release(self) -> None:
        # SQLite may now remove the log when the last connection closes.
        held = self._held
        self._held = -1
        if held >= 0:
            os.close(held)

    def close(self) -> None:
        self.release()
        super().close()

    __del__ = release


@functools.cache
def _has_lasting_locks() -> bool:
    # A lasting lock stays until the descriptor that took the lock is closed. A process loses its
    # other locks on a file when it closes any descriptor of the file. Some systems that run Linux
    # programs lack lasting locks.
    with contextlib.suppress(OSError), open(os.devnull, "rb") as file:
        return sys.platform == "linux" and bool(fcntl.fcntl(file, fcntl.F_OFD_GETLK, _LOCK))
    return False


class StoreFile:
    """The file of one store, opened by one recorder.

    ``name`` is the user's name for the file as an absolute path. ``path`` is the file behind all
    symbolic links, so that all processes use one log and one write lock.
    """

    _used: Final[weakref.WeakValueDictionary[int, StoreFile]] = weakref.WeakValueDictionary()
    """The files that this process has opened, by the ``id`` of the object."""

    def __init__(
        self,
        path: str,
        *,
        writable: bool = True,
        durable: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name = os.path.abspath(path)
        self.path = os.path.realpath(self.name)
        self._writable = writable
        self.durable = durable
        self._patience_s = patience_s
        self._opened: tuple[int, ...] = ()
        """The file's inode, its device and the number of its names, which must be 1. ``_opened`` is
        empty before the first connection.
        """
        self.index: int | None = None
        """SQLite's descriptor of the log's index, or None if no connection writes or the descriptor
        is unknown.
        """
        self.closed_because: str | None = None
        """The reason why the recorder no longer reads and writes, or None."""

    @property
    def inode(self) -> int:
        """The inode of the opened file as a number that SQLite can store, or 0 before the first
        connection.
        """
        return self._opened[0] & _INTEGER_MAX if self._opened else 0

    # -- before it is opened

    def has_content(self) -> bool | None:
        """Return whether the file has content, or None if it does not exist.

        Raises ``StoreRefused`` if the file is not a regular file, or if it has only one byte.
        SQLite treats a file of one byte as empty.
        """
        try:
            status = os.stat(self.path)
        except OSError:  # opening the file then raises the error
            check_not_moved(self.path)
            return None
        if not stat.S_ISREG(status.st_mode):
            if stat.S_ISDIR(status.st_mode):
                kind = "a folder"
            else:
                kind = "a device, a pipe or a socket"
            raise StoreRefused(
                f"{self.path} is {kind}, and a store is a regular file; name another file",
                kind="foreign",
            )
        if status.st_size == 1:
            raise StoreRefused(
                f"cannot open {self.path}: file is not a database; choose another file, or restore"
                " a backup",
                kind="foreign",
            )
        if not status.st_size:
            check_not_moved(self.path)
        return status.st_size > 0 or os.path.exists(f"{self.path}-wal")

    def make(self) -> None:
        """Make the file with mode 0600. SQLite gives the log the mode of its file. An existing file
        is not opened, because closing it would release the locks of every connection of this
        process.
        """
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            remedy = absolute_hint(self.path) or "; make its folder first"
            raise StoreUnavailable(
                f"cannot make {self.path}: {error.strerror}{remedy}", kind="missing"
            ) from error
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise StoreUnavailable(
                f"cannot make {self.path}: {error.strerror}; name a file in a folder that this user"
                " may write",
                kind="denied",
            ) from error

    # -- connections

    def connect(self, *, to_write: bool = False) -> Connection:
        """Open a connection to the file, which must still be the file that was opened first. Raises
        the errors of ``check``.

        The name is checked before and after the opening, because SQLite opens the file between the
        two checks. SQLite opens the log at the first read. SQLite waits up to ``patience_s``
        seconds for its own locks. Only other programs make SQLite wait, because foldlog's writers
        first wait for foldlog's write lock.
        """
        # If the file does not exist, SQLite's own error says so.
        if not self._opened and (device_and_inode := identity(self.path)):
            self._opened = *device_and_inode, 1
            self._used[id(self)] = self
        if self._opened:
            self.check()
            self._check_former_name()
        try:
            connection = self.open()
            try:
                if to_write:
                    self._prepare_to_write(connection)
                connection.execute("PRAGMA schema_version").fetchone()
                if os.path.exists(f"{self.path}-wal"):
                    connection.hold(self.path)
                self.check()
            except BaseException:
                connection.close()
                raise
        except sqlite3.OperationalError as error:
            # SQLite's error says only that SQLite cannot open the file.
            if self._writable and self._is_on_read_only_disk():
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.path) from error
            raise
        return connection

    def _check_former_name(self) -> None:
        """Raise ``StoreUnavailable`` if this process has the file open under another name with
        another log. SQLite would use one index for both logs.
        """
        # ``valuerefs`` returns a list, because another thread may add a file during the loop.
        for used in self._used.valuerefs():
            other = used() or self
            is_ours = (
                other._opened == self._opened
                and other.path != self.path
                and other.closed_because is None
            )
            if is_ours and identity(f"{other.path}-wal") not in ((), identity(f"{self.path}-wal")):
                raise StoreUnavailable(
                    f"{self.path} was renamed while this process has it open as {other.path}, and"
                    f" its newest events may be in {other.path}-wal; rename it back before you"
                    " open it",
                    kind="moved",
                )

    def open(self) -> Connection:
        """Open a connection without the checks of ``connect``."""
        check_not_inherited(self.path)
        options = "mode=rw" if self._writable else "mode=ro"
        if not self._writable and self._is_read_only():
            # Without ``immutable``, SQLite would make files beside the store, and readers need
            # these files only if there are writers.
            options = "immutable=1"
        connection = sqlite3.connect(
            f"{file_uri(self.path)}?{options}",
            uri=True,
            timeout=self._patience_s,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        connection.text_factory = bytes
        # Only foldlog's own statements may call functions with side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _prepare_to_write(self, connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log, and choose how SQLite syncs the file. If the file is not
        ``durable``, a power cut may lose the newest commits, but never a part of a commit.
        """
        mode = self._with_log(connection)
        if mode != b"wal":
            raise StoreUnavailable(
                f"{self.path} cannot have a write-ahead log (SQLite stays in mode {mode.decode()});"
                " keep the store on a local disk, not on a network file system",
                kind="denied",
            )
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'NORMAL'}")
        # On macOS, a plain fsync ends at the drive's cache.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("PRAGMA secure_delete = ON")

    def _with_log(self, connection: sqlite3.Connection) -> bytes:
        """Ask for a write-ahead log, and return the mode that SQLite has then. SQLite waits for no
        lock here, and the locks of a process that was killed may be released after its place in
        foldlog's write lock.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return bytes(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _is_read_only(self) -> bool:
        """Return whether nobody can write the file and its folder, and no log exists."""
        # If the file has a log, another process may have the file open for writing. ``os.access``
        # is true for root, who can write in spite of permissions.
        if not os.path.exists(self.path) or os.path.exists(f"{self.path}-wal"):
            return False
        folder = os.path.dirname(self.path)
        permissions = os.stat(self.path).st_mode | os.stat(folder).st_mode
        return self._is_on_read_only_disk() or not (
            permissions & 0o222 or os.access(folder, os.W_OK)
        )

    def _is_on_read_only_disk(self) -> bool:
        # On a read-only file system, the file's permissions do not matter.
        return os.path.exists(self.path) and bool(os.statvfs(self.path).f_flag & os.ST_RDONLY)

    # -- while it is open

    def close(self, reason: str = "") -> None:
        if self.closed_because is None:
            self.closed_because = reason and f": {reason}"

    def check_open(self) -> None:
        if self.closed_because is not None:
            raise StoreRefused(
                f"{self.path} is closed{self.closed_because}; open the store again", kind="closed"
            )

    def check(self) -> None:
        """Check that the store's path still leads to the opened file. Raises ``StoreUnavailable``
        if the file was moved, and ``StoreRefused`` if it was replaced.

        A write transaction calls ``check`` when it has SQLite's write lock.
        """
        try:
            status = os.stat(self.name)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreUnavailable(
                f"{self.name} was removed or renamed while it was open, and nothing was written; "
                f"put the file back; {TO_SAVE}",
                kind="moved",
            ) from None
        present = status.st_ino, status.st_dev, status.st_nlink
        if present == self._opened:
            index = self.index
            if index is None:
                return
            try:
                names = os.fstat(index).st_nlink
            except OSError as error:
                if error.errno != errno.EBADF:  # the error comes from a signal handler
                    raise
                return  # the writing connection was just closed
            if not names:
                raise StoreRefused(
                    f"{self.path}-wal was removed while it was open, and nothing was written."
                    " Somebody removed it by hand, or code of this process opened and closed"
                    f" {self.path}, which releases SQLite's locks; {TO_SAVE}",
                    kind="replaced",
                )
            return
        if present[:2] != self._opened[:2]:
            remedy = "open the store again"
            # If ``name`` is a link that was changed, it leads to a file with a log of its own.
            if os.path.realpath(self.name) == self.path:
                remedy += (
                    " if a restore put the new file there. If not, first end all programs that have"
                    f" the store open and move {self.path}-wal away: SQLite would write this log,"
                    " which belongs to the former file, into the new file"
                )
            raise StoreRefused(
                f"another file took the place of {self.name} while it was open, and nothing was"
                f" written; {remedy}",
                kind="replaced",
            )
        raise StoreUnavailable(
            f"{self.name} has {status.st_nlink} names (hard links), and nothing was written: SQLite"
            " keeps a log for each name, so events written under one name are lost under the"
            " other; remove the other names, or make a copy with 'foldlog store backup FILE'",
            kind="moved",
        )


def check_not_moved(path: str) -> None:
    """Raise ``StoreUnavailable`` if the log of a path has content, but the file is missing or
    empty. SQLite would delete the log of a file that was moved away.

    The log is checked first, because another process may be making the store, and a new file gets
    content before its log does.
    """
    try:
        size = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return
    exists = os.path.exists(path)
    if size and not (exists and os.path.getsize(path)):
        state = "is empty" if exists else "does not exist"
        raise StoreUnavailable(
            f"{path} {state}, but {path}-wal has {size:,} bytes: that log belongs to a store file"
            " that was moved or removed, and SQLite would delete the log and its events. If no"
            " program has opened the store file under another name, put the store file back. If"
            f" you do not need the events, move {path}-wal away",
            kind="moved",
        )


def descriptors_of(path: str | os.PathLike[str]) -> list[int]:
    """Return this process's descriptors of a file, or an empty list if the system does not show
    them.
    """
    file_identity = identity(path)
    if not file_identity:
        return []
    with contextlib.suppress(OSError):
        return [
            descriptor
            for descriptor in map(int, os.listdir(_DESCRIPTORS))
            if identity(descriptor) == file_identity
        ]
    return []


def file_uri(path: str) -> str:
    """Return the file's URI like ``Path.as_uri``, but in a tenth of the time."""
    absolute = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    return f"file://{quote_from_bytes(os.fsencode(absolute))}"
