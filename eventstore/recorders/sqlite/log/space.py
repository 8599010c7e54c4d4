"""Room in the write-ahead log, made ahead of the commits that fill it.

A commit that lengthens the log also has to write down its new size, which makes it take more than half as long again.
So a process that writes often lengthens the log ahead of time, by as much as it has already. SQLite overwrites the log
from its beginning after each checkpoint, and ignores what follows its last commit; zeros are no commit.

The log is lengthened through the descriptor with which the writer's own connection writes it, never by its name: by
now, the name may belong to the log of another store. Where that descriptor is not known, the log is not lengthened
ahead.
"""

from __future__ import annotations

import os
import sys
from typing import Final

LOG_BYTES: Final = 4_200_000
"""The size of the log between two checkpoints, which begin when it has 1,000 pages."""

_FRAME_BYTES: Final = 24
_PAGE_SIZE_AT: Final = 8
"""The header before each page of the log, and the place of the page size: https://sqlite.org/walformat.html."""


class LogSpace:
    """The room in the log that one writer writes. ``log`` is the descriptor of its connection, if it is known.

    ``pages`` is the number of pages that fit into the log as it is. A writer that finds this many pages there calls
    ``make``. It sets ``pages`` to 0 where the log may have been shortened, as after an erasure.
    """

    def __init__(self, log: int | None) -> None:
        self._log = log
        status = os.fstat(log) if log is not None else None
        self._identity = status and (status.st_dev, status.st_ino)
        self._size: int | None = None
        self.pages = 0

    def make(self) -> None:
        """Lengthen the log where commits have come to its end. Call it within a write transaction, so that no other
        connection writes to the log; the commit then syncs both at once. Without free space, the log stays as it is.
        """
        self.pages = sys.maxsize
        if self._log is None:
            return
        status = os.fstat(self._log)
        if (status.st_dev, status.st_ino) != self._identity:
            self._log = None
            return
        size = status.st_size
        if self._size is not None and self._size < size < LOG_BYTES:
            size += _lengthen(self._log, size, min(size, LOG_BYTES - size))
        if size < LOG_BYTES:
            page = int.from_bytes(os.pread(self._log, 4, _PAGE_SIZE_AT))
            self.pages = size // (page + _FRAME_BYTES) if page else 0
        self._size = size


def _lengthen(log: int, size: int, by: int) -> int:
    try:
        os.pwrite(log, bytes(by), size)
    except OSError as error:
        os.ftruncate(log, size)
        if error.errno is None:
            raise  # not of the system: a signal handler's, such as a timeout
        return 0
    return by
