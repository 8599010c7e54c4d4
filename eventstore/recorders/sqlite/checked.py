"""Conversations that this process has checked, for the next store that it opens on the same file.

The question for a conversation also finds an index that contradicts its table, which takes longer than the rest of it.
A store asks it once for each conversation; a program that opens the store for each request would ask it each time. So
what was checked is kept for as long as the file is what it was: the same inode, size and times, and nothing in a log.

Times are coarse: a file that changed a moment ago may change again and keep them. Such a file is checked.
"""

from __future__ import annotations

import os
import time
from typing import Final

from eventstore.recorders.types import Conversation

__all__ = ["Checked", "checked_in"]

_FILES_MAX: Final = 64
_CONVERSATIONS_MAX: Final = 1_000
_AT_REST_NS: Final = 2_000_000_000
"""A file system may keep times in whole seconds."""


class Checked:
    """Conversations of one file, as they were found and sound."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, Conversation] = {}

    def get(self, conversation: str) -> Conversation | None:
        return self._by_id.get(conversation)

    def keep(self, found: Conversation) -> None:
        if found.visible and not found.astray and found.erasure is None and len(self._by_id) < _CONVERSATIONS_MAX:
            self._by_id[found.id] = found


_by_state: dict[tuple[int, ...], Checked] = {}


def checked_in(path: str, status: os.stat_result | None) -> Checked:
    """Return what this process has checked in the file as it is now, to be added to; nothing where it may have changed.

    ``status`` is the file's, taken before it is read.
    """
    if status is None or abs(time.time_ns() - status.st_ctime_ns) < _AT_REST_NS or _has_content(f"{path}-wal"):
        return Checked()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    checked = _by_state.pop(state, None) or Checked()
    while len(_by_state) >= _FILES_MAX:
        _by_state.pop(next(iter(_by_state)), None)
    _by_state[state] = checked  # the last to be forgotten
    return checked


def _has_content(log: str) -> bool:
    try:
        return os.stat(log).st_size > 0
    except FileNotFoundError:
        return False
