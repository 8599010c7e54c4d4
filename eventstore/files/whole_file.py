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

from foldlog.eventstore.files.targets import check_target, is_device
from foldlog.eventstore.recorders.sqlite.replacing import made_beside, sync


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
        if is_device(path):
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


def give_name(unnamed: Path, path: Path) -> None:
    """Give a complete file its name. Its former name may stay. Raises ``FileExistsError`` if the
    name is taken, and ``OSError``.
    """
    try:
        os.link(unnamed, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as exFAT
        path.open("xb").close()
        unnamed.replace(path)
