"""Is the file under the store's name still the file that was opened?

SQLite knows its files by descriptor and beside them by name, so it goes on without an error when somebody removes the
file, puts another one in its place or gives it a second name. Then what one process acknowledges is in a file that no
other process opens. So the name is made absolute once, and every write transaction compares the file under that name
with the file that was opened: device, inode, and the number of its names.

The database file is never opened here: closing any descriptor of a file drops all POSIX locks that the process holds
on it, SQLite's among them.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from typing import Final

from foldlog.eventstore.recorders.errors import InterfaceError, OperationalError

_INTEGER_MAX: Final = 2**63 - 1
_DESCRIPTORS: Final = "/proc/self/fd"


class WrongFile(OperationalError):
    """The store's name leads to another file than the one that was opened, or this file has a second name."""


class StoreFile:
    """The file of one store, as one recorder opened it.

    ``name`` is what the user called it, made absolute; ``path`` is the file behind all symbolic links, so that every
    process meets at the same log and the same write lock.
    """

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        self.path = os.path.realpath(self.name)
        self._opened: tuple[int, ...] = ()
        """Inode, device and the number 1 for one name; empty before the first connection."""
        self.closed_because: str | None = None
        """Why the recorder reads and writes no more."""

    @property
    def inode(self) -> int:
        """The number of the file that was opened, as SQLite can store it; 0 before the first connection."""
        return self._opened[0] & _INTEGER_MAX if self._opened else 0

    def connect(self, open_connection: Callable[[str], sqlite3.Connection]) -> sqlite3.Connection:
        """Open a connection to this very file. Raises ``WrongFile``.

        The name is looked at before and after: SQLite opens the file in between, and the log at the first read.
        """
        if not self._opened:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # SQLite's error says so
                status = os.stat(self.path)
                self._opened = status.st_ino, status.st_dev, 1
        if self._opened:
            self.check()
        connection = open_connection(self.path)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
            self.check()
        except BaseException:
            connection.close()
            raise
        return connection

    def index_of_log(self) -> int | None:
        """Return the descriptor with which SQLite has the log's index open in this process; None if the system does not
        tell. It is closed with the last connection.
        """
        found = []
        with contextlib.suppress(OSError):
            index = os.stat(f"{self.path}-shm")
            for descriptor in map(int, os.listdir(_DESCRIPTORS)):
                with contextlib.suppress(OSError):  # closed since it was listed
                    if os.path.samestat(os.fstat(descriptor), index):
                        found.append(descriptor)
        return found[0] if len(found) == 1 else None

    def check_open(self) -> None:
        """Raise ``InterfaceError`` where the recorder was closed."""
        if self.closed_because is not None:
            raise InterfaceError(f"{self.path} is closed: {self.closed_because}; open the store again")

    def check(self) -> None:
        """Compare the file under the name with the file that was opened. Raises ``WrongFile``. Cost: one ``stat``.

        A write transaction calls it when it has SQLite's write lock.
        """
        try:
            status = os.stat(self.name)
        except (FileNotFoundError, NotADirectoryError):
            raise WrongFile(
                f"{self.name} was removed or renamed while it was open, and nothing was written; "
                f"put the file back; what this process can still read, save with "
                f"'histories.maintenance.back_up(path)' before it ends"
            ) from None
        found = status.st_ino, status.st_dev, status.st_nlink
        if found == self._opened:
            return
        if found[:2] != self._opened[:2]:
            raise WrongFile(
                f"another file took the place of {self.name} while it was open, and nothing was written; "
                f"open the store again"
            )
        raise WrongFile(
            f"{self.name} has {status.st_nlink} names (hard links), and nothing was written: SQLite keeps a log "
            f"for each name, so events written under one name are lost under the other; remove the other names, "
            f"or make a copy with 'foldlog backup FILE'"
        )


def check_not_moved(path: str) -> None:
    """Raise ``WrongFile`` where no file or an empty one is at a path, and a log with content beside it. SQLite would
    delete that log, while the file that it belongs to was moved away.

    A file gets content before its log does, so the log is looked at first.
    """
    try:
        size = os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return
    there = os.path.exists(path)
    if size and not (there and os.path.getsize(path)):
        state = "is empty" if there else "does not exist"
        raise WrongFile(
            f"{path} {state}, but {path}-wal has {size:,} bytes: "
            f"it belongs to a file that was moved or removed, and SQLite would delete it with the events in it; put "
            f"that file back, if no program opened it under its other name since, or move {path}-wal away if nothing "
            f"in it is needed"
        )
