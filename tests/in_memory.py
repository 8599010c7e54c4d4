"""A folder in memory for the files of tests."""

import os
import shutil

_ROOM = 1 << 30
"""More bytes than the tests of a whole run have in files at one time."""


def in_memory() -> str | None:
    """Return a folder in memory that has room and from which programs can be started; None if there
    is none.
    """
    folder = "/dev/shm"
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return None
    return folder if shutil.disk_usage(folder).free > _ROOM else None
