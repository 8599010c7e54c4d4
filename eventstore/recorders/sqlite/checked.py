"""Remember the schema and the conversations that this process has checked, for the next store on the same file.

To find a conversation, a store also checks that no index contradicts its table, which takes longer than the rest. A
store checks each conversation once; a program that opens the store for each request would check it each time. So the
checked conversations are kept for as long as the file is unchanged: the same inode, size and times, and no content in a
log. It is the same with the text of the schema.

Times are coarse: a file that changed a moment ago may change again and keep its times. Such a file is always checked.
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
"""The times of a file may be whole seconds."""


class Checked(dict[str, Conversation]):
    """The checked conversations of one file by id, as they were found: up to ``CONVERSATIONS_MAX``."""

    has_our_schema = False
    """Whether the schema was found to be what the migrations of this version make."""


_by_state: dict[tuple[int, ...], Checked] = {}


def checked_in(path: str, status: os.stat_result | None) -> Checked:
    """Return the conversations that this process has checked in the file as it is now; the caller adds to them. Return
    an empty result where the file may have changed.

    ``status`` is the file's, taken before the file is read.
    """
    if status is None or abs(time.time_ns() - status.st_ctime_ns) < _AT_REST_NS or _has_content(f"{path}-wal"):
        return Checked()
    state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    checked = _by_state.pop(state, None)
    if checked is None:  # one that holds nothing yet is false
        checked = Checked()
    while len(_by_state) >= _FILES_MAX:
        _by_state.pop(next(iter(_by_state)), None)
    _by_state[state] = checked  # the last to be forgotten
    return checked


def _has_content(log: str) -> bool:
    try:
        return os.stat(log).st_size > 0
    except FileNotFoundError:
        return False
