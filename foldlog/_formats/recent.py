"""A map that keeps only the newest keys, so that an import needs no more memory for a longer history."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last ``limit`` keys that were set, each with its latest value."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Not a dict: to find its first key, a dict passes all deleted keys.
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.get: Callable[[K], V | None] = self._entries.get
        """Return the value of a key; None for an unknown one."""

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        if key in entries:
            entries.move_to_end(key)  # a key that is set again is the latest
        entries[key] = value
        if len(entries) > self._limit:
            entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """Return the keys and their values, the newest at the end."""
        return list(self._entries.items())

    def clear(self) -> None:
        self._entries.clear()
