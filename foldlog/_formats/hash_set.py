"""A set of hashes that takes little memory. Imports use it to recognize a record or a reply that
they have seen before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SUFFIX: Final = slice(2, 7)
"""The bytes of a hash that are stored. Together with its bucket they are 50 bits. In an import of a
million records, the chance that any record is wrongly taken for a repetition is 1 in 2,000.
"""
_BUCKETS: Final = 0x3FF
_PAGE_BYTES: Final = 470
"""A bucket grows by pages of one size, which leave no holes in the memory. With its object a page
is of the largest size that Python's own allocator has.
"""


class HashSet:
    """A set of hashes. A hash has at least seven bytes, and the set stores only a ``part`` of it.
    Memory: for each hash the bytes of this part and some tenths of a byte, and 200 kB for the set.
    """

    def __init__(self, part: slice = SUFFIX) -> None:
        self._part = part
        self._buckets = dict[int, list[bytes | bytearray]]()
        """The pages of each bucket. Only the last one grows."""

    def __contains__(self, full_hash: bytes) -> bool:
        part = full_hash[self._part]
        return any(
            index_of(part, page) >= 0 for page in self._buckets.get(_bucket_of(full_hash), ())
        )

    def add(self, full_hash: bytes) -> bool:
        """Add a hash. Return whether it is new."""
        bucket = _bucket_of(full_hash)
        part = full_hash[self._part]
        pages = self._buckets.get(bucket)
        if pages is None:
            self._buckets[bucket] = [bytearray(part)]
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
        """Yield the stored parts of all hashes. Adding them to a new set in this order makes an
        equal set, which yields them in the same order.
        """
        for bucket in sorted(self._buckets):
            yield from self._buckets[bucket]


def _bucket_of(full_hash: bytes) -> int:
    return (full_hash[0] | full_hash[1] << 8) & _BUCKETS


def index_of(part: bytes, parts: bytes | bytearray) -> int:
    """Return the index of the first of ``parts`` that equals ``part``; -1 if none does. ``parts``
    are joined in one byte string, and have the length of ``part``.
    """
    offset = parts.find(part)
    while offset >= 0:
        index, across_border = divmod(offset, len(part))
        if not across_border:
            return index
        # These bytes are the end of one part and the beginning of the next.
        offset = parts.find(part, offset + 1)
    return -1
