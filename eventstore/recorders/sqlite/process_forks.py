"""Close connections before a process forks, because SQLite must not be used across a fork.

A forked child would rely on locks that only its parent holds. When the parent closes the file,
SQLite believes that no other process has the file open. SQLite would therefore remove the
write-ahead log with the events that the child has acknowledged. Every connection is therefore
closed before a fork. Parent and child open new connections when they need them.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from foldlog.eventstore.errors import StoreRefused

_PATIENCE_S: Final = 5.0
"""A fork waits at most ``_PATIENCE_S`` seconds each for the checkpoint, the writer and the readers
of a store.
"""


class Forkable(Protocol):
    """A store whose connections must not be open while the process forks."""

    def rest(self, patience_s: float) -> bool:
        """Close all connections, and open no connection until ``resume``. Return False if some
        connections stay in use.
        """

    def resume(self) -> None: ...

    def renew_in_child(self, *, inherited: bool) -> None:
        """In a forked child, forget the parent's connections. If ``inherited`` is true, connections
        were in use at the fork, so the child must not use the file.
        """


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: dict[Forkable, bool] = {}
"""During a fork, maps each object to whether it has closed all its connections."""
_inherited: set[tuple[int, ...]] = set()
"""The identities of files that this process must not use, because it is a forked child."""


def watch(forkable: Forkable) -> None:
    _watched.add(forkable)


def refuse(path: str) -> None:
    # Threads of the parent left their connections to this file half open.
    _inherited.add(identity(path))


def check_not_inherited(path: str) -> None:
    """Raise ``StoreRefused`` if another thread used the file when this process was forked."""
    file = identity(path)
    if file and file in _inherited:
        raise StoreRefused(
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
    """Return the inode and the device of a file, which are the same for every path and descriptor.
    Return an empty tuple if the file does not exist.
    """
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_dev


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
