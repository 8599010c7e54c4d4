"""This module creates and opens the file of an audit database, and checks its tables and its
store.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.db import Table

from foldlog._reports.audit_tables import follow
from foldlog.eventstore import EventStoreError, Store, StoreUnavailable
from foldlog.eventstore.files.whole_file import give_name
from foldlog.eventstore.recorders.sqlite.replacing import new_beside, parts_beside, sync
from foldlog.eventstore.recorders.sqlite.store_file import check_not_moved
from foldlog.projections.conversations.unreadable import iter_log

# The columns and the primary key of each table.
_TABLES: dict[str, tuple[dict[str, type], tuple[str, ...]]] = {
    "conversations": (
        {
            "id": str,
            "version": int,
            "created_at": str,
            "updated_at": str,
            "head": str,
            "erased_at": str,
            "erased_reason": str,
            "state": str,
        },
        ("id",),
    ),
    "events": (
        {
            "conversation": str,
            "id": int,
            "kind": str,
            "source": str,
            "shown": int,
            "recorded_at": str,
            "timestamp": str,
            "tool": str,
            "call_id": str,
            "cause": int,
            "is_error": int,
            "taken_back": int,
            "text": str,
            "body": str,
        },
        ("conversation", "id"),
    ),
    "condensations": (
        {
            "conversation": str,
            "id": int,
            "recorded_at": str,
            "reason": str,
            "outcome": str,
            "forgotten": str,
            "forgotten_count": int,
            "summary": str,
            "summary_offset": int,
            "tokens_before": int,
            "tokens_after": int,
            "model": str,
            "cost": float,
            "taken_back": int,
            "metadata": str,
        },
        ("conversation", "id"),
    ),
    "revisions": (
        {"conversation": str, "version": int, "code": int, "bytes": int},
        ("conversation", "version"),
    ),
    "damaged": ({"conversation": str, "id": int, "problem": str}, ("conversation", "id")),
    "followed": ({"scope": str, "position": int}, ("scope",)),
}

WHOLE_STORE = "the whole store"
"""The scope, in the table ``followed``, of runs that export all conversations."""

RULE_OF_MARKS = "marks of taken_back by rule 3"
"""The table ``followed`` has a row with this scope if the column ``taken_back`` follows the present
rule. A change of ``counted_in`` needs the next number here, so that the marks of older files are
made again.
"""


class NoAuditDatabase(EventStoreError):
    """The file is not an audit database of this store, or cannot be written. The message names the
    remedy.
    """

    def __init__(self, path: Path, problem: str, remedy: str = "use another file") -> None:
        super().__init__(f"{path} cannot be the audit database: {problem}; {remedy}")


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into ``NoAuditDatabase``, with a remedy."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise NoAuditDatabase(path, problem, _remedy(error)) from error


def _remedy(error: sqlite3.Error | OSError) -> str:
    """Return what a person can do about an error of the file."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF, getattr(error, "errno", None):
        case (sqlite3.SQLITE_FULL, _) | (_, errno.ENOSPC):
            return "free some space"
        case (sqlite3.SQLITE_BUSY, _):
            return "another program is writing it; try again when that program has ended"
        case (sqlite3.SQLITE_IOERR, _) | (_, errno.EIO):
            return "check its disk, or use another file"
        case (sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN, _) | (
            _,
            errno.EACCES | errno.EPERM | errno.EROFS,
        ):
            return "let this user write the file and its folder, or use another file"
        case _:
            return "use another file"


def check_target(store: Store, path: Path, conversations: Sequence[str] | None = None) -> None:
    """Call this function before a long run, so that an unusable file is found at once. The check
    raises the errors that ``open_database`` would raise, and changes nothing.
    """
    if path.is_dir():
        raise NoAuditDatabase(path, "it is a folder")
    if not path.parent.is_dir():
        raise NoAuditDatabase(path, f"there is no folder {path.parent}")
    _check_kind(path)
    _check_log(path)
    with written(path), tempfile.TemporaryFile(dir=path.resolve().parent):
        pass  # SQLite writes its log beside the file.
    if path.is_file() and path.stat().st_size:
        with written(path), closing(sqlite3.connect(path)) as connection:
            _check_connected(store, path, connection)
            # This statement checks that the file can be written now.
            connection.execute("BEGIN IMMEDIATE")
    elif conversations is None:
        next(follow(store, 0), None)
    else:
        next(chain.from_iterable(iter_log(store, name) for name in conversations), None)


