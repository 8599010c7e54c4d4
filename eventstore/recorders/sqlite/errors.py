"""SQLite's errors in the taxonomy of ``eventsourcing.persistence``, with what was being done and what helps."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Final

from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    PersistenceError,
    ProgrammingError,
)

__all__ = ["leaves_doubt", "translate", "translated"]

_TAXONOMY: Final[tuple[tuple[type[Exception], type[PersistenceError]], ...]] = (
    (sqlite3.IntegrityError, IntegrityError),
    (sqlite3.InternalError, InternalError),
    (sqlite3.NotSupportedError, NotSupportedError),
    (sqlite3.ProgrammingError, ProgrammingError),
    (sqlite3.OperationalError, OperationalError),
    (sqlite3.DataError, DataError),
    (sqlite3.DatabaseError, DatabaseError),
    (sqlite3.InterfaceError, InterfaceError),
    (OSError, OperationalError),
)

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "free some space, then open the store again",
    sqlite3.SQLITE_IOERR: "look at the disk, then open the store again",
    sqlite3.SQLITE_READONLY: "give this user the right to write the file and its folder, or open it with ?mode=ro",
    sqlite3.SQLITE_CANTOPEN: "check that its folder is there and may be read and written, or open it with ?mode=ro",
    sqlite3.SQLITE_PERM: "give this user the right to write the file and its folder",
    sqlite3.SQLITE_BUSY: "a program other than foldlog holds the file; end it, then try again",
    sqlite3.SQLITE_CORRUPT: "run 'foldlog verify' to see what is damaged, then restore a backup or 'foldlog salvage'",
    sqlite3.SQLITE_NOTADB: "choose another file",
}


def translate(error: Exception, doing: str) -> Exception:
    """A driver's error as the library's, with the driver's as cause; any other error as it is."""
    for driver_error, library_error in _TAXONOMY:
        if isinstance(error, driver_error):
            said = error.strerror if isinstance(error, OSError) else None
            advice = _ADVICE.get(_code(error))
            translated = library_error(f"cannot {doing}: {said or error}" + (f"; {advice}" if advice else ""))
            translated.__cause__ = error
            return translated
    return error


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translate(error, doing) from error


def leaves_doubt(error: sqlite3.Error) -> bool:
    """Whether the disk failed us, so that this connection should not be trusted to write again."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 where the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
