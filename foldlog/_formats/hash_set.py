"""A set of hashes that takes little memory: it tells whether a record, or a reply, is an earlier
one again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SUFFIX: Final = slice(2, 7)
"""The bytes of a hash that are held. With the ten bits of its bucket they tell millions of hashes
apart.
"""
_BUCKETS: Final = 0x3FF
_PAGE_BYTES: Final = 470
"""A bucket grows by pages of one size, which leave no holes in the memory. With its object a page
is of the largest size that Python's own allocator has.
"""


class HashSet:
    """A set of hashes of at least seven bytes, recognized by the bytes that are ``held``. Memory:
    these bytes and some tenths for each, and 200 kB for all.
    """

    def __init__(self, held: slice = SUFFIX) -> None:
        self._held = held
        self._buckets = dict[int, list[bytes | bytearray]]()
        """In each the pages, the last of which grows."""

    def __contains__(self, hashed: bytes) -> bool:
        part = hashed[self._held]
        return any(index_of(part, page) >= 0 for page in self._buckets.get(_bucket_of(hashed), ()))

    def add(self, hashed: bytes) -> bool:
        """Add a hash. Return whether it is new."""
        number = _bucket_of(hashed)
        part = hashed[self._held]
        pages = self._buckets.get(number)
        if pages is None:
            self._buckets[number] = [bytearray(part)]
            return True
        for page in pages:
            if part in page and index_of(part, page) >= 0:
                return False
        page = pages[-1]
        if len(page) + len(part) > _PAGE_BYTES:
            pages[-1] = bytes(page)
            pages.append(bytearray(part))
        else:
            page += part
        return True

    def pages(self) -> Iterator[bytes | bytearray]:
        """Yield the bytes that are held of all hashes. Their order depends on the order of the
        additions alone, and adding them in it gives it again.
        """
        for number in sorted(self._buckets):
            yield from self._buckets[number]


def _bucket_of(hashed: bytes) -> int:
    return (hashed[0] | hashed[1] << 8) & _BUCKETS


def index_of(part: bytes, parts: bytes | bytearray) -> int:
    """Return which of parts of one length, one behind the other, is the first that is equal; -1 for
    none.
    """
    place = parts.find(part)
    while place % len(part) > 0 and place >= 0:  # across the border between two parts
        place = parts.find(part, place + 1)
    return place // len(part)
