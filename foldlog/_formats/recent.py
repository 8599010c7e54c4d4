"""A map that keeps only the newest keys, so that an import needs no more memory for a longer history."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """The last ``limit`` keys that were set, each with its latest value.

    Not a dict: to find its first key, a dict passes all deleted keys.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)  # a key that is set again is the latest
        if len(self) > self._limit:
            self.popitem(last=False)
