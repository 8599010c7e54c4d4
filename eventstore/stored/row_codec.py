"""How a body is stored: as it is, compressed, sealed, or compressed and then sealed. Pure but for its nonces.

The encoding of a row says how: 0 is JSON text as it is, 1 zlib, 2 zstd, and 4 more where it is sealed with AES-256-GCM
under the conversation's data key. What a sealed body is of (conversation, event) is its associated data, so that it is
not taken for another one's.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast, get_args

from eventstore.errors import StoreUnavailable
from eventstore.stored.keys import KEY_BYTES, NONCE_BYTES, Cipher, KeyRing, cipher

if TYPE_CHECKING:
    import zstandard

__all__ = ["DAMAGED", "PLAIN", "SEALED", "Compression", "DataKey", "Sealing", "Unopenable", "packed", "unpacked"]

PLAIN: Final = 0
_ZLIB: Final = 1
_ZSTD: Final = 2
SEALED: Final = 4
DAMAGED: Final = -1
"""Never stored: the encoding of a row, as read, whose bytes are not those that were written. Its body says why."""

Compression = Literal["none", "zlib", "zstd"]

_COMPRESSION = "FOLDLOG_COMPRESSION"
_ZLIB_LEVEL = 6
_ZSTD_LEVEL = 3
_OPENED_BYTES_MAX = 10**9
"""No database takes a larger body, so what claims to be one is refused before memory is given to it."""


class Unopenable(ValueError):
    """These bytes are not what was sealed or compressed. The reader adds where they stand."""


class Sealing(NamedTuple):
    """What a store does with bodies that it writes. What it can read does not depend on it, but for the keys."""

    compression: Compression = "none"
    keys: KeyRing | None = None

    @classmethod
    def chosen(
        cls, compression: str | None, keys: KeyRing | None, environment: Mapping[str, str] = os.environ
    ) -> Sealing:
        """What was given, else what the environment says (``FOLDLOG_COMPRESSION``, ``FOLDLOG_KEY``,
        ``FOLDLOG_KEY_FILE``), else nothing.

        Raises ``StoreUnavailable`` where there is no such compression or its package is missing, ``KeyUnavailable``.
        """
        choice = compression or environment.get(_COMPRESSION) or "none"
        if choice not in get_args(Compression):
            raise StoreUnavailable(f"there is no compression {choice!r}; it can be {', '.join(get_args(Compression))}")
        if choice == "zstd":
            _zstd()
        return cls(cast("Compression", choice), keys or KeyRing.from_environment(environment))


class DataKey:
    """The key of one conversation, and its salt, which is sealed with it."""

    def __init__(self, conversation: str, secret: bytes) -> None:
        self.salt = secret[KEY_BYTES:]
        self._cipher: Cipher = cipher(secret[:KEY_BYTES])
        self._place = conversation.encode("utf-8", "surrogatepass")

    @staticmethod
    def new_secret(salt: bytes) -> bytes:
        return os.urandom(KEY_BYTES) + salt

    def seal(self, what: bytes, body: bytes) -> bytes:
        """``body`` as ciphertext; ``what`` is the part of the conversation that it is, such as ``event 5``."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, body, what + b" of " + self._place)

    def open(self, what: bytes, sealed: bytes) -> bytes:
        """Raises ``Unopenable`` where it is not what was sealed there."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], what + b" of " + self._place)
        except (InvalidTag, ValueError) as error:
            raise Unopenable("it is sealed, and the conversation's key does not open it") from error


def packed(compression: Compression, body: bytes) -> tuple[int, bytes]:
    """The encoding and the bytes to store; those of ``body`` itself where compression does not make it smaller."""
    if compression == "none":
        return PLAIN, body
    encoding, smaller = (
        (_ZLIB, zlib.compress(body, _ZLIB_LEVEL)) if compression == "zlib" else (_ZSTD, _zstd().compress(body))
    )
    return (encoding, smaller) if len(smaller) < len(body) else (PLAIN, body)


def unpacked(encoding: int, stored: bytes) -> bytes:
    """What ``packed`` was given. Raises ``Unopenable``, and ``StoreUnavailable`` where zstd is needed and missing."""
    if encoding == PLAIN:
        return stored
    if encoding == _ZLIB:
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(stored, _OPENED_BYTES_MAX)
        except zlib.error as error:
            raise Unopenable(f"it is compressed, and cannot be read: {error}") from error
        if not inflater.eof:
            raise Unopenable("it is compressed, and its end is missing")
        return body
    if encoding == _ZSTD:
        return _zstd().decompress(stored)
    raise Unopenable(f"its encoding is {encoding}, which this version of foldlog does not know")


class _Zstd:
    """zstd for one thread: its contexts are dear to make, and must not be shared."""

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise StoreUnavailable(
                "zstd needs the package 'zstandard'; pip install 'foldlog[zstd]', or choose compression 'zlib'"
            ) from error
        self._error: type[Exception] = zstandard.ZstdError
        self._content_size = zstandard.frame_content_size
        self._compressor: zstandard.ZstdCompressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
        self._decompressor: zstandard.ZstdDecompressor = zstandard.ZstdDecompressor()

    def compress(self, body: bytes) -> bytes:
        return self._compressor.compress(body)

    def decompress(self, stored: bytes) -> bytes:
        try:
            if not 0 <= self._content_size(stored) <= _OPENED_BYTES_MAX:
                raise Unopenable("it is compressed, and does not say to what size")
            return self._decompressor.decompress(stored)
        except self._error as error:
            raise Unopenable(f"it is compressed, and cannot be read: {error}") from error


_local = threading.local()


def _zstd() -> _Zstd:
    try:
        found: _Zstd = _local.zstd
    except AttributeError:
        found = _local.zstd = _Zstd()
    return found
