"""Why a server refuses a connection.

libpq describes a failed connection by a text in the language of the server, and psycopg passes on
no state code. With the verbosity ``PQERRORS_VERBOSE`` the text contains the code. psycopg cannot
set the verbosity of a connection that is not made yet, so this module sets it in libpq itself.
"""

from __future__ import annotations

import ctypes
import re
import select
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import ConnStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGconn as Connection

_VERBOSE: Final = 2
_WAIT_S: Final = 5.0
_CODE: Final = re.compile(r":\s+([0-9][0-9A-Z]{4})\s?:")
TOO_MANY: Final = "53300"
_DENIED: Final = frozenset({"28000", "28P01", "3D000", "42501"})
"""The state codes of a role or password that is not valid, a database that does not exist, and a
right that is missing. Waiting helps against none of them.
"""


def states_of_refusals(parameters: Mapping[str, Any]) -> list[str]:
    """Connect once more, and return the state code with which each server refused. The list is
    empty if the connection is made now, if no server answers in 5 seconds, or if libpq cannot be
    found. Cost: the round trips of a connection.
    """
    libpq = _libpq()
    if libpq is None:
        return []
    connection = PGconn.connect_start(make_conninfo("", **parameters).encode())
    try:
        pointer = connection.pgconn_ptr  # type: ignore[attr-defined]  # missing in the protocol
        libpq.PQsetErrorVerbosity(pointer, _VERBOSE)
        if not _has_failed(connection):
            return []
        return _CODE.findall(connection.error_message.decode(errors="replace"))
    finally:
        connection.finish()


def are_permanent(states: list[str]) -> bool:
    """Return whether every server refused, and waiting does not help."""
    return bool(states) and _DENIED.issuperset(states)


def _has_failed(connection: Connection) -> bool:
    """Make the connection, and return whether it failed. A connection that fails before it begins
    has no socket: its host has no address, or its socket file does not exist.
    """
    if connection.status == ConnStatus.BAD:
        return True
    ends = time.monotonic() + _WAIT_S
    waits_for = PollingStatus.WRITING
    while waits_for != PollingStatus.OK:
        if waits_for == PollingStatus.FAILED:
            return True
        socket = select.poll()
        is_reading = waits_for == PollingStatus.READING
        socket.register(connection.socket, select.POLLIN if is_reading else select.POLLOUT)
        if not socket.poll(max(0.0, ends - time.monotonic()) * 1_000):
            return False
        waits_for = PollingStatus(connection.connect_poll())
    return False


@cache
def _libpq() -> Any:
    """Return the libpq that psycopg uses, which is already loaded."""
    if psycopg.pq.__impl__ == "python":
        return None  # its pointers have types of their own
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "libpq" in line}
        [path] = paths
        libpq = ctypes.CDLL(path)
        libpq.PQsetErrorVerbosity.argtypes = [ctypes.c_void_p, ctypes.c_int]
    except (OSError, ValueError, AttributeError):
        return None
    return libpq
