"""The items of a View as an immutable sequence that grows at low cost, because most steps only add
events to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, overload

from foldlog.eventstore import Event
from foldlog.projections.messages.growing import Rendering
from foldlog.projections.units import Units, UnitsSoFar, units


class Items(Sequence[Event]):
    """Events in their order. ``plus`` makes a longer sequence that shares the list of this
    sequence, so only the added events take time. The list may be longer than the sequence, because
    a longer sequence has added events to it.

    The first call of ``plus`` takes the ``_token`` and adds its events to the shared list. Each
    later call copies the list, because in the shared list other events already follow this
    sequence. Any number of threads may use a sequence.
    """

    __slots__ = ("_all", "_count", "_events", "_token", "_units_so_far", "masks", "renderings")

    def __init__(self, events: list[Event], shown_for: Items | None = None) -> None:
        """Use the list ``events`` without a copy: the caller must not change the list any more. If
        ``shown_for`` is passed, the prompt contains ``events`` in place of ``shown_for``, for
        example with some results masked. Both sequences share caches.
        """
        self._events = events
        self._count = len(events)
        self._all: tuple[Event, ...] | None = None
        self._token = [None]
        self.masks: dict[tuple[str, int], tuple[Event, Any]] = shown_for.masks if shown_for else {}
        """A cache of masks and sizes that condensers computed. The key is the condenser's type
        (``tokens`` for a size) and the id of the event. The value is the event and its mask or
        size.
        """
        self.renderings: dict[str, Rendering] = shown_for.renderings if shown_for else {}
        """Maps a dialect to the newest messages. A caller removes the messages while it uses them,
        so that no other thread changes them.
        """
        self._units_so_far: list[UnitsSoFar] = []
        """The units of the list, or only of its beginning. A caller removes the units while it uses
        them, so that no other thread changes them.
        """

    def plus(self, events: Sequence[Event]) -> Items:
        """Return this sequence with further events at its end. This sequence does not change."""
        if not events:
            return self
        # All empty Views share one sequence. Its list must stay empty.
        if not self._count:
            return Items(list(events))
        try:
            self._token.pop()  # Among all threads, at most one caller gets the token.
        except IndexError:
            return Items([*self, *events])
        self._events += events
        grown = Items.__new__(Items)
        grown._events = self._events
        grown._count = self._count + len(events)
        grown._all = None
        grown._token = [None]
        grown._units_so_far = self._units_so_far
        grown.masks = self.masks
        grown.renderings = self.renderings
        return grown

    @property
    def events(self) -> tuple[Event, ...]:
        """All events. Every call returns the same tuple, so caches can recognize it."""
        if self._all is None:
            self._all = self[:]
        return self._all

    def units(self, left_behind: Set[int]) -> Units:
        """Return the units of the events. Cost: reading the events whose units are not known yet,
        and copying the places of all units. If ``left_behind`` is not that of the known units, the
        cost is one pass over all events.
        """
        try:
            # Among all threads, at most one caller gets the units.
            so_far = self._units_so_far.pop()
        except IndexError:
            so_far = UnitsSoFar(left_behind)
        if so_far.count > self._count or so_far.left_behind != left_behind:
            self._units_so_far.append(so_far)
            return units(self[:], left_behind)
        so_far.read(self[so_far.count :])
        result = so_far.units()
        self._units_so_far.append(so_far)
        return result

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            return tuple(self._events[slice(*index.indices(self._count))])
        return self._events[range(self._count)[index]]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Items):
            return self[:] == other[:]
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return repr(self[:])


NO_ITEMS = Items([])
