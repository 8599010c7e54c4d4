"""What went wrong in PostgreSQL, as the error taxonomy of eventsourcing, sorted by what a recorder does next."""

from __future__ import annotations

from typing import Final

import psycopg
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
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

__all__ = ["ConnectionLost", "TryAgain", "of_driver", "of_result"]


class ConnectionLost(OperationalError):
    """The server, or the way to it, is gone, or it is not the primary any more: try on another connection."""


class TryAgain(OperationalError):
    """The transaction was taken back for reasons outside of it (a deadlock, a lock that took too long): run it anew."""


_BROKEN: Final = "08000"
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006")
"""Broken connections, a server that shuts down, starts or became a standby, and a session that it ended."""
_AGAIN: Final = ("40", "55P03", "53300")
"""Deadlock, serialization, lock timeout, and for the moment too many clients."""

_ERRORS: Final[tuple[tuple[type[psycopg.Error], type[PersistenceError]], ...]] = (
    (psycopg.IntegrityError, IntegrityError),
    (psycopg.InternalError, InternalError),
    (psycopg.NotSupportedError, NotSupportedError),
    (psycopg.ProgrammingError, ProgrammingError),
    (psycopg.OperationalError, OperationalError),
    (psycopg.DataError, DataError),
    (psycopg.DatabaseError, DatabaseError),
    (psycopg.InterfaceError, InterfaceError),
)


def of_result(result: PGresult, server: str) -> PersistenceError:
    """The error of a statement that failed, with the driver's as its cause."""
    state = result.error_field(DiagnosticField.SQLSTATE)
    return of_driver(error_from_result(result), server, (state or b"").decode())


def of_driver(error: psycopg.Error, server: str, state: str | None = None) -> PersistenceError:
    """The same for an error of the driver. One without a state is its own, of a connection that is broken."""
    state = state or _BROKEN
    text = f"{server}: {' '.join(str(error).split())}"
    fault: PersistenceError
    if "unsupported startup parameter" in text or "prepared statement" in text:
        text += " (through a pooler, the URL needs pooler=transaction)"
    if state.startswith(_LOST):
        fault = ConnectionLost(text)
    elif state.startswith(_AGAIN):
        fault = TryAgain(text)
    else:
        fault = next((ours for theirs, ours in _ERRORS if isinstance(error, theirs)), PersistenceError)(text)
    fault.__cause__ = error
    return fault
