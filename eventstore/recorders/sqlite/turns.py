"""The fair queue of processes."""

from __future__ import annotations

import fcntl
import os

__all__ = ["Turns"]


class Turns:
    """Processes write in turns, by a lock on a file beside the database. The kernel ends a turn when its process dies.

    The lock only orders writers. Where it does not reach (another path to the same file, a lock file deleted by hand),
    SQLite's own lock still keeps them apart.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-queue"
        self._file = -1
        self._file = self._opened()

    def take(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def give_back(self) -> None:
        """Also where the turn was not taken after all: then nothing happens."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def begin_anew(self) -> None:
        """In a forked child, which shares its parent's lock, and would hold it when the parent is killed."""
        if self._file >= 0:
            os.close(self._file)
            self._file = self._opened()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    def _opened(self) -> int:
        return os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
