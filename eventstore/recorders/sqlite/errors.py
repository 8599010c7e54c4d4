"""Translate SQLite's errors. The errors of the store name the problem and the remedy."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

from foldlog.eventstore.errors import StoreDamaged, StoreUnavailable
from foldlog.eventstore.recorders.errors import Failure, MakeFailure, failure_of

NOT_KNOWN: Final = (
    "; it is not known whether the events were written: append them again with the same"
    " idempotency key, or read the conversation"
)

_GIVE_RIGHTS: Final = "give this user the right to write the file and its folder"
_FOLDER_TOO: Final = (
    f"{_GIVE_RIGHTS}, because SQLite makes files beside a database even for reading; or copy the"
    " file to a folder of this user while no program has it open"
)

_TO_READ: Final = "to read only, name the file by this URL: sqlite:///PATH?mode=ro"
_RESTORE: Final = "restore a backup, or copy the sound events with 'foldlog store copy --damaged'"
_IS_DAMAGED: Final = f"the file is damaged: {_RESTORE}"

_DISK_FULL: Final = partial(StoreUnavailable, kind="full")
_DISK_FAILED: Final = partial(StoreUnavailable, kind="disk")
_DENIED: Final = partial(StoreUnavailable, kind="denied")
_BUSY: Final = partial(StoreUnavailable, kind="busy")

_SQLITE_FAILURES: Final[dict[int, tuple[MakeFailure, str]]] = {
    # foldlog's statements are correct, so the file lacks a table, an index or a column.
    sqlite3.SQLITE_ERROR: (StoreDamaged, _IS_DAMAGED),
    sqlite3.SQLITE_FULL: (_DISK_FULL, "free some space"),
    sqlite3.SQLITE_IOERR_SHMSIZE: (_DISK_FULL, "the disk is full: free some space"),
    sqlite3.SQLITE_IOERR: (_DISK_FAILED, "look at the disk"),
    sqlite3.SQLITE_READONLY: (_DENIED, _FOLDER_TOO),
    sqlite3.SQLITE_CANTOPEN: (
        partial(StoreUnavailable, kind="missing"),
        f"check that it exists, and {_FOLDER_TOO}",
    ),
    sqlite3.SQLITE_PERM: (_DENIED, _FOLDER_TOO),
    **dict.fromkeys((sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL), (_BUSY, "try again")),
    sqlite3.SQLITE_BUSY: (
        _BUSY,
        "a program other than foldlog holds the file; end it, then try again",
    ),
    sqlite3.SQLITE_CORRUPT: (StoreDamaged, _IS_DAMAGED),
    sqlite3.SQLITE_NOTADB: (
        StoreDamaged,
        (
            "choose another file; if this one was a store, its beginning is damaged: restore a"
            " backup, or recover it with SQLite (docs/how-to/damaged.md), then run 'foldlog store"
            " copy --damaged'"
        ),
    ),
}

_SYSTEM_FAILURES: Final[dict[int, tuple[MakeFailure, str]]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), (_DENIED, f"{_GIVE_RIGHTS}; {_TO_READ}")),
    errno.EROFS: (_DENIED, _TO_READ),
    errno.ENOENT: (partial(StoreUnavailable, kind="missing"), "make its folder first"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), (_DISK_FULL, "free some space")),
}

_RECORDERS_PREFIX: Final = __name__.rpartition(".")[0].rpartition(".")[0] + "."


def translate(error: BaseException, doing: str, outcome: str = "") -> BaseException:
    """Return the store's error for an error of SQLite or the system, or any other error unchanged.
    ``doing`` completes "cannot …", and ``outcome`` says whether anything was written.
    """
    if isinstance(error, OSError):
        problem = error.strerror or str(error)
        failure, advice = _SYSTEM_FAILURES.get(error.errno or 0, (_DISK_FAILED, ""))
    elif isinstance(error, UnicodeDecodeError):
        # ``sqlite3`` cannot decode a message that quotes damaged bytes.
        problem = "a column of text holds bytes that are not text"
        failure = StoreDamaged
        advice = _IS_DAMAGED
    elif isinstance(error, sqlite3.Error):
        problem = str(error)
        exactly = getattr(error, "sqlite_errorcode", 0)
        meaning = _SQLITE_FAILURES.get(exactly) or _SQLITE_FAILURES.get(primary_code(error))
        failure, advice = meaning or (failure_of(error), "")
    else:
        return error
    advice = advice and f"; {advice}"
    translated = failure(f"cannot {doing}: {problem}{advice}{outcome}")
    translated.__cause__ = error
    return translated


@contextlib.contextmanager
def translate_errors(doing: str) -> Iterator[None]:
    """Translate the errors of foldlog's own statements. All other errors inside the block are
    raised unchanged, such as errors of a signal handler.
    """
    try:
        yield
    except Exception as error:
        raise_translated(error, doing)
        raise


def raise_translated(error: BaseException, doing: str) -> None:
    if isinstance(error, sqlite3.Error | OSError | UnicodeDecodeError) and is_ours(error):
        raise translate(error, doing) from error


def is_ours(error: BaseException) -> bool:
    """Return whether foldlog's own code raised this error of SQLite or the system. A guard, a
    signal handler or other code that foldlog called may raise an SQLite error too.

    The last frame of the traceback outside of the standard library shows which code called SQLite
    or the system.
    """
    if not isinstance(error, sqlite3.Error | OSError | Failure | UnicodeDecodeError):
        return False
    if isinstance(error, OSError) and error.errno is None:
        return False  # a program raised the error, such as a timeout
    module = ""
    frame = error.__traceback__
    while frame is not None:
        name = str(frame.tb_frame.f_globals.get("__name__"))
        if name.partition(".")[0] not in sys.stdlib_module_names:
            module = name
        frame = frame.tb_next
    return module.startswith(_RECORDERS_PREFIX)


def is_full(error: BaseException) -> bool:
    return primary_code(error) == sqlite3.SQLITE_FULL


def is_of_disk(error: BaseException) -> bool:
    """Return whether the disk has failed. A failed commit may then still have been written."""
    return primary_code(error) == sqlite3.SQLITE_IOERR


def primary_code(error: BaseException) -> int:
    """Return SQLite's code of an error without what it adds, or 0 for an error of another kind."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
