"""The errors of recorders, named as PEP 249 names those of a database:

    RecorderError
    ├── InterfaceError          the recorder cannot be used: it is closed
    ├── DatabaseError           the file is damaged, or is not a store
    ├── IntegrityError          a key is taken
    ├── OperationalError        the disk, the server or a lock refuses: waiting or the administrator helps
    │   └── StillRead           a reader that is open needs what should go
    ├── ReadOnly                it is open for reading only
    └── ProgrammingError        a right is missing, or a limit is reached

A recorder raises them with the driver's error as cause. Those that waiting can cure are ``StoreUnavailable``, the
others ``StoreUnusable``.
"""

from __future__ import annotations

from typing import Final

from foldlog.eventstore.errors import EventStoreError, StoreUnavailable, StoreUnusable

NOTHING_WRITTEN: Final = "; nothing was written"
"""The end of the message of a transaction that left nothing behind."""


class RecorderError(EventStoreError):
    """The database did not do what was asked."""


class InterfaceError(RecorderError, StoreUnusable):
    """The recorder cannot be used any more: it is closed."""


class DatabaseError(RecorderError, StoreUnusable):
    """The database is damaged, or is not a store. What lies elsewhere in a damaged one can be read."""


class IntegrityError(RecorderError, StoreUnavailable):
    """A key is taken, so nothing was written. Read again, then decide again."""


class OperationalError(RecorderError, StoreUnavailable):
    """The disk, the server or a lock refuses. The message says what helps."""


class StillRead(OperationalError):
    """An open reader needs the data that should be removed. Try again when the reader has ended."""


class ReadOnly(RecorderError, StoreUnusable):
    """The recorder is open for reading only."""


class ProgrammingError(RecorderError, StoreUnusable):
    """The database does not do what was asked: a right is missing, or a limit is reached."""


_BY_NAME: Final[dict[str, type[RecorderError]]] = {"NotSupportedError": ProgrammingError} | {
    kind.__name__: kind for kind in (DatabaseError, IntegrityError, InterfaceError, OperationalError, ProgrammingError)
}


def error_class(error: Exception) -> type[RecorderError] | None:
    """Return our class for an error of a PEP 249 driver, or None for any other error.

    Drivers derive their own classes from those that PEP 249 names, so the nearest of these names decides.
    """
    names = [kind.__name__ for kind in type(error).__mro__]
    if "Error" not in names:
        return None
    return next((_BY_NAME[name] for name in names if name in _BY_NAME), ProgrammingError)
