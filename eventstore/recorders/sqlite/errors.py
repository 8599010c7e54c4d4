"""SQLite's errors as recorder errors that say what failed and what helps."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from typing import Final

from eventstore.recorders.errors import DatabaseError, OperationalError, error_class

__all__ = ["leaves_doubt", "translate", "translated"]

_GIVE_RIGHTS: Final = "give this user the right to write the file and its folder"
_FOLDER_TOO: Final = f"{_GIVE_RIGHTS}: SQLite makes files beside it, also for those who only read"

_ADVICE: Final = {
    # Our statements are what they are, so it is the file that lacks a table, an index or a column.
    sqlite3.SQLITE_ERROR: "the file is damaged: restore a backup, or copy what is sound with 'foldlog salvage'",
    sqlite3.SQLITE_FULL: "free some space, then open the store again",
    sqlite3.SQLITE_IOERR: "look at the disk, then open the store again",
    sqlite3.SQLITE_READONLY: _FOLDER_TOO,
    sqlite3.SQLITE_CANTOPEN: f"check that it is there, and {_FOLDER_TOO}",
    sqlite3.SQLITE_PERM: _FOLDER_TOO,
    sqlite3.SQLITE_BUSY: "a program other than foldlog holds the file; end it, then try again",
    sqlite3.SQLITE_CORRUPT: "run 'foldlog verify' to see what is damaged, then restore a backup or 'foldlog salvage'",
    sqlite3.SQLITE_NOTADB: "choose another file",
}

_ADVICE_OF_THE_SYSTEM: Final = {
    errno.EACCES: f"{_GIVE_RIGHTS}, or open it with ?mode=ro",
    errno.EPERM: f"{_GIVE_RIGHTS}, or open it with ?mode=ro",
    errno.EROFS: "open it with ?mode=ro",
    errno.ENOENT: "make its folder first",
    errno.ENOSPC: "free some space, then open the store again",
}


def translate(error: Exception, doing: str) -> Exception:
    """Return the recorder error for an error of SQLite or the system, which is its cause; return any other as it is."""
    kind = OperationalError if isinstance(error, OSError) else error_class(error)
    if kind is None:
        return error
    translated = kind(f"cannot {doing}: {_said(error)}")
    translated.__cause__ = error
    return translated


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translate(error, doing) from error
    except UnicodeDecodeError as error:  # sqlite3 cannot decode a message that quotes damaged bytes, nor we such a name
        advice = _ADVICE[sqlite3.SQLITE_CORRUPT]
        raise DatabaseError(
            f"cannot {doing}: there are bytes that are no text where text should be; {advice}"
        ) from error


def leaves_doubt(error: sqlite3.Error) -> bool:
    """Whether the disk failed us, so that this connection should not be trusted to write again."""
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        problem, advice = error.strerror or str(error), _ADVICE_OF_THE_SYSTEM.get(error.errno or 0)
    else:
        problem, advice = str(error), _ADVICE.get(_code(error))
    return f"{problem}; {advice}" if advice else problem


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 where the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
