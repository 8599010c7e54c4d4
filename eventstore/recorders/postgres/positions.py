"""Where an event stands in the whole store, without a lock, a sequence or a table that all writers meet at.

A transaction has a number: its xid plus the epoch of the store. The positions that it may give are its own, 2^20 of
them:

    position = (number << 20) + place in the transaction

Numbers rise in the order in which transactions *began* to write, and they commit in another order. So followers read
only below the horizon: the number of the oldest transaction that still runs, shifted the same way. Whatever commits
later has a number at or above it, so nothing can ever appear behind a follower.

This file is all that knows how positions come about. A database without xids needs another one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from eventsourcing.persistence import DataError

__all__ = ["POSITIONS_MAX", "Positions"]

_BITS: Final = 20
POSITIONS_MAX: Final = 1 << _BITS
"""How many events one transaction can place."""


class Positions:
    """The positions that one transaction gives, and the keys of the conversations that it begins."""

    def __init__(self, number: int) -> None:
        self._next = number << _BITS
        self._end = (number + 1) << _BITS
        self._next_key = number << _BITS

    def take(self, count: int) -> int:
        """The first of ``count`` consecutive positions. Raises ``DataError`` where one transaction has not so many."""
        first = self._next
        if first + count > self._end:
            raise DataError(
                f"one transaction can place {POSITIONS_MAX:,} events, and {count:,} more are asked of it; "
                f"append them in several batches"
            )
        self._next = first + count
        return first

    def take_ranges(self, count: int, reserve: Callable[[], int]) -> Iterator[tuple[int, int]]:
        """(first position, how many), ascending, ``count`` in all. ``reserve`` gives the number of another transaction
        that began after this one and places nothing.

        No follower passes such a number before this transaction ends: the horizon is at or below its own.
        """
        own = min(count, self._end - self._next)
        if own:
            yield self.take(own), own
        for placed in range(own, count, POSITIONS_MAX):
            yield reserve() << _BITS, min(count - placed, POSITIONS_MAX)

    def key(self) -> int:
        """A key for a conversation that begins in this transaction."""
        self._next_key += 1
        return self._next_key - 1
