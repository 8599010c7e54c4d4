"""Read a file that is compressed with zstd. Codex compresses a session after a week."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from errno import EIO
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from foldlog.eventstore.errors import install_command

ZSTD = b"\x28\xb5\x2f\xfd"
"""Every file that is compressed with zstd begins with these bytes."""
_PART_BYTES = 4096
"""The number of compressed bytes that are unpacked at once. Even a file that repeats one character
then needs at most 100 MB of memory.
"""


def unpack(path: Path | str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from unpacked_of(iter(partial(file.read, _PART_BYTES), b""))


def unpacked_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the unpacked bytes of compressed parts. Raises ``OSError`` if the parts are cut off or
    damaged, or if the package that unpacks them is missing.
    """
    try:
        import zstandard
    except ImportError as error:
        raise OSError(EIO, f"it is compressed with zstd; {install_command('zstd')}") from error
    frame = None
    try:
        for packed in parts:
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(packed)
                # A file may have several consecutive frames.
                packed = frame.unused_data
                if frame.eof:
                    frame = None
    except zstandard.ZstdError as error:
        raise OSError(EIO, f"its compressed content is damaged: {error}") from error
    if frame is not None:
        raise OSError(EIO, "its compressed content is cut off")


def open_unpacked(path: Path, buffer_bytes: int) -> BufferedReader:
    """Open the unpacked content of a file. The content can be read only once, from the beginning to
    the end. A read raises ``OSError`` if the file is cut off or damaged, or if the package that
    unpacks it is missing.
    """
    return BufferedReader(_Unpacked(unpack(path)), buffer_bytes)


class _Unpacked(RawIOBase):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._unread = memoryview(b"")

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
