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

__all__ = ["CONVERSATIONS_MAX", "Checked", "checked_in"]

_FILES_MAX: Final = 64
CONVERSATIONS_MAX: Final = 1_000
_AT_REST_NS: Final = 2_000_000_000
"""A file system may keep times in whole seconds."""

Checked = dict[str, Conversation]
"""Conversations of one file by id, as they were found and sound: up to ``CONVERSATIONS_MAX``."""


_by_state: dict[tuple[int, ...], Checked] = {}


def checked_in(path: str, status: os.stat_result | None) -> Checked:
    """Return what this process has checked in the file as it is now, to be added to; nothing where it may have changed.

    ``status`` is the file's, taken before it is read.
    """
    if status is None or abs(time.time_ns() - status.st_ctime_ns) < _AT_REST_NS or _has_content(f"{path}-wal"):
        return {}
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    checked = _by_state.pop(state, None) or {}
    while len(_by_state) >= _FILES_MAX:
        _by_state.pop(next(iter(_by_state)), None)
    _by_state[state] = checked  # the last to be forgotten
    return checked


def _has_content(log: str) -> bool:
    try:
        return os.stat(log).st_size > 0
    except FileNotFoundError:
        return False
