"""Write a file that only its owner can read, and that is complete as soon as it appears under its
name.

The file may contain texts of conversations, so it has mode 0600 from the beginning, whatever the
umask is. The file is first written under a random name in the same folder, so that another user
cannot prepare a link with this name. Then the file is synced and renamed, and the folder is synced.
A link under the final name is replaced, not followed.

A database is never replaced, because a mistyped name must not destroy a store. A device or a pipe
is written to directly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from foldlog._files.open_files import SQLITE, parts_of
from foldlog.eventstore import InvalidOption
from foldlog.eventstore.arguments import check_path
from foldlog.eventstore.recorders.sqlite.replacing import made_beside, sync

_BESIDE_A_DATABASE = ("-wal", "-shm", "-journal", "-queue")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for a ``with`` block. If the block succeeds, the file is renamed to
    ``path``. If the block raises an exception, the file is removed.

    Raises ``InvalidOption`` before the block if ``path`` is a folder, a database, its log, or a
    link to an open file. Raises ``OSError``. After the ``with`` block, the file is on disk under
    its name.
    """
    check_target(path)
    try:
        if _is_device(path):
            with path.open("wb") as file:
                yield file
            return
        handle, name = made_beside(path)
        part = Path(name)
        try:
            # Write through the open handle. Before the file is opened again by its name, another
            # user could replace it.
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            sync(path.parent)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.filename is None:  # such as on a full disk
            error.filename = str(path)
        raise


def check_target(path: Path) -> None:
    """Raise ``InvalidOption`` if ``path`` is a folder, a SQLite database or its log."""
    check_path(str(path))
    if path.is_dir():
        raise InvalidOption(f"{path} is a folder; name a file")
    if is_database(path):
        raise InvalidOption(
            f"{path} is a database, and the new file would replace it; choose another name"
        )
    for suffix in _BESIDE_A_DATABASE:
        database = path.with_name(path.name.removesuffix(suffix))
        if path.name.endswith(suffix) and is_database(database):
            raise InvalidOption(
                f"{path} belongs to the database {database}; choose another name for the new file"
            )


def is_database(path: Path) -> bool:
    return path.is_file() and next(parts_of(path, len(SQLITE)), b"") == SQLITE


def _is_device(path: Path) -> bool:
    """Return whether ``path`` is, or links to, a device, a pipe or a socket. Raises
    ``InvalidOption`` for a link to an open file, such as ``/dev/stdout``.
    """
    if not path.exists():
        return False
    if not path.is_file():
        return True
    folder = path.absolute().parent.resolve()
    if path.is_symlink() and (folder == Path("/dev") or folder.is_relative_to("/proc")):
        raise InvalidOption(
            f"{path} is a link to a file that is already open; name the file itself"
        )
    return False
