"""A map that remembers only what came lately, so that importing needs no more memory for a longer history."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last ``limit`` keys that were set, each with its latest value."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        entries.pop(key, None)  # a key that is set again is the latest
        entries[key] = value
        if len(entries) > self._limit:
            del entries[next(iter(entries))]

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)
