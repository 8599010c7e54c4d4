"""Read a file, also one that this process has open as a database.

A process that closes any descriptor of a file loses all its locks on that file. So a database that this process has
open, such as the store itself in a folder that is imported, is read with the descriptor that SQLite has. Otherwise
another process would take itself for the last one and remove the log, and this one would go on writing to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from foldlog.eventstore.recorders.sqlite.store_file import descriptors_of

SQLITE = b"SQLite format 3\0"
"""The first bytes of a database."""


def parts_of(path: Path | str, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in parts of ``size``, the last of which may be shorter. Raises ``OSError``."""
    if (descriptor := open_database(path)) is None:
        with open(path, "rb") as file:
            while part := file.read(size):
                yield part
    else:
        at = 0
        while part := os.pread(descriptor, size, at):
            yield part
            at += len(part)


def open_database(path: Path | str) -> int | None:
    """Return a descriptor with which this process has a database open, or the index of its log; None where it has not,
    and where the system does not tell. To open such a file and close it would take SQLite's locks away.
    """
    for descriptor in descriptors_of(path):
        with suppress(OSError):  # it is open for writing only, or closed since
            if os.fspath(path).endswith("-shm") or os.pread(descriptor, len(SQLITE), 0) == SQLITE:
                return descriptor
    return None
