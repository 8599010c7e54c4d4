"""PostgreSQL's errors as recorder errors, sorted by what a recorder does next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

from foldlog.eventstore.recorders.errors import OperationalError, RecorderError, error_class


class ConnectionLost(OperationalError):
    """The server is gone, cannot be reached, or is not the primary any more: try again on another connection."""


class TryAgain(OperationalError):
    """The transaction was rolled back for an outside reason (a deadlock, a lock that is not free): run it again."""

    locks: Sequence[int] = ()
    """The advisory locks that the transaction held or waited for."""


_BROKEN: Final = "08000"
_REFUSALS: Final = re.compile(
    r"database \S+ does not exist|role \S+ does not exist|authentication failed|no pg_hba\.conf entry|"
    r"permission denied for database|is not permitted to log in|no password supplied|invalid port number"
)
"""A new connection is refused without a state code, only by a message. Errors that waiting cannot cure are raised at
once. A message in another language counts as a server that is unreachable.
"""
_NO_NUMBER: Final = "22P02"
"""Our statements that check something return a number, or fail because a text is not a number."""
_NO_RIGHT: Final = "42501"
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006")
"""Broken connections, a server that shuts down, starts or became a standby, and a session that the server ended."""
_AGAIN: Final = ("40", "55P03", "53300")
"""Deadlock, serialization failure, lock timeout, and too many clients at the moment."""


def of_result(result: PGresult, server: str, statement: str) -> RecorderError:
    """Return the error of a statement that failed, with the driver's error as its cause."""
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    if (statement, state) == ("number", _NO_NUMBER):
        return ConnectionLost(f"{server}: it was promoted or restored since this connection was made")
    return of_driver(error_from_result(result), server, state)


def of_driver(error: psycopg.Error, server: str, state: str | None = None) -> RecorderError:
    """Return our error for the driver's. One without a state is of the driver itself, for a broken connection."""
    state = state or _BROKEN
    text = f"{server}: {' '.join(str(error).split())}"
    if state == _NO_RIGHT:
        problem = error.diag.message_primary or str(error)
        text = f"{server}: {problem}; the owner of the store has to grant this role its rights: see docs/POSTGRESQL.md"
    fault: RecorderError
    if "unsupported startup parameter" in text or "prepared statement" in text:
        text += " (through a pooler, the URL needs pooler=transaction)"
    if state == _BROKEN and _is_refusal(text):
        fault = OperationalError(text)
    elif state.startswith(_LOST):
        fault = ConnectionLost(text)
    elif state.startswith(_AGAIN):
        fault = TryAgain(text)
    else:
        fault = (error_class(error) or RecorderError)(text)
    fault.__cause__ = error
    return fault


def _is_refusal(text: str) -> bool:
    """Return whether every server that was tried refuses this user, database or URL: then waiting does not help."""
    tried = text.split("connection to server at")
    return all(_REFUSALS.search(answer) for answer in tried[1:] or tried)
