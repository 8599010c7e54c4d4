"""Was the file overwritten in place?

``cp backup.db history.db`` keeps the inode, so the file is still the one that was opened, and SQLite goes on with pages
of both. SQLite itself changes the file only when a checkpoint writes the log back. So a writer that finds the file
changed since it last looked reads it as it is on disk, without its log, through a connection that takes no lock, and
compares it with what it read before: the store's name stays, and the last position never goes back.

An older copy with the same last position, made by ``cp`` too, is not told from the file itself.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from eventstore.recorders.sqlite.reader import SQL, a_position

__all__ = ["Contents"]


_INTEGER_MAX = 2**63 - 1
"""SQLite's largest integer."""


class _OnDisk(NamedTuple):
    """What the file says of itself. ``last_position`` is None where a checkpoint that was interrupted left pages of two
    moments, so that it cannot be read.
    """

    uuid: object
    file: object
    last_position: int | None

    def may_become(self, later: _OnDisk, inode: int) -> bool:
        """Whether checkpoints can have made ``later`` out of this, in the file with this inode."""
        if self.uuid != later.uuid or later.file not in (self.file, str(inode)):
            return False
        return self.last_position is None or later.last_position is None or self.last_position <= later.last_position


class Contents:
    """What one writer knows of the content of its file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed_at: tuple[int, int] | None = None
        self._known: _OnDisk | None = None

    @property
    def are_known(self) -> bool:
        return self._known is not None

    def are_ours(self, status: os.stat_result) -> bool:
        """Whether the file can be what it was at the last look. To be asked with the file's status, best under the
        write lock, since a checkpoint that is going on shows pages of two moments. Cost: a comparison; where the file
        has changed, as it does at every checkpoint, some 0.2 ms.
        """
        changed_at = (status.st_mtime_ns, status.st_size)
        if changed_at == self._changed_at:
            return True
        found = _on_disk(self._path)
        inode = status.st_ino & _INTEGER_MAX
        if self._known is not None and (found is None or not self._known.may_become(found, inode)):
            return False
        self._changed_at, self._known = changed_at, found
        return True


def _on_disk(path: str) -> _OnDisk | None:
    """What is in the file, None where it holds no store, as one does whose first pages are still in the log."""
    uri = f"{Path(path).as_uri()}?immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            values = dict(connection.execute(SQL["identity"]))
            try:
                last_position = a_position(connection.execute(SQL["last_position"]))
            except sqlite3.DatabaseError:
                last_position = None
    except sqlite3.DatabaseError:
        return None
    return _OnDisk(values.get("uuid"), values.get("file"), last_position)
