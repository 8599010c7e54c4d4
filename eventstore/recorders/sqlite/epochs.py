"""Give positions in a file that was copied.

A backup does not know which positions its store gave later. If the backup replaces its store, or is used beside it, it
must not give these positions again: a follower that has passed them would miss the new events. So a file records its
own inode. The first writer to a file with another inode begins an *epoch*, above every position that the other file can
have given until then.

An epoch begins at the present time in microseconds, since no store records a million events a second for long. Where
the clock is wrong, it begins at least 2^32 above the last position.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from foldlog.eventstore.recorders.sqlite.reader import SQL, a_position

_LEFT_OUT_MIN: Final = 2**32
_A_COPY: Final = 0
"""No file has this inode."""


def begin_where_copied(connection: sqlite3.Connection, inode: int) -> int | None:
    """Begin an epoch in a file that names another inode than its own, and return the last position before it; else
    None. Call it within a write transaction.
    """
    execute = connection.execute
    found = execute(SQL["file"]).fetchone()
    if found is not None and found[0] == str(inode).encode():
        return None
    last = a_position(execute(SQL["last_position"]))
    first = max(last + _LEFT_OUT_MIN, time.time_ns() // 1_000)
    execute(SQL["reserve_positions"], (first - 1,))
    execute(SQL["leave_out_positions"], (first - 1 - last,))
    execute(SQL["set_file"], (inode,))
    return last


def mark_copy(connection: sqlite3.Connection) -> None:
    """Mark this file as a copy: its first writer then begins an epoch, even if the file gets the inode of its store.
    The operations on the store are not those of the copy.
    """
    connection.execute(SQL["finish_all"])
    connection.execute(SQL["set_file"], (_A_COPY,))
