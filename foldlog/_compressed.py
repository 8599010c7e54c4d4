"""Read a file that is compressed with zstd, as Codex leaves a session that is a week old."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from errno import EIO
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from foldlog.eventstore.errors import install_command

ZSTD = b"\x28\xb5\x2f\xfd"
"""The first bytes of what is compressed."""
_PART_BYTES = 4096
"""What is unpacked at once: even a file of one character is then no more than a hundred megabytes
in memory.
"""


def unpacked(path: Path | str) -> Iterator[bytes]:
    """Yield what a file holds. Raises what ``unpacked_of`` raises."""
    with open(path, "rb") as file:
        yield from unpacked_of(iter(partial(file.read, _PART_BYTES), b""))


def unpacked_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what these parts hold together. Raises ``OSError`` where they are cut off or damaged,
    and without the package for it.
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
                packed = frame.unused_data
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise OSError(EIO, f"what is compressed in it is damaged: {error}") from error
    if frame is not None:
        raise OSError(EIO, "what is compressed in it is cut off")


def open_unpacked(path: Path, buffer_bytes: int) -> BufferedReader:
    """Open what a file holds, to be read once from its beginning. Reading raises as
    ``unpacked``.
    """
    return BufferedReader(_Unpacked(unpacked(path)), buffer_bytes)


class _Unpacked(RawIOBase):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._left = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (part := next(self._parts, None)) is not None:
            self._left = memoryview(part)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size
