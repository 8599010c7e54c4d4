"""Detect that the file was overwritten in place.

``cp backup.db history.db`` keeps the inode, so the file is still the one that was opened, and SQLite continues with
pages of both. SQLite itself changes the file only when a checkpoint writes the log back. So a writer that finds the
file changed since its last check reads it as it is on disk: without its log, on a connection that takes no lock. The
file must still be a store with the same uuid, and its content must say that it is this file. The content of a backup
says that it is a copy.

Only readable content counts. A writer that was killed in a checkpoint leaves pages of two moments, which SQLite calls
malformed; the next checkpoint completes them. For the same reason a last position that is lower than before proves
nothing. So an earlier copy of the same file, made by ``cp``, cannot be distinguished from the file itself.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import NamedTuple

from eventstore.recorders.sqlite.connections import file_uri
from eventstore.recorders.sqlite.reader import SQL

_INTEGER_MAX = 2**63 - 1
"""SQLite's largest integer."""

_MALFORMED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN)
"""Errors of a file with an unfinished checkpoint, or of the system. Any other error: the file is not a store."""


class _Identity(NamedTuple):
    """The statements of a file's content about the file. Both are None before it has tables: they are in the log."""

    uuid: bytes | None
    file: bytes | None


class Contents:
    """The knowledge of one writer about the content of its file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.changed_at: tuple[int, int] | None = None
        """The time of the file's last change, and its size, at the last check."""
        self._known: _Identity | None = None
        self._has_tables = False
        """Whether the file had tables at the last check; those of a new store are only in its log."""
        self.writer: sqlite3.Connection | None = None
        """The connection that writes. It knows whose store that is before anything is written back."""

    @property
    def are_known(self) -> bool:
        return self._known is not None

    def are_ours(self, status: os.stat_result) -> bool:
        """Return whether the file can still be the file of the last check. Call it with the file's status, where that
        is not ``changed_at`` any more, as after every checkpoint. Cost: some 0.2 ms.
        """
        try:
            found = _on_disk(self._path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _MALFORMED:
                return False
        else:
            if not self._is_ours(found, str(status.st_ino & _INTEGER_MAX).encode()):
                return False
        self.changed_at = status.st_mtime_ns, status.st_size
        return True

    def _is_ours(self, found: _Identity, inode: bytes) -> bool:
        """Return whether the file can be ours, and remember it. Only the log has what an earlier process wrote last, so
        at the first check a file may name another inode than the log.
        """
        is_first = self._known is None
        if self._known is None:
            assert self.writer is not None
            self._known = _identity(self.writer)
        if found.uuid is None:
            return not self._has_tables
        if found.uuid != self._known.uuid or not (is_first or found.file in (self._known.file, None, inode)):
            return False
        self._known, self._has_tables = found, True
        return True


def has_log_of_another(path: str) -> bool:
    """Return whether the log beside a store is that of another one: with the log the store has another uuid.

    Neither file may be open in this process.
    """
    from eventstore.recorders.sqlite.damaged.pages import PageFile

    try:
        alone = _on_disk(path).uuid
    except sqlite3.DatabaseError:
        alone = None
    if alone is None:
        return False
    with PageFile(path) as pages:
        root = pages.root(b"store")
        rows = () if root is None else pages.in_order(root)
        with_log = [row.columns[1] for row in rows if row is not None and row.columns[0] == b"uuid"]
    return with_log not in ([], [alone])


def _on_disk(path: str) -> _Identity:
    """Return the identity that the file has without its log."""
    uri = f"{file_uri(path)}?immutable=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.text_factory = bytes
        has_tables = connection.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
        return _identity(connection) if has_tables else _Identity(None, None)


def _identity(connection: sqlite3.Connection) -> _Identity:
    values = dict(connection.execute(SQL["identity"]))
    return _Identity(values.get(b"uuid"), values.get(b"file"))
