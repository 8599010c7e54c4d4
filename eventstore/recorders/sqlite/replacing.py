"""Replace or remove a store's file while processes may have it open.

A process that has the former file open notices that the store's name leads to another file, and
writes nothing more. The process that replaces the file takes these steps:

1. It gives the former file and its log a second name. No process opens a file with two names as a
   store.
2. It removes the first name of the former log.
3. It gives the store's name to the new file.

In this order, no process can open the former file without its log, or the new file with the former
log. If the process is killed between two steps, the next process that opens the store finds the
second name, and takes the remaining steps.
"""

from __future__ import annotations

import fcntl
import glob
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from foldlog.eventstore.errors import StoreRefused
from foldlog.eventstore.recorders.base import PATIENCE_S
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import rewriting, schema
from foldlog.eventstore.recorders.sqlite.errors import primary_code
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.sqlite.store_file import Connection, StoreFile, check_not_moved
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock, give_rights

_BESIDE = ("-wal", "-shm", "-journal")
_PATIENCE_TO_LOOK_S = 2.0
"""Readers of a store never wait for its writers, so a file that stays locked is not a store in use.
"""
NEW = ".new"
"""The new file's temporary name is the second name of the former file, followed by this suffix."""


def check_replaceable(path: str) -> None:
    """Raise ``StoreRefused`` if a file has content and is not a foldlog store. A damaged store may
    be replaced if its header still says that it is one. If another program has locked the file, the
    error of SQLite is raised: nobody knows whose file it is.
    """
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    try:
        file = StoreFile(path, writable=False, patience_s=_PATIENCE_TO_LOOK_S)
        with closing(file.open()) as reader:
            is_ours = schema.has_our_mark(reader)
    except sqlite3.DatabaseError as error:
        code = primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        is_ours = schema.has_our_mark_in_header(path)
    if not is_ours:
        raise StoreRefused(
            f"{path} is not a foldlog store, so it was not replaced; move it away, or choose"
            " another name",
            kind="foreign",
        )


def replace(path: str, new: str, former_name: str) -> str | None:
    """Replace the store at ``path`` by ``new``, a complete file in the store's folder. Keep the
    former file, with its log, as ``former_name``. Return the name of the former file. If only a log
    existed, return the name of the log. If neither a file nor a log existed, return None.

    During the replacement, no process acknowledges an append to the store. If another process has
    already replaced the file, nothing is done.
    """
    file = StoreFile(path)
    folder = Path(file.path).parent
    with _hold_locks(file):
        if not os.path.exists(new):
            return None
        if os.path.exists(file.path):
            give_rights(new, file.path)
            _give_name(file.path, former_name)
        elif os.geteuid() == 0:
            # If root restores the file of a service, the file gets the owner of the folder.
            with suppress(PermissionError):
                os.chown(new, folder.stat().st_uid, folder.stat().st_gid)
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                # Readers make empty logs.
                if suffix != "-shm" and os.path.getsize(f"{file.path}{suffix}"):
                    _give_name(f"{file.path}{suffix}", f"{former_name}{suffix}")
                os.unlink(f"{file.path}{suffix}")
        sync(folder)
        os.rename(new, file.path)
        give_rights(f"{file.path}-queue", file.path)
        sync(folder)
    return next(
        (name for name in (former_name, f"{former_name}-wal") if os.path.exists(name)), None
    )


def finish_replacing(path: str) -> None:
    # If ``replace`` was killed, the file at ``path`` may also have its former name. Take the
    # remaining steps only in this case. In any other case, another file is already at ``path``.
    for former_name in names_of_former(path):
        if os.path.exists(f"{former_name}{NEW}") and os.path.samefile(former_name, path):
            replace(path, f"{former_name}{NEW}", former_name)


def names_of_former(path: str) -> list[str]:
    """Return the second names that ``replace`` has given to former files of a store."""
    return glob.glob(f"{glob.escape(path)}.replaced-*")


def remove_empty(path: str) -> None:
    """Remove the store at ``path``, its log and its lock file. If the store has a conversation or
    an unfinished import, or if a program has it open, the store stays.
    """
    file = StoreFile(path)
    with _hold_locks(file) as connection:
        if connection is None or connection.execute(SQL["any_conversation"]).fetchall():
            return
        connection.rollback()
        connection.release()
        # If another program has the store open, SQLite keeps the log.
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = DELETE")
            for suffix in (*_BESIDE, "", "-queue"):
                Path(f"{file.path}{suffix}").unlink(missing_ok=True)


@contextmanager
def _hold_locks(file: StoreFile) -> Iterator[Connection | None]:
    """Hold the write lock and SQLite's own lock, so that no other program writes. Write as much of
    the log into the file as possible. Yield the connection, or None if SQLite's lock cannot be
    taken, for example because the file is damaged or half replaced.
    """
    with closing(WriteLock(file.path, PATIENCE_S)) as lock:
        lock.take(time.monotonic() + PATIENCE_S)
        connection = None
        with suppress(*FAILURES, sqlite3.Error, OSError):
            if os.path.getsize(file.path) == 0:
                raise StoreRefused(f"{file.path} is empty", kind="foreign")
            connection = file.connect(to_write=True)
            rewriting.empty_log(connection)
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection if connection is not None and connection.in_transaction else None
        finally:
            if connection is not None:
                connection.rollback()
                connection.close()


def _give_name(path: str, name: str) -> None:
    if not (os.path.exists(name) and os.path.samefile(path, name)):
        os.link(path, name)


def sync(path: Path | str) -> None:
    """Write a file or a folder to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# -- new files, under random names
# -------------------------------------------------------------------------------------

PART = ".part"
_NAME_MAX = 100
"""A temporary name begins with at most this number of characters from the final name, because a
file name may have at most 255 bytes.
"""


def new_beside(path: Path) -> Path:
    """Make an empty file beside a store, with a temporary name, and return its path."""
    # If there is a log but no file, the log belongs to a file that was moved away.
    check_not_moved(str(path))
    handle, name = made_beside(path)
    os.close(handle)
    return Path(name)


def made_beside(path: Path) -> tuple[int, str]:
    """Make an empty file in the folder of ``path``, with a temporary name. Return its open
    descriptor and its path.
    """
    try:
        # ``mkstemp`` gives the file mode 0600.
        return tempfile.mkstemp(prefix=f"{path.name[:_NAME_MAX]}.", suffix=PART, dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # the caller knows only this name
        raise


def parts_beside(path: Path) -> list[str]:
    """Return the files that ``made_beside`` has made for ``path`` and that still exist."""
    return glob.glob(f"{glob.escape(str(path.parent / path.name[:_NAME_MAX]))}.????????{PART}")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock a file while it is written. If the process crashes, the lock is freed, and
    ``is_abandoned`` is true for the file.
    """
    with open(path, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def is_abandoned(path: str) -> bool | None:
    """Return whether the file exists and no process holds it: see ``held``. Return None if the
    system refuses to open the file, for example because this user may not read it.
    """
    try:
        with open(path, "rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError, BlockingIOError):
        return False
    except OSError:
        return None
    return True
