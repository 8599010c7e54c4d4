"""Refuse a write inside a write, which would wait for its own thread for ever.

A guard, an inline projection, the clock, a signal handler or ``__del__`` may write to the store again. So a recorder
notes its thread while it is inside a write:

    writer = writer_of(database)
    if writer in INSIDE:
        raise nested(name)
    try:
        INSIDE.add(writer)  # within ``try``: an exception of a signal handler may come right after it
        ...
    finally:
        INSIDE.discard(writer)
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import Final

from foldlog.eventstore.recorders.errors import InterfaceError

Writer = tuple[int, str]
"""A thread and the database that it writes to. Two recorders on one database are the same writer in a thread."""

INSIDE: Final[set[Writer]] = set()


def writer_of(database: str) -> Writer:
    return get_ident(), database


def nested(name: str) -> InterfaceError:
    """Return the error for a thread that is inside a write to the same database."""
    return InterfaceError(
        f"{name}: this thread is inside a write to this store, so it cannot begin another one (a signal handler, a "
        f"guard, a projection, the clock or a finalizer tried to); nothing of the second one was written; "
        f"begin it after the first one has returned"
    )


def note_committed(error: BaseException) -> None:
    """Add to an exception from outside, such as a timeout, that the interrupted write is stored."""
    error.add_note("foldlog: the transaction that this interrupted was committed; its events are written")


def _forget_other_threads() -> None:
    """Keep only the writes of the thread that forked: in the child, new threads may get the numbers of the others."""
    me = get_ident()
    INSIDE.intersection_update([writer for writer in INSIDE if writer[0] == me])


os.register_at_fork(after_in_child=_forget_other_threads)
