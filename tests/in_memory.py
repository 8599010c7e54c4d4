"""Where files of tests cost no disk."""

from __future__ import annotations

import os
import shutil

__all__ = ["in_memory"]

_ROOM = 1 << 30
"""What the tests of a whole run may have in files at one moment, and some more."""


def in_memory() -> str | None:
    """A folder without a disk behind it, where there is one with room, in which programs may be
    started.
    """
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return folder if shutil.disk_usage(folder).free > _ROOM else None
