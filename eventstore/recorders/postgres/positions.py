"""Give each event a position in the whole store without a lock, a sequence or a table for all
writers.

A transaction has a number: its xid plus the epoch of the store. Each transaction has 2^20 positions
of its own:

    position = (number << 20) + place in the transaction

Numbers rise in the order in which transactions *began* to write, but transactions may commit in
another order. Followers read only below the horizon, which is the first position of the oldest
running transaction. Later commits have positions from the horizon on, so followers miss no event. A
writer gets its number only after it has locked the conversation. In a conversation, positions
therefore rise with the ids of events.

Only ``positions.py`` knows how positions are made. A database without xids would need its own
version of ``positions.py``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from foldlog.eventstore.errors import InvalidOption, StoreRefused

_BITS: Final = 20
"""The number of bits of a place in a transaction."""
_START_BITS: Final = 16
"""The number of bits of the random first place: see ``Positions``."""
POSITIONS_MAX: Final = (1 << _BITS) - (1 << _START_BITS)
"""The number of events that every transaction can place, whatever its first place is."""


class Part(NamedTuple):
    """One store as a part of a joined store. The joined store has ``of`` parts, a power of two.
    ``number`` is the number of this part. The key of each of its conversations, modulo ``of``, is
    ``number``.
    """

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Part:
        match = re.fullmatch(r"(\d{1,2})/(2|4|8|16|32|64)", text)
        if match is None or int(match[1]) >= int(match[2]):
            raise InvalidOption(
                f"the URL sets part to {text!r}; give the number of a store and the number of all"
                " stores, such as 17/64"
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number} of {self.of}"


ONLY: Final = Part(0, 1)
"""A store that is not joined to other stores."""


class Positions:
    """Gives the events of a transaction their places, and its new conversations their keys.

    The first place is a random number below 2^16. Another writer may append an equal event at the
    same time. A transaction recognizes its own event by the random place and the head, even if it
    never learned its own number. The first key is random too, because after the promotion of a
    standby another transaction may have the same number.
    """

    def __init__(self, part: Part = ONLY) -> None:
        self._first = self._next = secrets.randbits(_START_BITS)
        self._part = part
        self._key = secrets.randbits(_START_BITS) // part.of
        self.number: int | None = None
        """The transaction's number, or None until the server has returned it."""

    def take(self, count: int) -> int:
        """Take the next ``count`` places of the transaction, and return the first of them."""
        place = self._next
        if place + count - self._first > POSITIONS_MAX:
            raise StoreRefused(
                f"one transaction can append at most {POSITIONS_MAX:,} events, and this one would"
                f" append {count:,} more; append the events in several batches",
                kind="refused",
            )
        self._next = place + count
        return place

    def of(self, place: int) -> int:
        """Return the position of a place in the transaction."""
        assert self.number is not None, "a position was requested before the commit"
        return first_of(self.number) + place

    def precede(self, position: int) -> bool:
        """Return whether all positions of this transaction are lower than ``position``."""
        assert self.number is not None, "the server has not returned the number yet"
        return position >= first_of(self.number + 1)

    def take_ranges(self, count: int, reserve: Callable[[], int]) -> Iterator[tuple[int, int]]:
        """Yield ``count`` ascending positions as ranges: the first position, and the length. If the
        events need more positions than this transaction has, each call of ``reserve`` returns the
        number of a further transaction, whose positions are then used too.

        The reserved positions are higher than the first position of this transaction. Until this
        transaction ends, followers do not read beyond its first position, so no follower passes the
        reserved positions.
        """
        own = min(count, self._first + POSITIONS_MAX - self._next)
        if own:
            yield self.of(self.take(own)), own
        for placed in range(own, count, POSITIONS_MAX):
            yield first_of(reserve()), min(count - placed, POSITIONS_MAX)

    def key(self) -> int:
        """Return a key for a conversation that begins in this transaction. The key contains the
        number of this store among the joined stores. Raises ``StoreRefused`` if the transaction has
        no key left: the next key would be a key of the next transaction.
        """
        place = self._key * self._part.of + self._part.number
        if place >= 1 << _BITS:
            raise StoreRefused(
                f"one transaction can begin at most {POSITIONS_MAX // self._part.of:,} new"
                " conversations; begin the others in another transaction",
                kind="refused",
            )
        self._key += 1
        return self.of(place)


def first_of(number: int) -> int:
    """Return the first position of the transaction with this number."""
    return number << _BITS
