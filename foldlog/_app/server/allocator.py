"""How the allocator of the C library keeps memory."""

from __future__ import annotations

import ctypes
from typing import Final

_MMAP_THRESHOLD: Final = -3
"""The number of the option ``M_MMAP_THRESHOLD`` in glibc's ``malloc.h``."""
_LARGE_BYTES: Final = 1024 * 1024


def return_large_blocks() -> None:
    """Make glibc return freed blocks of 1 MiB and more to the system at once.

    By default, glibc keeps blocks up to 32 MiB for later, in an arena of each thread: after some
    events of 15 MB, 60 streams left a server at 379 MB that needs 101 MB with this setting. Does
    nothing with other C libraries.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE_BYTES)
