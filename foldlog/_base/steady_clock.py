"""A clock that all processes of this machine share, and that nobody can set."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OFFSETS = "/proc/self/ns/time"


@cache
def name() -> str:
    """Return a text that names the clock: two processes with the same text read the same clock. The
    text is empty if the system has no such clock. Linux has one since each start of the machine,
    and a container may have its own.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return ""
    with suppress(OSError):
        return f"{_BOOT_ID.read_text().strip()} {os.readlink(_OFFSETS)}"
    return ""


def now() -> int:
    """Return the microseconds since the machine started, with the time that it slept. Call ``now``
    only if the clock has a name.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000