def open_database(store: Store, path: Path) -> Database:
    """Open the audit database of a store, and make it if it does not exist. A new file gets its
    name when its tables are complete, so a killed process never leaves an unusable file. Raises
    ``NoAuditDatabase`` if the file cannot be used.
    """
    with written(path):
        if not path.exists() or path.stat().st_size == 0:
            _make(store, path)
        _remove_second_names(path)
        # Two threads use the connection: the thread of a follower calls ``apply``, and another
        # thread calls ``describe``.
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            _check_connected(store, path, connection)
        except BaseException:
            connection.close()
            raise
    return _without_plugins(connection)


def _make(store: Store, path: Path) -> None:
    """Make an empty audit database. If another process makes it too, the other's file stays."""
    _check_kind(path)
    empty = path.exists()
    _check_log(path)
    target = path.resolve() if empty else path
    part = new_beside(target)  # The file is private from its first moment.
    try:
        with closing(sqlite3.connect(part)) as connection:
            database = _without_plugins(connection)
            # The file is synced once, as a whole, before it has its name.
            database.execute("PRAGMA synchronous = OFF")
            for name, (columns, key) in _TABLES.items():
                table_of(database, name).create(columns, pk=key)
            table_of(database, "events").enable_fts(
                ["text"], create_triggers=True, tokenize="porter unicode61"
            )
            table_of(database, "condensations").enable_fts(
                ["summary"], create_triggers=True, tokenize="porter unicode61"
            )
            table_of(database, "events").create_index(["kind", "tool"])
            table_of(database, "followed").insert({"scope": RULE_OF_MARKS, "position": 0})
            table_of(database, "store").insert({"uuid": store.database.uuid}, pk="uuid")
            # The write-ahead log is turned on last: until then, a full disk raises an error at
            # once.
            database.enable_wal()
        sync(part)
        if empty:
            os.replace(part, target)
        else:
            with suppress(FileExistsError):
                give_name(part, target)
    finally:
        part.unlink(missing_ok=True)
    sync(target.parent)


def _remove_second_names(path: Path) -> None:
    """Remove the temporary name of the file, if a process was killed before it did. Otherwise the
    texts would stay under this name when a person deletes the file.
    """
    for part in parts_beside(path):
        with suppress(FileNotFoundError):  # another process removed the name
            if os.path.samefile(part, path):
                os.unlink(part)


def _check_kind(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise NoAuditDatabase(path, "it is a symbolic link to a file that does not exist")
    if path.exists() and not path.is_file():
        raise NoAuditDatabase(path, "it is not a regular file")


def _check_log(path: Path) -> None:
    """Raise ``NoAuditDatabase`` if a file was removed without its log, for example after a run that
    was killed. SQLite would write the changes in this log into the new file.
    """
    try:
        check_not_moved(str(path))
    except StoreUnavailable as error:
        raise NoAuditDatabase(
            path,
            f"{path}-wal is the log of a database that was removed or moved away",
            "delete this log too, or put its database back",
        ) from error


def _check_connected(store: Store, path: Path, connection: sqlite3.Connection) -> None:
    """Raise ``NoAuditDatabase`` if the database is not the audit database of this store. Nothing is
    written, because the file may belong to another program.
    """
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    if tables >= {"store", "followed"}:
        row = connection.execute("SELECT uuid FROM store").fetchone()
    else:
        row = None
    if row is None:
        raise NoAuditDatabase(path, "it is another kind of database")
    if row[0] != store.database.uuid:
        problem = f"it has the events of store {row[0]}, not of {store.database.uuid}"
        raise NoAuditDatabase(path, problem, "use another file, or delete this one")


def followed_up_to(connection: sqlite3.Connection) -> int:
    """Return the position up to which the tables have all events of the store."""
    row = connection.execute(
        "SELECT position FROM followed WHERE scope = ?", [WHOLE_STORE]
    ).fetchone()
    return int(row[0]) if row else 0


def _without_plugins(connection: sqlite3.Connection) -> Database:
    """Return a database for sqlite-utils, which would read the metadata of all installed packages
    to find plugins.
    """
    return Database(connection, execute_plugins=False)


def table_of(database: Database, name: str) -> Table:
    table = database[name]
    assert isinstance(table, Table)  # and not an SQL view
    return table
