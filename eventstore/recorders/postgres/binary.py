"""PostgreSQL's binary form of what a store keeps: numbers are big-endian, ids and names are their UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

BIGINT: Final = 20
BOOLEAN: Final = 16
BYTEA: Final = 17
INTEGER: Final = 23
SMALLINT: Final = 21

bigint: Final = Struct("!q").pack
smallint: Final = Struct("!h").pack

_unsigned: Final = Struct("!I").pack
_array_header: Final = Struct("!iiIii").pack
_length: Final = Struct("!i").pack
_NULL: Final = _length(-1)


def integer(number: int) -> bytes:
    """Return a signed or unsigned number of 32 bits."""
    return _unsigned(number & 0xFFFF_FFFF)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def array(kind: int, values: Sequence[bytes | None]) -> bytes:
    """Return an array of one dimension, of values in their binary form. ``kind`` is the OID of their type."""
    return b"".join((_array_header(1, 1, kind, len(values), 1), *_items(values)))


def text_bytes(text: str) -> bytes:
    """Return a text in UTF-8. Lone surrogates, which are not Unicode but may be in an id, are kept."""
    return text.encode("utf-8", "surrogatepass")


def to_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def _items(values: Iterable[bytes | None]) -> Iterable[bytes]:
    for value in values:
        if value is None:
            yield _NULL
        else:
            yield _length(len(value))
            yield value
