"""Copy and rewrite the whole file.

A copy of a store does not know the positions that the store assigned after the copy was made. If a
copy replaces its store or is used beside it, the copy must not reuse the later positions, because a
follower that has passed them would miss the new events. A file contains its own inode number. A
file that contains another inode number is a copy, and its first writer begins an *epoch*. The epoch
begins above every position that the original file could have used. The first position of the epoch
is the present time in microseconds, because no store records a million events a second for long. If
the clock is wrong, the epoch begins at least 2^32 above the last position.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

from foldlog.eventstore.recorders.sqlite.reader import SQL, a_position

_PATIENCE_S: Final = 0.02
"""The time, in seconds, for which a write-back of the log waits for readers."""
_LEFT_OUT_MIN: Final = 2**32
"""The number of positions that an epoch leaves out if the clock is wrong."""
_A_COPY: Final = 0
"""A number that is never the inode of a file."""
_PAGES: Final = 1_024
"""The number of pages that are copied in one step. Python handles Ctrl-C between two steps."""


def copy(reader: sqlite3.Connection, path: str, on_progress: Callable[[int, int], object]) -> None:
    """Copy the state of the store that ``reader`` sees to a new file. The new file is complete
    without a write-ahead log.

    The reader's transaction shows one moment, so writers need not wait, and the copy never has to
    start again.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as target:
        reader.backup(target, pages=_PAGES, progress=lambda _, left, of: on_progress(of - left, of))
        target.execute("PRAGMA journal_mode = DELETE")
        # a damaged store is copied unchanged, and then verified
        with suppress(sqlite3.DatabaseError):
            # The first writer of the copy begins an epoch, even if the copy has the inode of its
            # store. The copy has no unfinished operations.
            target.execute(SQL["finish_all"])
            target.execute(SQL["set_file"], (_A_COPY,))


def begin_epoch_where_copied(connection: sqlite3.Connection, inode: int) -> int | None:
    """If the file contains the inode of another file, begin an epoch and return the last position
    before the epoch. Otherwise, return None. Call ``begin_epoch_where_copied`` within a write
    transaction.
    """
    execute = connection.execute
    recorded = execute(SQL["file"]).fetchone()
    if recorded is not None and recorded[0] == str(inode).encode():
        return None
    last = a_position(execute(SQL["last_position"]))
    now = time.time_ns() // 1_000
    first = now if now > last else last + _LEFT_OUT_MIN
    execute(SQL["reserve_positions"], (first - 1,))
    execute(SQL["leave_out_positions"], (first - 1 - last,))
    execute(SQL["set_file"], (inode,))
    return last


def rewrite(writer: sqlite3.Connection) -> tuple[bytes] | None:
    """Rewrite the file without the bytes of deleted rows. Return the store's note that the files
    contain deleted bytes, as it was before: see ``empty_log``.
    """
    pending: tuple[bytes] | None = writer.execute(SQL["bytes_pending"]).fetchone()
    writer.execute("VACUUM")
    return pending


def empty_log(writer: sqlite3.Connection, pending: tuple[bytes] | None = None) -> bool:
    """Write the log back into the file and truncate the log. After the call, the log contains no
    copies of deleted rows, and a file that was rewritten has its new size. ``pending`` is the
    store's note that the files still contain deleted bytes. The call deletes the note, unless rows
    were deleted after ``pending`` was read. Return False if a reader still needs the log.
    """
    if not written_back(writer, "TRUNCATE"):
        return False
    if pending is not None:
        writer.execute(SQL["bytes_are_gone"], pending)
        written_back(writer, "TRUNCATE")  # the deletion wrote to the log
    return True


def write_back(connection: sqlite3.Connection) -> tuple[int, int]:
    """Write pages of the log back into the file, beside commits. Return the number of pages in the
    log, and how many of them are written back.
    """
    _, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages, done


def written_back(writer: sqlite3.Connection, mode: str) -> bool:
    """Write the whole log back. After ``RESTART``, the next commit writes at the beginning of the
    log. After ``TRUNCATE``, the log is empty. The wait for readers is short, because no connection
    can write during the wait. Return False if a reader still needs the log.
    """
    with waiting_at_most(writer, _PATIENCE_S):
        busy, _, _ = writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not busy


@contextmanager
def waiting_at_most(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    usual = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {max(int(seconds * 1_000), 0)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {usual}")
