"""Where an event stands in the whole store, without a lock, a sequence or a table that all writers meet at.

A transaction has a number: its xid plus the epoch of the store. The positions that it may give are its own, 2^20 of
them:

    position = (number << 20) + place in the transaction

Numbers rise in the order in which transactions *began* to write, and they commit in another order. So followers read
only below the horizon: the number of the oldest transaction that still runs, shifted the same way. Whatever commits
later has a number at or above it, so nothing can ever appear behind a follower. Writers of one conversation get their
numbers when it is their turn, so its events stand in the order of their ids.

This file is all that knows how positions come about. A database without xids needs another one of these.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Final

from eventstore.recorders.errors import DataError

__all__ = ["POSITIONS_MAX", "Positions", "first_of"]

_BITS: Final = 20
_START_BITS: Final = 16
POSITIONS_MAX: Final = (1 << _BITS) - (1 << _START_BITS)
"""How many events one transaction can place."""


class Positions:
    """The places that one transaction gives to events, and the keys of the conversations that it begins.

    The first place is random, out of 2^16. By it, and by the head, a transaction knows its own event again where it
    never heard its own number: somebody else may have appended the same at the same time. The first key is random for
    the same reason: after a promotion another transaction may have the same number.
    """

    def __init__(self) -> None:
        self._first = self._next = secrets.randbits(_START_BITS)
        self._key = secrets.randbits(_START_BITS)
        self.number: int | None = None
        """The transaction's number, once the server has told it."""

    def take(self, count: int) -> int:
        """Return the first of ``count`` consecutive places. Raises ``DataError`` if one transaction has fewer."""
        place = self._next
        if place + count - self._first > POSITIONS_MAX:
            raise DataError(
                f"one transaction can place {POSITIONS_MAX:,} events, and {count:,} more are asked of it; "
                f"append them in several batches"
            )
        self._next = place + count
        return place

    def of(self, place: int) -> int:
        """Return the position of a place, known once the number is."""
        assert self.number is not None, "asked for a position before the transaction was committed"
        return first_of(self.number) + place

    def precede(self, position: int) -> bool:
        """Was this position given by a transaction that began after this one?"""
        assert self.number is not None, "asked for before the server has told the number"
        return position >= first_of(self.number + 1)

    def take_ranges(self, count: int, reserve: Callable[[], int]) -> Iterator[tuple[int, int]]:
        """Yield (first position, how many), ascending, ``count`` in all. ``reserve`` gives the number of another
        transaction that began after this one and places nothing.

        No follower passes such a number before this transaction ends: the horizon is at or below its own.
        """
        own = min(count, self._first + POSITIONS_MAX - self._next)
        if own:
            yield self.of(self.take(own)), own
        for placed in range(own, count, POSITIONS_MAX):
            yield first_of(reserve()), min(count - placed, POSITIONS_MAX)

    def key(self) -> int:
        """Return a key for a conversation that begins in this transaction."""
        self._key += 1
        return self.of(self._key - 1)


def first_of(number: int) -> int:
    """Return the lowest position that a transaction of this number may give: a horizon for followers."""
    return number << _BITS
