"""Room in the write-ahead log, made ahead of the commits that fill it.

A commit that lengthens the log has its new size to write down as well, which takes more than half as long again. So who
goes on writing has the log lengthened ahead of time, by as much as is there already: whoever wrote little, has little
written for them. SQLite overwrites the log from its beginning after each checkpoint, and ignores what is behind its
last commit; zeros are no commit.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["LOG_BYTES", "LogSpace"]

LOG_BYTES: Final = 4_200_000
"""What the log takes between two checkpoints, which come when it has 1,000 pages."""

_COMMITS_BETWEEN_LOOKS: Final = 64
"""At a log that has its full length. It is shortened where everything is cleared away, after an erasure for example."""


class LogSpace:
    """The room in the log of one file, as one writer meets it."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-wal"
        self._size: int | None = None
        self._commits_until_next_look = 0

    def make(self) -> None:
        """Lengthen the log where commits have come to its end. To be called within a write transaction, so that nobody
        else writes to it meanwhile; the commit then syncs both at once. Where there is no space, it stays as it is.
        """
        if self._commits_until_next_look:
            self._commits_until_next_look -= 1
            return
        size = os.stat(self._path).st_size
        if self._size is not None and self._size < size < LOG_BYTES:
            size += _lengthen(self._path, size, min(size, LOG_BYTES - size))
        elif size >= LOG_BYTES:
            self._commits_until_next_look = _COMMITS_BETWEEN_LOOKS
        self._size = size


def _lengthen(path: str, size: int, by: int) -> int:
    log = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(log, bytes(by), size)
    except OSError:
        os.ftruncate(log, size)
        return 0
    finally:
        os.close(log)
    return by
