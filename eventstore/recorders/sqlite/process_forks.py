"""SQLite must not cross a fork.

A forked child believes in locks that only its parent holds. The parent, closing last by its own count, then removes the
write-ahead log from under the child, and with it what the child went on to acknowledge. So every connection is closed
before a fork, and parent and child open new ones when they need them.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from eventstore.recorders.errors import OperationalError

__all__ = ["Forkable", "check_not_inherited", "identity", "watch"]

_PATIENCE_S: Final = 5.0
"""How long a fork waits for other threads to end what they are doing with a store."""


class Forkable(Protocol):
    """What has connections to a file."""

    path: str

    def rest(self, patience_s: float) -> bool:
        """Close all connections and open none until ``resume``. False if some are in use and stay so."""

    def resume(self) -> None:
        """In the parent, behind the fork."""

    def begin_anew(self, *, inherited: bool) -> None:
        """In the child, behind the fork. ``inherited``: connections were in use, and the file is beyond its reach."""


_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: dict[Forkable, bool] = {}
_inherited: set[tuple[int, int]] = set()


def watch(forkable: Forkable) -> None:
    """Have its connections closed before every fork, for as long as it lives."""
    _watched.add(forkable)


def check_not_inherited(path: str) -> None:
    """Raise ``OperationalError`` in a child that was forked while a thread of its parent used this file."""
    if _inherited and identity(path) in _inherited:
        raise OperationalError(
            f"{path} was in use in another thread when this process was forked, and cannot be used safely here; "
            f"fork while nothing is read or written, or start processes by 'spawn'"
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
        if not rested:
            _inherited.add(identity(forkable.path))
        forkable.begin_anew(inherited=not rested)
    _resting.clear()


def identity(path: str) -> tuple[int, int]:
    """Return what names the file itself, whatever path leads to it."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
