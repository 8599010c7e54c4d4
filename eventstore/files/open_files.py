"""Read a file, even if this process has it open as a database.

When a process closes any descriptor of a file, it loses all its locks on that file. Then another
process could remove the log of a database while this process still writes to it. So if this process
has the file open as a database, the file is read with SQLite's own descriptor. An import of a
folder that contains the store itself reads such a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from foldlog.eventstore.recorders.sqlite.store_file import descriptors_of

SQLITE = b"SQLite format 3\0"
"""The first bytes of a SQLite database."""
_INDEX = (3_007_000).to_bytes(4, sys.byteorder)
"""The first bytes of the index of a SQLite database's log."""


def is_store(path: Path) -> bool:
    """Return whether a file is a foldlog store."""
    if path.is_file() and os.access(path, os.R_OK):
        begin = next(parts_of(path, 72), b"")
    else:
        begin = b""
    return begin.startswith(SQLITE) and begin.endswith(b"flog")


def parts_of(path: Path | str, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in parts of ``size`` bytes. The last part may be shorter. Raises
    ``OSError``.
    """
    descriptor = open_database(path)
    own = None
    if descriptor is None:
        descriptor = own = os.open(path, os.O_RDONLY)
    at = 0
    try:
        while part := os.pread(descriptor, size, at):
            yield part
            at += len(part)
    finally:
        # If the file was opened as a database since, closing this descriptor would release the
        # locks of SQLite, so it stays open.
        if own is not None and open_database(path, besides=own) is None:
            os.close(own)


def open_database(path: Path | str, besides: int | None = None) -> int | None:
    """Return the descriptor of ``path`` if this process has it open, as a database or as the index
    of a database's log. ``besides`` is a descriptor that does not count.

    Return None if it is not open, or if the system does not list open files. Use the descriptor to
    read the file: opening and closing it again would release SQLite's locks.
    """
    for descriptor in descriptors_of(path):
        with suppress(OSError):  # the descriptor is only for writing, or was closed since
            if descriptor == besides:
                continue
            begin = os.pread(descriptor, len(SQLITE), 0)
            if begin == SQLITE or begin.startswith(_INDEX):
                return descriptor
    return None
