"""A set of hashes that takes little memory: it tells whether a record, or a reply, is an earlier
one again.
"""

from __future__ import annotations

from typing import Final

_SUFFIX: Final = 5
"""The bytes of a hash that are held. With the ten bits of its bucket they tell millions of hashes
apart.
"""
_BUCKETS: Final = 0x3FF


class HashSet:
    """A set of hashes of at least seven bytes. Memory: some six bytes for each, and 150 kB for
    all.
    """

    def __init__(self) -> None:
        self._buckets = dict[int, bytearray]()

    def __contains__(self, hashed: bytes) -> bool:
        bucket = self._buckets.get(_bucket_of(hashed), b"")
        return index_of(_suffix_of(hashed), bucket) >= 0

    def add(self, hashed: bytes) -> bool:
        """Add a hash. Return whether it is new."""
        place = _bucket_of(hashed)
        suffix = _suffix_of(hashed)
        bucket = self._buckets.get(place)
        if bucket is None:
            self._buckets[place] = bytearray(suffix)
            return True
        if index_of(suffix, bucket) >= 0:
            return False
        bucket += suffix
        return True


def _bucket_of(hashed: bytes) -> int:
    return int.from_bytes(hashed[:2], "little") & _BUCKETS


def _suffix_of(hashed: bytes) -> bytes:
    return hashed[2 : 2 + _SUFFIX]


def index_of(part: bytes, parts: bytes | bytearray) -> int:
    """Return which of parts of one length, one behind the other, is the first that is equal; -1 for
    none.
    """
    place = parts.find(part)
    while place % len(part) > 0 and place >= 0:  # across the border between two parts
        place = parts.find(part, place + 1)
    return place // len(part)
