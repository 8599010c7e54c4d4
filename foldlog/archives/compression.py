"""The outer layer of an archive: zstd if the package ``zstandard`` is installed, else gzip. Both need little memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

from foldlog.eventstore import EventStoreError, install_command

_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_PIECE = 2**18
_WINDOW_MAX = 2**27
"""The most memory that a zstd stream may use for its window; ours use 2 MiB."""

AGAIN = "copy or export the archive again"
"""The remedy for a damaged archive."""
_CUT_OFF = f"its compressed bytes end too early: it was cut off; {AGAIN}"


class NotReadable(EventStoreError, ValueError):
    """The compressed bytes are damaged from here on."""


class Sink(Protocol):
    """A writer. Bytes written before ``flush`` can be read even if the file is cut off later."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


@contextmanager
def compressed(file: BinaryIO) -> Iterator[Sink]:
    """Yield a sink that compresses into ``file``; the file is complete when the context ends."""
    try:
        import zstandard
    except ImportError:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
            yield zipped
    else:
        with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(file, closefd=False) as stream:
            yield stream


def is_compressed(file: BinaryIO) -> bool:
    """Return whether the file begins like zstd or gzip. Leave it at its beginning."""
    beginning = file.read(4)
    file.seek(0)
    return beginning == _ZSTD or beginning.startswith(_GZIP)


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content in pieces of at most 256 KiB. Raises ``NotReadable`` if it is damaged or needs a package."""
    if not is_compressed(file):
        raise NotReadable("it is compressed neither with zstd nor with gzip")
    zstd = file.read(4) == _ZSTD
    file.seek(0)
    yield from _from_zstd(file) if zstd else _from_gzip(file)


def _from_zstd(file: BinaryIO) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        raise NotReadable(f"it is compressed with zstd; {install_command('zstd')} to read it") from error
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
    try:
        with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as reader:
            piece = reader.read(_PIECE)
            if not piece:
                raise NotReadable(_CUT_OFF)
            while piece:
                yield piece
                piece = reader.read(_PIECE)
    except zstandard.ZstdError as error:
        raise NotReadable(f"its compressed bytes are damaged: {error}; {AGAIN}") from error


def _from_gzip(file: BinaryIO) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as reader:
            while piece := reader.read(_PIECE):
                yield piece
    except EOFError as error:
        raise NotReadable(_CUT_OFF) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise NotReadable(f"its compressed bytes are damaged: {error}; {AGAIN}") from error
