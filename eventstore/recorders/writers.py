"""The threads that are inside a write. A nested write is refused."""

from __future__ import annotations

import os
from threading import get_ident
from typing import Final

from foldlog.eventstore.errors import StoreRefused

Writer = tuple[int, str]
"""A thread and the database to which it writes. If a thread uses two recorders for the same
database, it is still one writer.
"""

INSIDE: Final[set[Writer]] = set()
"""The writers that are writing now. Add a writer inside ``try``, and discard it in ``finally``,
because a signal handler may raise right after the addition.
"""


def check_not_writing(database: str, name: str) -> Writer:
    """Return this thread as a writer. Raises ``StoreRefused`` if this thread is already inside a
    write to this database. Without this check, a guard, an inline projection or a signal handler
    would wait for its own thread forever.
    """
    writer = get_ident(), database
    if writer in INSIDE:
        raise StoreRefused(
            f"{name}: this thread is already inside a write to this store and cannot begin a"
            " second one; the second write wrote nothing. Begin the second write after the"
            " first has returned. (The second may come from a signal handler, a guard, a"
            " projection, the clock or a finalizer.)",
            kind="nested",
        )
    return writer


def note_committed(error: BaseException) -> None:
    """Add a note to an exception that interrupted a committed write, such as a timeout."""
    error.add_note(
        "foldlog: this exception came after the commit of a transaction, so its events are written"
    )


# In a forked child, a new thread may get the number of a thread that exists only in the parent.
os.register_at_fork(
    after_in_child=lambda: INSIDE.intersection_update(
        [writer for writer in INSIDE if writer[0] == get_ident()]
    )
)
