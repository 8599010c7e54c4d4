"""Compress the body of a row, and decompress it within a limit."""

from __future__ import annotations

import threading
import zlib
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from foldlog.eventstore.errors import InvalidOption, install_command
from foldlog.eventstore.log.row import NotAsWritten

if TYPE_CHECKING:
    import zstandard

_NONE: Final = 0
_ZLIB: Final = 1
_ZSTD: Final = 2

Compression = Literal["none", "zlib", "zstd"]

EVENT_BYTES_MAX: Final = 16 * 2**20
"""The largest event that a store takes, unless it is opened with another limit: 16 MiB of stored JSON. No larger body
is compressed, and so none is decompressed to more.
"""
_TOO_LARGE: Final = f"its compressed body is larger than {EVENT_BYTES_MAX:,} bytes, and no such body is compressed"

_ZLIB_LEVEL = 6
_ZSTD_LEVEL = 1


def checked(name: str) -> Compression:
    """Return the compression of this name. Raises ``InvalidOption`` for another one, and if its package is missing."""
    if name not in get_args(Compression):
        raise InvalidOption(f"unknown compression {name!r}; choose {', '.join(get_args(Compression))}")
    if name == "zstd":
        _zstandard()
    return cast(Compression, name)


def compressed(compression: Compression, body: bytes) -> tuple[int, bytes]:
    """Return the number of the compression, and the bytes to store: the body itself if compression does not help, or a
    reader would refuse it.
    """
    if compression == "none" or len(body) > EVENT_BYTES_MAX:
        return _NONE, body
    if compression == "zlib":
        how, smaller = _ZLIB, zlib.compress(body, _ZLIB_LEVEL)
    else:
        how, smaller = _ZSTD, _contexts.compressor.compress(body)
    return (how, smaller) if len(smaller) < len(body) else (_NONE, body)


def decompressed(how: int, stored: bytes) -> bytes:
    """Return the body that was given to ``compressed``. It never takes more than ``EVENT_BYTES_MAX`` of memory.

    Raises ``NotAsWritten``, and ``InvalidOption`` where zstd is needed and its package is missing.
    """
    if how == _NONE:
        return stored
    if how == _ZLIB:
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(stored, EVENT_BYTES_MAX + 1)
        except zlib.error as error:
            raise NotAsWritten(f"its compressed body cannot be read: {error}") from error
        if len(body) > EVENT_BYTES_MAX:
            raise NotAsWritten(_TOO_LARGE)
        if not inflater.eof:
            raise NotAsWritten("its compressed body is cut off")
        return body
    if how == _ZSTD:
        return _from_zstd(stored)
    raise NotAsWritten(f"its body has compression {how}, which this version of foldlog does not know")


class _Contexts(threading.local):
    """The contexts of zstd, which are expensive to make and must not be shared by threads."""

    @cached_property
    def compressor(self) -> zstandard.ZstdCompressor:
        import zstandard

        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL)

    @cached_property
    def decompressor(self) -> zstandard.ZstdDecompressor:
        import zstandard

        return zstandard.ZstdDecompressor()


_contexts = _Contexts()


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise InvalidOption(
            f"zstd needs the package 'zstandard'; {install_command('zstd')}, or choose compression 'zlib'"
        ) from error
    return zstandard


def _from_zstd(stored: bytes) -> bytes:
    zstandard = _zstandard()
    try:
        size = zstandard.frame_content_size(stored)
        if size < 0:
            raise NotAsWritten("its compressed body does not give its size")
        if size > EVENT_BYTES_MAX:
            raise NotAsWritten(_TOO_LARGE)
        return _contexts.decompressor.decompress(stored)
    except zstandard.ZstdError as error:
        raise NotAsWritten(f"its compressed body cannot be read: {error}") from error
