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
import fcntl
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from eventstore.recorders.errors import InterfaceError, OperationalError
from eventstore.recorders.sqlite.contents import Contents, has_log_of_another

_PATH_ONLY: Final = getattr(os, "O_PATH", 0)
_INTEGER_MAX: Final = 2**63 - 1
_NAMES: Final = 3
"""Where a status has the number of names; inode and device stand before it, so that the three are compared at once."""
_DESCRIPTORS: Final = "/proc/self/fd"
_ATTEMPTS: Final = 16
_DESCRIPTOR_OF: Final = "/proc/self/fdinfo"

_MAGIC: Final = b"SQLite format 3\0"
_NO_LOG: Final = b"\1\1"
"""In a file's header: it is written and read without a write-ahead log."""

_ALONE: Final = {"-wal": slice(16, 24), "-journal": slice(16, 20)}
"""Where a log has random numbers, and a rollback journal the number of pages that its file had: none while it is made.
"""

_KNOWN_MAX: Final = 1_000
_in_its_folder: set[tuple[str, tuple[int, int]]] = set()
"""Files, by path and identity, that were not mounted without their folder."""

_abandoned: set[tuple[int, int]] = set()
"""Files of which a connection of this process must stay open: no other one may be opened beside it."""


class WrongFile(OperationalError):
    """The store's name leads to another file than the one that was opened, or this file has a second name."""


def _is_in_wal_mode(connection: sqlite3.Connection) -> bool:
    """Return whether the file has a log. A new connection reads the schema for it, and the first read opens the log."""
    return connection.execute("PRAGMA journal_mode").fetchone()[0] in (b"wal", "wal")


