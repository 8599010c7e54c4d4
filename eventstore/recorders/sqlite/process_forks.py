"""Close connections before a process forks: SQLite must not be used across a fork.

A forked child relies on locks that only its parent holds. The parent, which seems to be the last to
close the file, would then remove the write-ahead log that the child uses, with the events that the
child acknowledged. So every connection is closed before a fork, and parent and child open new
connections when they need some.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Final, Protocol

from foldlog.eventstore.errors import StoreUnusable

_PATIENCE_S: Final = 5.0
"""The time for which a fork waits until other threads have ended their work with a store."""


class Forkable(Protocol):
    """An object with connections to a file."""

    def rest(self, patience_s: float) -> bool:
        """Close all connections, and open no connection until ``resume``. Return False if some
        connections stay in use.
        """

    def resume(self) -> None:
        """Open connections again in the parent after the fork."""

    def renew_in_child(self, *, inherited: bool) -> None:
        """Begin again in the child. ``inherited`` says that connections were in use at the fork, so
        the child must not use the file.
        """


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: dict[Forkable, bool] = {}
_inherited: set[tuple[int, ...]] = set()


def watch(forkable: Forkable) -> None:
    """Close the connections of this object before every fork, for as long as the object lives."""
    _watched.add(forkable)


def refuse(path: str) -> None:
    """Refuse to open this file in this process from now on: connections of its parent's threads are
    left half open.
    """
    _inherited.add(identity(path))


def check_not_inherited(path: str) -> None:
    """Raise ``StoreUnusable`` in a child that was forked while a thread of its parent used this
    file.
    """
    if _inherited and () != identity(path) in _inherited:
        raise StoreUnusable(
            f"{path} was in use in another thread when this process was forked, and cannot be used"
            " safely here; fork while nothing is read or written, or start processes by 'spawn'",
            kind="closed",
        )


def _before() -> None:
    for forkable in list(_watched):
        _resting[forkable] = forkable.rest(_PATIENCE_S)


def _after_in_parent() -> None:
    for forkable in _resting:
        forkable.resume()
    _resting.clear()


def _after_in_child() -> None:
    for forkable, rested in _resting.items():
        forkable.renew_in_child(inherited=not rested)
    _resting.clear()


def identity(path: str | os.PathLike[str] | int) -> tuple[int, ...]:
    """Return inode and device of a file, which are the same for every path and descriptor; an empty
    result if the file does not exist.
    """
    with suppress(OSError):
        status = os.stat(path)
        return status.st_ino, status.st_dev
    return ()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
