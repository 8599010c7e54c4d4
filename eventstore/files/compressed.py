"""Read a file that is compressed with zstd. Codex compresses a session after a week."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from errno import EIO
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from foldlog.eventstore.errors import install_command

ZSTD = b"\x28\xb5\x2f\xfd"
"""Every file that is compressed with zstd begins with these bytes."""
_PART_BYTES = 2**16
"""The number of compressed bytes that are read at once."""
PIECE_BYTES = 128
"""The number of compressed bytes that are unpacked at once. Four bytes unpack to 128 KiB at most,
so a piece unpacks to 4 MiB at most, even in a file that repeats one character.
"""
WINDOW_MAX = 2**27
"""The largest window of a frame, in bytes. Unpacking a frame takes as much memory as its window."""
RATIO_MAX = 1_000
UNPACKED_LEAST = 2**30
"""A file may unpack to ``UNPACKED_LEAST`` bytes or to ``RATIO_MAX`` times its size, whichever is
more.
"""
_REPEATED_TEXT = (
    "its {:,} bytes unpack to more than {:,}, the limit for this size; if it is sound, decompress"
    " it first, for example with 'zstd -d'"
)
_WIDE_WINDOW = (
    "unpacking it needs more than {:,} bytes of memory; decompress it first, for example with"
    " 'zstd -d --long=31'"
)


def unpack(path: Path | str) -> Generator[bytes, None, None]:
    """Yield the unpacked bytes of a file, at most 4 MiB at once. Raises ``OSError`` as
    ``unpacked_of`` does, and if the file unpacks to more than its limit.
    """
    with open(path, "rb") as file:
        packed_bytes = os.fstat(file.fileno()).st_size
        limit = max(UNPACKED_LEAST, RATIO_MAX * packed_bytes)
        unpacked_bytes = 0
        for piece in unpacked_of(iter(partial(file.read, _PART_BYTES), b"")):
            unpacked_bytes += len(piece)
            if unpacked_bytes > limit:
                raise OSError(EIO, _REPEATED_TEXT.format(packed_bytes, limit))
            yield piece


def unpacked_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the unpacked bytes of compressed parts, at most 4 MiB at once. Raises ``OSError`` if
    the parts are cut off or damaged, if unpacking them needs more memory than ``WINDOW_MAX``, or if
    the package that unpacks them is missing.
    """
    try:
        import zstandard
    except ImportError as error:
        raise OSError(EIO, f"it is compressed with zstd; {install_command('zstd')}") from error
    frame = None
    try:
        for packed in _pieces(parts):
            while packed:
                if frame is None:
                    unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX)
                    frame = unpacker.decompressobj()
                yield frame.decompress(packed)
                # A file may have several consecutive frames.
                packed = frame.unused_data
                if frame.eof:
                    frame = None
    except zstandard.ZstdError as error:
        if "too much memory" in str(error):
            raise OSError(EIO, _WIDE_WINDOW.format(WINDOW_MAX)) from error
        raise OSError(EIO, f"its compressed content is damaged: {error}") from error
    if frame is not None:
        raise OSError(EIO, "its compressed content is cut off")


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), PIECE_BYTES):
            yield part[start : start + PIECE_BYTES]


def open_unpacked(path: Path, buffer_bytes: int) -> BufferedReader:
    """Open the unpacked content of a file. The content can be read only once, from the beginning to
    the end. A read raises the errors of ``unpack``. The file is opened by the first read, so that a
    missing file is an error of this read.
    """
    return BufferedReader(_Unpacked(unpack(path)), buffer_bytes)


class _Unpacked(RawIOBase):
    """The unpacked parts as a file that can only be read."""

    def __init__(self, parts: Generator[bytes, None, None]) -> None:
        self._parts = parts
        self._unread = memoryview(b"")

    def close(self) -> None:
        self._parts.close()  # closes the file
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unread:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._unread = memoryview(part)
        size = min(len(buffer), len(self._unread))
        buffer[:size] = self._unread[:size]
        self._unread = self._unread[size:]
        return size
