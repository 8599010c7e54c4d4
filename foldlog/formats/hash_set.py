"""A set of hashes that needs little memory. An import uses the set to recognize repeated records
and replies. Ids are compared by their ``crc32``, which a state may store, as it is not text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

try:
    from isal.isal_zlib import crc32 as crc32  # for an id, half of zlib's time
except ImportError:
    from zlib import crc32 as crc32

SUFFIX: Final = slice(2, 7)
"""The bytes of a hash that the set stores. The stored bytes and the number of the bucket together
have 50 bits of the hash. In an import of a million records, the probability of one wrong match is 1
in 2,000.
"""
_BUCKETS: Final = 0x3FF
"""The ten bits of a hash that are the number of its bucket."""
_PAGE_BYTES: Final = 470
"""The size of a page in bytes. A bucket grows by pages of equal size, so that the memory is not
fragmented. With this size, a page is the largest object that Python's own allocator serves.
"""
_FEW: Final = 1_024
"""Up to this number of hashes, buckets would take more memory than a dictionary, and each import of
a short source would make a thousand lists, which the garbage collector visits.
"""


class HashSet:
    """A set of hashes of at least two bytes. The set stores only the bytes of a hash that the
    slice ``part`` selects, and those before them. A set of more than 1,024 hashes takes 200 kB of
    memory, and each hash a little more memory than its stored bytes.
    """

    def __init__(self, part: slice = SUFFIX) -> None:
        self._part = part
        self._few: dict[bytes, None] | None = {}
        """The beginnings of the hashes in their order, or None if the set has buckets."""
        self._buckets = dict[int, list[bytes | bytearray]]()
        """Maps the number of a bucket to its pages. Only the last page of a bucket grows."""

    def add(self, full_hash: bytes) -> bool:
        """Add a hash. Return whether the set did not have the hash before."""
        few = self._few
        if few is None:
            return self._add_to_bucket(full_hash)
        start = full_hash[: self._part.stop]
        if start in few:
            return False
        few[start] = None
        if len(few) > _FEW:
            self._few = None
            for start in few:
                self._add_to_bucket(start)
        return True

    def _add_to_bucket(self, full_hash: bytes) -> bool:
        """Add a hash to its bucket. Return whether the bucket did not have it before."""
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

    def __contains__(self, full_hash: bytes) -> bool:
        if self._few is not None:
            return full_hash[: self._part.stop] in self._few
        part = full_hash[self._part]
        pages = self._buckets.get(_bucket_of(full_hash), ())
        return any(index_of(part, page) >= 0 for page in pages)

    def copy(self) -> HashSet:
        """Return a copy, which does not change with this set."""
        copied = HashSet(self._part)
        copied._few = None if self._few is None else {**self._few}
        # only the last page of a bucket changes
        copied._buckets = {
            bucket: [*pages[:-1], bytearray(pages[-1])] for bucket, pages in self._buckets.items()
        }
        return copied

    def pages(self) -> Iterator[bytes | bytearray]:
        """Yield the stored parts of all hashes. A copy of the set yields the parts in the same
        order.
        """
        # the order of the buckets, so that few hashes are stored as they are among many
        for start in sorted(self._few or (), key=_bucket_of):
            yield start[self._part]
        for bucket in sorted(self._buckets):
            yield from self._buckets[bucket]


def _bucket_of(full_hash: bytes) -> int:
    """Return the number of the bucket of a hash."""
    return (full_hash[0] | full_hash[1] << 8) & _BUCKETS


def index_of(part: bytes, parts: bytes | bytearray) -> int:
    """Return the index of the first element of ``parts`` that equals ``part``, or -1. ``parts`` is
    a byte string, and all its elements have the length of ``part``.
    """
    offset = parts.find(part)
    while offset >= 0:
        index, across_border = divmod(offset, len(part))
        if not across_border:
            return index
        # these bytes are the end of one part and the beginning of the next part
        offset = parts.find(part, offset + 1)
    return -1
