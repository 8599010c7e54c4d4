"""Put another file in the place of a store's file, or remove it, while processes may have it open.

Processes that have the old file open find that it no longer has its name, and write nothing more.
The order of the steps matters, because the process may be killed between two steps. The old log
must never lie beside the new file; but it must lie beside the old file for as long as that file has
the name. So the old file and its log first get a second name: no store opens a file with two names.
Then the log is removed, then the new file takes the name. A process that opens the store after a
kill between two steps finds the second name, with the new file beside it, and takes the missing
steps.
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

from foldlog.eventstore.errors import StoreUnusable
from foldlog.eventstore.recorders.base import PATIENCE_S
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.sqlite import maintenance, schema
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.sqlite.store_file import Connection, StoreFile, check_not_moved
from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock, give_rights

_BESIDE = ("-wal", "-shm", "-journal")
NEW = ".new"
"""The end of the new file's temporary name, which begins with the new name of the old file."""


def check_replaceable(path: str) -> None:
    """Raise ``StoreUnusable`` if the file at ``path`` is of another program. The store at ``path``
    may be damaged, empty or gone.
    """
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    try:
        with closing(StoreFile(path, writable=False).open()) as reader:
            is_ours = schema.has_our_mark(reader)
    except sqlite3.Error as error:
        is_ours = getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB
    if not is_ours:
        raise StoreUnusable(
            f"{path} is not a foldlog store, so it was not replaced; move it away, or choose"
            " another name",
            kind="foreign",
        )


def replace(path: str, new: str, kept: str) -> str | None:
    """Put ``new``, a complete file in the store's folder, in the place of the store at ``path``.
    Keep the former file, with its log, as ``kept``. Return the name of the former file, or the name
    of its log if there was only a log; None if there was neither file nor log. Raises ``OSError``.

    During the replacement no append of a process that has the store open is acknowledged. If
    another process has already replaced the file, nothing is done.
    """
    file = StoreFile(path)
    folder = Path(file.path).parent
    with _hold_locks(file):
        if not os.path.exists(new):
            return None
        if os.path.exists(file.path):
            give_rights(new, file.path)
            _give_name(file.path, kept)
        elif os.geteuid() == 0:
            # If root restores the file of a service, give it the owner of the folder.
            with suppress(PermissionError):
                os.chown(new, folder.stat().st_uid, folder.stat().st_gid)
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                # readers make empty logs
                if suffix != "-shm" and os.path.getsize(f"{file.path}{suffix}"):
                    _give_name(f"{file.path}{suffix}", f"{kept}{suffix}")
                os.unlink(f"{file.path}{suffix}")
        sync(folder)
        os.rename(new, file.path)
        give_rights(f"{file.path}-queue", file.path)
        sync(folder)
    return next((name for name in (kept, f"{kept}-wal") if os.path.exists(name)), None)


def finish_replacing(path: str) -> None:
    """Take the remaining steps of a killed ``replace``, if the store's file still has the second
    name that it made.
    """
    for kept in names_of_former(path):
        if os.path.exists(f"{kept}{NEW}") and os.path.samefile(kept, path):
            replace(path, f"{kept}{NEW}", kept)


def names_of_former(path: str) -> list[str]:
    """Return the names of replaced files, and of new files that wait to replace a file."""
    return glob.glob(f"{glob.escape(path)}.replaced-*")


def remove_empty(path: str) -> None:
    """Remove the store at ``path``, its log and its lock file. The store stays if it has a
    conversation or an unfinished import, or if a program has it open.
    """
    file = StoreFile(path)
    with _hold_locks(file) as connection:
        if connection is None or connection.execute(SQL["any_conversation"]).fetchall():
            return
        connection.rollback()
        connection.release()
        # another program has it open, so SQLite keeps the log
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = DELETE")
            for suffix in (*_BESIDE, "", "-queue"):
                Path(f"{file.path}{suffix}").unlink(missing_ok=True)


@contextmanager
def _hold_locks(file: StoreFile) -> Iterator[Connection | None]:
    """Hold the write lock and SQLite's own lock, so that other programs do not write, and write as
    much of the log into the file as possible. Yield the connection; None if SQLite's lock cannot be
    held, as for a damaged or half replaced file.
    """
    with closing(WriteLock(file.path, PATIENCE_S)) as lock:
        lock.take(time.monotonic() + PATIENCE_S)
        connection = None
        with suppress(*FAILURES, sqlite3.Error, OSError):
            if os.path.getsize(file.path) == 0:
                raise StoreUnusable(f"{file.path} is empty", kind="foreign")
            connection = file.connect(to_write=True)
            maintenance.empty_log(connection)
            connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection if connection is not None and connection.in_transaction else None
        finally:
            if connection is not None:
                connection.rollback()
                connection.close()


def _give_name(path: str, name: str) -> None:
    """Give a file a second name, unless an earlier, interrupted attempt gave it already."""
    if not (os.path.exists(name) and os.path.samefile(path, name)):
        os.link(path, name)


def sync(path: Path | str) -> None:
    """Sync the content of a file, or the names in a folder, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# -- new files, under random names
# -------------------------------------------------------------------------------------

PART = ".part"
_NAME_MAX = 100
"""A temporary name begins with this many characters of the final name: a name has at most 255
bytes.
"""


def new_beside(path: Path) -> Path:
    """Make an empty file of mode 0600 with a random name in the folder of ``path``, for a database.

    Raises ``StoreUnavailable`` if the log of another file lies beside ``path``.
    """
    check_not_moved(str(path))
    handle, name = made_beside(path)
    os.close(handle)
    return Path(name)


def made_beside(path: Path) -> tuple[int, str]:
    """Make and open an empty file of mode 0600 with a random name in the folder of ``path``."""
    try:
        # of mode 0600
        return tempfile.mkstemp(prefix=f"{path.name[:_NAME_MAX]}.", suffix=PART, dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # the caller knows no other name
        raise


def parts_beside(path: Path) -> list[str]:
    """Return the names of the files that ``made_beside`` made for this path and that are still
    there.
    """
    return glob.glob(f"{glob.escape(str(path.parent / path.name[:_NAME_MAX]))}.????????{PART}")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock a file while it is written. A crash frees the lock: then ``is_abandoned`` finds the
    file.
    """
    with open(path, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def is_abandoned(path: str) -> bool:
    """Return whether a file of ``new_beside`` exists and no process has it locked."""
    with suppress(FileNotFoundError, BlockingIOError), open(path, "rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
