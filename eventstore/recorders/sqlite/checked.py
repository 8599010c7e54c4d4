"""Remember the schema and the conversations that this process has checked, for the next store on the same file.

To find a conversation, a store also checks that no index contradicts its table, which takes longer than the rest. A
store checks each conversation once; a program that opens the store for each request would check it each time. So the
checked conversations are kept for as long as the file is unchanged: the same inode, size and times, and no content in a
log. Until it changes they need no question at all, nor do the ancestors of a fork. It is the same with the text of the
schema, and with the first id of a conversation from a given one on, by which forks are found.

Times are coarse: a file that changed a moment ago may change again and keep its times. Such a file is always checked.
A moment is two seconds where its times may be whole seconds, and a tenth of a second where they are not even whole
milliseconds: then the kernel's clock gave them, which ticks every ten milliseconds or more often.
"""

from __future__ import annotations

import os
import time
from typing import Final

from eventstore.recorders.types import Conversation

_FILES_MAX: Final = 64
CONVERSATIONS_MAX: Final = 1_000
_COARSE_NS = 2_000_000_000
_FINE_NS = 100_000_000
_MILLISECOND_NS: Final = 1_000_000

IdsFrom = dict[str, str | None]
"""The first id of a visible conversation from each of these ids on; None where there is none."""


class Checked:
    """What was checked in one file while it was in one state."""

    def __init__(self, path: str, state: tuple[int, ...] | None) -> None:
        self.path = path
        """The path by which the file was opened last."""
        self._state = state
        self.has_state = state is not None
        """Whether the file was at rest, so that something may be remembered of it."""
        self.conversations: dict[str, Conversation] = {}
        """Conversations as they were found then. ``add`` adds them."""
        self.ids_from: IdsFrom = {}
        self.has_our_schema = False
        """Whether the schema was found to be what the migrations of this version make."""

    def add(self, name: str, found: Conversation) -> None:
        """Remember a conversation, if the file is still in this state after it was found."""
        if len(self.conversations) < CONVERSATIONS_MAX and self.holds():
            self.conversations[name] = found

    def holds(self) -> bool:
        """Return whether the file is still in this state: then each transaction that has begun to read it reads this
        state. Cost: a look at the file and one at its log.
        """
        if self._state is None or _has_content(f"{self.path}-wal"):
            return False
        try:
            return _state_of(os.stat(self.path)) == self._state
        except OSError:
            return False


_by_state: dict[tuple[int, ...], Checked] = {}


def checked_in(path: str, status: os.stat_result | None) -> Checked:
    """Return what this process has checked in the file as it is now; the caller adds to it. Return an empty result
    where the file may have changed.

    ``status`` is the file's, taken before the file is read.
    """
    if status is None or _is_young(status.st_ctime_ns) or _has_content(f"{path}-wal"):
        return Checked(path, None)
    state = _state_of(status)
    checked = _by_state.pop(state, None) or Checked(path, state)
    checked.path = path
    while len(_by_state) >= _FILES_MAX:
        _by_state.pop(next(iter(_by_state)), None)
    _by_state[state] = checked  # the last to be forgotten
    return checked


def _is_young(changed_ns: int) -> bool:
    """Return whether a file with this time may change once more and keep it."""
    return abs(time.time_ns() - changed_ns) < (_FINE_NS if changed_ns % _MILLISECOND_NS else _COARSE_NS)


def _state_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _has_content(log: str) -> bool:
    try:
        return os.stat(log).st_size > 0
    except FileNotFoundError:
        return False
