"""The frames of a write-ahead log: which of them SQLite reads, and which it would delete.

SQLite reads a log without its index, as after a crash, up to the last commit before the first wrong checksum, and
overwrites the rest. That is right where the rest was never committed. Two things show that it was committed:

- a later frame with a right checksum: it was written when the commit before it was on disk
- the index, where the crash left it: it has the number of frames of the last commit. After a power cut it proves
  nothing, because without ``synchronous=FULL`` the log may be older than it.

Each frame is checked against the checksum that is stored in the one before it, so a damaged frame does not hide that
the next ones are sound. Format: https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from fcntl import F_GETLK, F_UNLCK, F_WRLCK, fcntl
from itertools import pairwise
from typing import BinaryIO, Final, NamedTuple

from eventstore.recorders.errors import DatabaseError

USUAL_PAGE_BYTES: Final = 4_096
_FRAME_HEADER: Final = 24
_HEADER: Final = 32
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
_INDEX_HEADER: Final = 48
_LOCK: Final = "hhqqi4x"
"""A lock of the system on a range of bytes: its kind, the meaning of its start, start, length and holder."""
_HELD_WHILE_OPEN: Final = 128
"""The byte of the index on which every connection holds a lock."""


class Frame(NamedTuple):
    """A page in the log: its number, the number of pages after a commit or 0, and its place.

    ``is_of_the_log``: it has the salts of the log. ``follows``: its checksum is right too.
    """

    number: int
    size: int
    at: int
    is_of_the_log: bool
    follows: bool


class Frames(NamedTuple):
    """The frames of a log, of which SQLite reads the first ``read``; those up to ``committed`` were committed too."""

    page_bytes: int
    all: Sequence[Frame] = ()
    read: int = 0
    committed: int = 0

    @property
    def is_damaged(self) -> bool:
        return self.committed > self.read


def check_undamaged(path: str) -> bool:
    """Return whether SQLite reads frames of the log of the store at ``path``, which no other process has open. Raise
    ``DatabaseError`` if it would delete committed ones. To be called before SQLite opens a file that this process does
    not have open. Cost: the log, where no other process has it open; else two calls of the system, because then SQLite
    finds the frames by the index.
    """
    frames = _at_rest(path)
    if frames.is_damaged:
        frames = _at_rest(path)  # a process may have begun the log again while it was read
    if not frames.is_damaged:
        return frames.read > 0
    raise DatabaseError(
        f"{path}-wal is damaged: SQLite reads {frames.read:,} of its frames, and would delete the "
        f"{frames.committed - frames.read:,} after them; restore a backup, or copy what is sound with 'foldlog salvage'"
    )


def _at_rest(path: str) -> Frames:
    """Return the frames of a log that no other process has open; none where one has."""
    if _is_in_use(f"{path}-shm"):
        return Frames(USUAL_PAGE_BYTES)
    with open(f"{path}-wal", "rb") as log:
        return frames_of(log, f"{path}-shm", USUAL_PAGE_BYTES)


def frames_of(log: BinaryIO, index: str, page_bytes: int) -> Frames:
    """Return the frames of a log from its beginning, with the help of its ``index`` if that exists. ``page_bytes`` is
    the size of a page where the header of the log is damaged.
    """
    described = _described(index)  # first: a writer adds frames to the log before it counts them there
    header = log.read(_HEADER)
    if len(header) < _HEADER:
        return Frames(page_bytes)
    magic, _, its_page_bytes, _, *salts, one, two = struct.unpack(">8I", header)
    order = _MAGIC.get(magic)
    if order is not None and _sum(header[:24], order, 0, 0) == (one, two):
        page_bytes = its_page_bytes
        frames = _chained(log, order, salts, (one, two), page_bytes)
        end = next((n for n, frame in enumerate(frames) if not frame.follows), len(frames))
    else:
        frames, salts, end = _of_damaged_header(log, page_bytes), list(struct.unpack(">2I", header[16:24])), 0
    read = 1 + max((n for n in range(end) if frames[n].size), default=-1)
    committed = _counted(described, salts)
    if any(one.is_of_the_log and one.size and other.follows for one, other in pairwise(frames[end:])):
        committed = max(committed, 1 + max(n for n, frame in enumerate(frames) if frame.follows and frame.size))
    return Frames(page_bytes, frames, read, max(read, committed))


def _of_damaged_header(log: BinaryIO, page_bytes: int) -> Sequence[Frame]:
    """Return the frames of a log whose header is damaged. Their salts are those of the first one."""
    first = log.read(_FRAME_HEADER + page_bytes)
    if len(first) < _FRAME_HEADER + page_bytes:
        return ()
    own = list(struct.unpack(">2I", first[8:16]))
    found = [_chained(log, order, own, None, page_bytes) for order in _MAGIC.values()]
    return max(found, key=lambda frames: sum(frame.follows for frame in frames))


def _chained(
    log: BinaryIO, order: str, salts: Sequence[int], sums: tuple[int, int] | None, page_bytes: int
) -> Sequence[Frame]:
    frames: list[Frame] = []
    log.seek(_HEADER)
    while len(frame := log.read(_FRAME_HEADER + page_bytes)) == _FRAME_HEADER + page_bytes:
        number, size, *own, one, two = struct.unpack(">6I", frame[:_FRAME_HEADER])
        at = log.tell() - page_bytes
        follows = False
        if own == salts and sums is not None:
            follows = (one, two) == _sum(frame[_FRAME_HEADER:], order, *_sum(frame[:8], order, *sums))
        frames.append(Frame(number, size, at, own == salts, follows))
        sums = (one, two)
    return frames


def _described(index: str) -> bytes:
    """Return the description of the log in its index; an empty text where it proves nothing."""
    with suppress(FileNotFoundError), open(index, "rb") as opened:
        if os.fstat(opened.fileno()).st_mtime < time.time() - time.monotonic():
            return b""  # from before the system was started
        first, second = opened.read(_INDEX_HEADER), opened.read(_INDEX_HEADER)
        order = "<" if struct.pack("=H", 1) == struct.pack("<H", 1) else ">"
        if first == second and len(first) == _INDEX_HEADER:
            sums = struct.unpack(f"{order}2I", first[40:])
            return first if _sum(first[:40], order, 0, 0) == sums else b""
    return b""


def _counted(described: bytes, salts: Sequence[int]) -> int:
    """Return how many frames the index counts; 0 where it describes another log than that with these salts."""
    if not described or list(struct.unpack(">2I", described[32:40])) != list(salts):
        return 0
    return int(struct.unpack("=I", described[16:20])[0])


def _is_in_use(index: str) -> bool:
    """Return whether another process has the index open. It must not be open in this one."""
    with suppress(FileNotFoundError), open(index, "rb") as opened:
        asked = struct.pack(_LOCK, F_WRLCK, os.SEEK_SET, _HELD_WHILE_OPEN, 1, 0)
        return bool(struct.unpack(_LOCK, fcntl(opened, F_GETLK, asked))[0] != F_UNLCK)
    return False


def _sum(data: bytes, order: str, one: int, two: int) -> tuple[int, int]:
    """Return the checksum of a log, continued."""
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