class StoreFile:
    """The file of one store, as one recorder opened it.

    ``name`` is what the user called it, made absolute; ``path`` is the file behind all symbolic links, so that every
    process meets at the same log and the same write lock.
    """

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        self.path, self._found = _behind_links(self.name)
        """``_found`` is the file as it was found then, until a connection is opened."""
        self._file: _Held | None = None
        self._log: tuple[_Held, ...] = ()
        self._had_log = True
        """Whether a log, maybe an empty one, was beside the file before the first connection was opened."""
        self._as_opened: tuple[tuple[int, ...], int, int, int] | None = None
        """Inode, device and one name of the file, and the descriptors that hold it, its log and the log's index: what
        tells in one look that all three are as they were opened. None where descriptors do not tell.
        """
        self.closed_because: str | None = None
        """Why the recorder reads and writes no more."""
        self._contents = Contents(self.path)
        self._overwritten = False
        self._is_written_back = False
        self._keep_the_log: set[sqlite3.Connection] = set()
        """Connections that are in WAL mode: as long as one of them is open, no other process removes the log."""
        self._one_at_a_time = _one_at_a_time(self.path)

    @property
    def inode(self) -> int:
        """The number of the file that was opened, as SQLite can store it; 0 before the first connection."""
        return self._file.identity[1] & _INTEGER_MAX if self._file is not None else 0

    def connect(
        self,
        open_connection: Callable[[str], sqlite3.Connection],
        look: Callable[[sqlite3.Connection], object] | None = None,
    ) -> sqlite3.Connection:
        """Open a connection to this very file. Close it with ``disconnect``.

        The name is looked at before and after: SQLite opens the file in between. ``look`` asks the first questions of
        the connection, and reads the file.
        """
        with self._one_at_a_time:
            if self._file is not None:
                self.check()
            self._hold()
            connection = open_connection(self.path)
            try:
                self._hold()
                if look is not None:
                    look(connection)
                if (look is not None and self._has_made_its_log()) or _is_in_wal_mode(connection):
                    self._hold_log()
                    self._keep_the_log.add(connection)
                self.check()
            except BaseException:
                self._keep_the_log.discard(connection)
                connection.close()
                raise
            return connection

    def connect_to_log(
        self, open_connection: Callable[[str], sqlite3.Connection]
    ) -> tuple[sqlite3.Connection, int | None]:
        """Return the same, and the descriptor with which this connection alone has the log open; None if the system
        does not tell: then only SQLite may write to the log.
        """
        with self._one_at_a_time:
            before = _descriptors()
            connection = self._contents.writer = self.connect(open_connection)
            found = [log for held in self._log[:1] for log in held.opened_since(before)]
            return connection, found[0] if len(found) == 1 else None

    def index_of_log(self) -> int | None:
        """Return the descriptor with which this process has the log's index open, once; None if it is not known."""
        with self._one_at_a_time:
            found = [index for held in self._log[1:] for index in held.opened_since({})]
        return found[0] if len(found) == 1 else None

    def connect_to_file(
        self, open_connection: Callable[[str], sqlite3.Connection]
    ) -> tuple[sqlite3.Connection, int] | None:
        """Return the same for the file itself; None if the system does not tell.

        SQLite does not close the descriptors of the file as long as another connection of the process holds locks on
        it, and gives them to those that are opened next. So it may take several connections to see a new one.
        """
        without: list[sqlite3.Connection] = []
        with self._one_at_a_time:
            try:
                for _ in range(_ATTEMPTS):
                    before = _descriptors()
                    connection = self.connect(open_connection)
                    assert self._file is not None
                    found = self._file.opened_since(before)
                    if len(found) == 1:
                        return connection, found[0]
                    without.append(connection)
            finally:
                for connection in without:
                    self.disconnect(connection)
        return None

    def disconnect(self, connection: sqlite3.Connection) -> None:
        """Close a connection, unless closing it would write a log that was removed into the file."""
        with self._one_at_a_time:
            if self._has_lost_its_log() or self._was_overwritten():
                self._abandon(connection)
                return
            connection.close()
            self._keep_the_log.discard(connection)
            if not self._keep_the_log:  # the last one to be closed removes the log
                self._release_log()

    def has_log(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file was in WAL mode when the connection was opened: then readers and writers do not wait
        for one another. A file that was copied gets its log when it is opened for writing.
        """
        return connection in self._keep_the_log

    def check_open(self) -> None:
        """Raise ``InterfaceError`` where the recorder was closed."""
        if self.closed_because is not None:
            raise InterfaceError(f"{self.path} is closed: {self.closed_because}; open the store again")

    def check_contents(self) -> None:
        """As ``check``, and that the file was not overwritten in place. To be called under the write lock.

        While this process writes the log back, the file changes all the time: then it is looked at once that has ended.
        """
        status = self.check()
        if (
            self._contents.changed_at != (status.st_mtime_ns, status.st_size)
            and not self._is_written_back
            and not self._contents.are_ours(status)
        ):
            self._overwritten = True
            raise WrongFile(
                f"{self.name} was overwritten while it was open, and nothing was written; save what this process can "
                f"still read with 'Store.back_up', remove {self.path}-wal and {self.path}-shm, which belong to what it "
                f"was before, end the process, then open the store again "
                f"('foldlog restore BACKUP' does not need that)"
            )

    @contextlib.contextmanager
    def written_back(self) -> Iterator[None]:
        """Tell that this process writes the log into the file."""
        self.check()
        self._is_written_back = True
        try:
            yield
        finally:
            self._is_written_back = False

    def check(self) -> os.stat_result:
        """Compare the file under the name with the file that was opened; return its status. Raises ``WrongFile``.

        Where all is as it was opened, one look tells. Else a closer one says what is wrong, if anything is.
        """
        if self._as_opened is not None:
            identity, _, log, index = self._as_opened
            try:
                status = os.stat(self.name)
                if status[1:4] == identity and os.fstat(log)[_NAMES] and os.fstat(index)[_NAMES]:
                    return status
            except (FileNotFoundError, NotADirectoryError):
                pass
        return self._look_closer()

    def _look_closer(self) -> os.stat_result:
        try:
            status = os.stat(self.name)
        except (FileNotFoundError, NotADirectoryError):
            raise WrongFile(
                f"{self.name} was removed or renamed while it was open, and nothing was written; "
                f"put the file back; what this process can still read, save with 'Store.back_up' before it ends"
            ) from None
        if self._file is not None and not self._file.is_that_of(status):
            raise WrongFile(
                f"another file took the place of {self.name} while it was open, and nothing was written; "
                f"open the store again"
            )
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            raise WrongFile(
                f"{self.name} has {status.st_nlink} names (hard links), and nothing was written: SQLite keeps a log "
                f"for each name, so events written under one name are lost under the other; remove the other names, "
                f"or make a copy with 'foldlog backup FILE'"
            )
        if self._has_lost_its_log():
            raise WrongFile(
                f"{self.path}-wal or {self.path}-shm was removed while the store was open, and nothing was written; "
                f"save what this process can still read with 'Store.back_up', then end the process"
            )
        return status

    def check_committed(self) -> None:
        """After a commit, check that its file and its log still have names. Raises ``WrongFile``."""
        if self._as_opened is not None:
            _, file, log, _ = self._as_opened
            if os.fstat(file)[_NAMES] and os.fstat(log)[_NAMES]:
                return
        for held in (self._file, *self._log[:1]):
            if held is not None and held.is_unlinked():
                raise WrongFile(
                    f"{held.path} was removed or replaced during a commit, so what was written may be lost; "
                    f"open the store again and read the conversation before you repeat the call"
                )

    def close(self) -> None:
        """Let go of the file. Its log is let go of with the last connection."""
        self._as_opened = None
        if self._file is not None:
            self._file.close()

    def renew_in_child(self) -> None:
        """Forget the connections in a forked child: they belong to the parent."""
        self._one_at_a_time = _one_at_a_time(self.path)
        self._keep_the_log = set()
        self._release_log()

    def _hold(self) -> None:
        """Remember the file. A name that no file has is left to SQLite, whose error says so."""
        if self._file is None:
            held, self._found = self._found, None
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                held = held or _Held(self.path)
                _check_not_mounted(held)
                self._had_log = _check_log(held)
                self._file = held
        if self._file is not None and self._file.identity in _abandoned:
            raise WrongFile(
                f"the log of {self.path} was removed while this process had the store open; end the process, "
                f"then open the store again"
            )

    def _has_made_its_log(self) -> bool:
        """Return whether the first connection, which has read the file, has made its log: the log did not exist before.
        Where it was, only SQLite knows whether the file uses it.
        """
        had_log, self._had_log = self._had_log, True
        if not had_log:
            self._hold_log()
        return not had_log and bool(self._log)

    def _hold_log(self) -> None:
        """Remember the log and its index. On a disk that cannot be written there may be none."""
        if not self._log:
            with contextlib.suppress(FileNotFoundError):
                self._log = (_Held(f"{self.path}-wal"), _Held(f"{self.path}-shm"))
                if _PATH_ONLY and self._file is not None:
                    device, inode = self._file.identity
                    file, log, index = [held.descriptor for held in (self._file, *self._log)]
                    self._as_opened = (inode, device, 1), file, log, index

    def _was_overwritten(self) -> bool:
        """Whether the file that was opened has other content since a writer looked at it."""
        with contextlib.suppress(OSError):
            status = os.stat(self.path)
            if self._contents.are_known and self._file is not None and self._file.is_that_of(status):
                changed = self._contents.changed_at != (status.st_mtime_ns, status.st_size)
                self._overwritten = self._overwritten or (changed and not self._contents.are_ours(status))
        return self._overwritten

    def _has_lost_its_log(self) -> bool:
        for held in self._log:  # noqa: SIM110 - a generator takes as long as the loop
            if held.is_unlinked():
                return True
        return False

    def _abandon(self, connection: sqlite3.Connection) -> None:
        """Keep a connection open until the process has ended, also while the interpreter shuts down.

        The last connection to be closed writes the log into the file. The file may have got other content since: a
        backup that was copied over it, or what another process wrote with a log of its own.
        """
        import ctypes  # takes as long as opening a store

        assert self._file is not None
        _abandoned.add(self._file.identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _release_log(self) -> None:
        self._as_opened = None
        for held in self._log:
            held.close()
        self._log = ()


def _behind_links(name: str) -> tuple[str, _Held | None]:
    """Return the path that all symbolic links lead to, also of a file to be made, and the file if it exists."""
    held = None
    try:
        held = _Held(name)
        held.path = held.found_at(name) or os.path.realpath(name)
    except OSError:
        return os.path.realpath(name), held
    return held.path, held


_by_path: weakref.WeakValueDictionary[tuple[int, str], threading.RLock] = weakref.WeakValueDictionary()


def _one_at_a_time(path: str) -> threading.RLock:
    """Return the lock of this process under which connections to one file are opened and closed, so that their
    descriptors can be told apart. A thread that held it when the process was forked is not in the child.
    """
    return _by_path.setdefault((os.getpid(), path), threading.RLock())  # a signal handler may read in between


class _Held:
    """A file that was found under a name, held without being opened."""

    descriptor = -1

    def __init__(self, path: str) -> None:
        self.path = path
        if _PATH_ONLY:
            self.descriptor = os.open(path, _PATH_ONLY)
        status = os.fstat(self.descriptor) if _PATH_ONLY else os.stat(path)
        self.identity = status.st_dev, status.st_ino

    def is_that_of(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == self.identity

    def is_unlinked(self) -> bool:
        """Whether the file has lost its name."""
        if self.descriptor >= 0:
            return os.fstat(self.descriptor).st_nlink == 0
        try:
            return not self.is_that_of(os.stat(self.path))
        except FileNotFoundError:
            return True

    def found_at(self, name: str) -> str:
        """Return the path without links that leads to the file, if the system tells: one call, while a look at every
        folder takes ten times as long. ``name`` leads to it too.
        """
        path = os.readlink(f"{_DESCRIPTORS}/{self.descriptor}")
        return path if path == name or self.is_that_of(os.stat(path)) else ""

    def opened_since(self, before: Mapping[int, tuple[int, int]]) -> list[int]:
        """Return the descriptors with which the file was opened since."""
        return [d for d, identity in _descriptors().items() if identity == self.identity != before.get(d)]

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    __del__ = close


def _mount_of(descriptor: int) -> bytes:
    """Return the number of the mount that a descriptor was opened in, where the system tells."""
    try:
        described = os.open(f"{_DESCRIPTOR_OF}/{descriptor}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(described, 4_096).partition(b"mnt_id:")[2].partition(b"\n")[0]
    finally:
        os.close(described)


def _descriptors() -> dict[int, tuple[int, int]]:
    """Return the files that this process has open, by descriptor, if the system lists them."""
    found = {}
    with contextlib.suppress(OSError):
        for descriptor in map(int, os.listdir(_DESCRIPTORS)):
            with contextlib.suppress(OSError):  # closed since it was listed, as the one that listed them
                status = os.fstat(descriptor)
                if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & _PATH_ONLY:
                    found[descriptor] = status.st_dev, status.st_ino
    return found


def check_not_moved(path: str) -> None:
    """Raise ``WrongFile`` where no file or an empty one is at a path, and a log or a rollback journal beside it. SQLite
    would delete that, while the file that it belongs to was moved away, or removed.

    A file gets content before its log does, so the log is looked at first.
    """
    for suffix, of_a_file in _ALONE.items():
        try:
            with open(f"{path}{suffix}", "rb") as opened:
                has_content, size = any(opened.read(of_a_file.stop)[of_a_file]), os.fstat(opened.fileno()).st_size
        except FileNotFoundError:
            continue
        if not has_content or (os.path.exists(path) and os.path.getsize(path)):
            continue
        state = "is empty" if os.path.exists(path) else "does not exist"
        raise WrongFile(
            f"{path} {state}, but {path}{suffix} has {size:,} bytes: "
            f"it belongs to a file that was moved or removed, and SQLite would delete it with the events in it; put "
            f"that file back, or move {path}{suffix} away if nothing in it is needed"
        )


def _check_log(file: _Held) -> bool:
    """Return whether a log, maybe an empty one, lies beside a file. Raise ``WrongFile`` if the log belongs to the file
    that had the name before, so that SQLite would write it into this one: it has content, and the file is not in WAL
    mode, such as a backup, or is another store. Raise ``DatabaseError`` if the log is damaged.

    A file gets into WAL mode before its log gets content, so the log is looked at first.
    """
    try:
        if os.stat(f"{file.path}-wal").st_size == 0:
            return True
    except FileNotFoundError:
        return False
    descriptors = _descriptors()
    if not descriptors or file.identity in descriptors.values():
        return True  # to open and close it here would drop the locks of another connection
    with open(file.path, "rb") as opened:
        header = opened.read(20)
    from eventstore.recorders.sqlite.log.frames import check_undamaged  # few files have such a log

    if (header.startswith(_MAGIC) and header[18:] == _NO_LOG) or (
        check_undamaged(file.path) and has_log_of_another(file.path)
    ):
        raise WrongFile(
            f"{file.path}-wal is the log of a file that {file.path} has replaced; move it and {file.path}-shm away, "
            f"then open the store again ('foldlog restore BACKUP' keeps them aside)"
        )
    return True


def _check_not_mounted(file: _Held) -> None:
    """Raise ``WrongFile`` if the file alone is mounted, without its folder: then it has another name elsewhere, and the
    log beside that name is out of sight. Asked once in a process: mounts are made before it starts.
    """
    if not _PATH_ONLY or (file.path, file.identity) in _in_its_folder:
        return
    folder = os.open(os.path.dirname(file.path), _PATH_ONLY)
    try:
        is_apart = _mount_of(file.descriptor) != _mount_of(folder)
    finally:
        os.close(folder)
    if is_apart:
        raise WrongFile(
            f"{file.path} is mounted as a single file, so SQLite cannot share its log with other processes; "
            f"mount the folder that holds it instead"
        )
    if len(_in_its_folder) >= _KNOWN_MAX:
        _in_its_folder.clear()
    _in_its_folder.add((file.path, file.identity))
