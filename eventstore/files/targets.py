"""Check that a file may be written under a name."""

from __future__ import annotations

from pathlib import Path

from foldlog.eventstore import InvalidOption
from foldlog.eventstore.arguments import check_path
from foldlog.eventstore.files.open_files import SQLITE, parts_of

_BESIDE_A_DATABASE = ("-wal", "-shm", "-journal", "-queue")


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
        name = path.name.removesuffix(suffix)
        if name in ("", path.name):
            continue
        database = path.with_name(name)
        if is_database(database):
            raise InvalidOption(
                f"{path} belongs to the database {database}; choose another name for the new file"
            )


def is_database(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    return path.is_file() and next(parts_of(path, len(SQLITE)), b"") == SQLITE


def is_device(path: Path) -> bool:
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
