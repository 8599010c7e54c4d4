"""The ids that a condensation forgets, as a reader sees them: a sequence that equals the list of the same ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import eq
from typing import Any, SupportsIndex, overload

_TUPLE_MAX = 10_000
"""A range of more ids than this is not expanded to a tuple."""


class EventIds(tuple[int, ...]):
    """Ids as a tuple that also equals a list of the same ids."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


class IdRange(Sequence[int]):
    """All ids from ``start`` to ``end``, both inclusive, as a sequence that does not keep them in memory.

    There may be any number of them. It equals a list or a tuple of the same ids. Slices are tuples.
    """

    __slots__ = ("_ids",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, start: int, end: int) -> None:
        self._ids = range(start, max(start, end + 1))

    def __len__(self) -> int:
        return len(self._ids)

    def __bool__(self) -> bool:
        return bool(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._ids)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and value in self._ids  # of other values a range compares each id

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | tuple[int, ...]:
        return tuple(self._ids[index]) if isinstance(index, slice) else self._ids[index]

    def index(self, value: Any, *bounds: int) -> int:
        if value not in self:
            raise ValueError(f"{value!r} is not among the ids {self!r}")
        return super().index(value, *bounds) if bounds else self._ids.index(value)

    def count(self, value: Any) -> int:
        return int(value in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdRange):
            return self._ids == other._ids
        if not isinstance(other, list | tuple):
            return NotImplemented
        number = self._ids.stop - self._ids.start  # ``len`` refuses more than a machine word holds
        return number == len(other) and all(map(eq, self._ids, other))

    def __repr__(self) -> str:
        return f"IdRange({self._ids.start}, {self._ids.stop - 1})"


def ids_of_range(start: int, end: int) -> EventIds | IdRange:
    """Return the ids from ``start`` to ``end``, both inclusive; none, if the range runs backwards."""
    return EventIds(range(start, end + 1)) if end - start < _TUPLE_MAX else IdRange(start, end)
