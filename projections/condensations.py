"""The condensations that made a View, without retracted condensations. The condensations are read
only when they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from foldlog.eventstore import CondensationAction, Event, Store
from foldlog.projections.intervals import contains
from foldlog.projections.retractions import intervals_kept


@dataclass(eq=False, repr=False)
class StoredCondensations(Sequence[CondensationAction]):
    """The condensations of a conversation up to a version, from the oldest to the newest. ``newer``
    contains the last condensations. ``len`` reads nothing from the store. Every iteration and every
    access by index reads the log.

    Reading a condensation raises the errors of ``foldlog.eventstore.Store.events``.
    """

    _store: Store
    _conversation: str
    _version: int
    _count: int
    newer: tuple[CondensationAction, ...] = ()

    def __len__(self) -> int:
        return self._count + len(self.newer)

    def __iter__(self) -> Iterator[CondensationAction]:
        structural: list[Event] = self._store.query(
            self._conversation, lambda reading: list(reading.structural_events(0, self._version))
        )
        standing = intervals_kept(structural, self._version)
        for event in structural:
            if isinstance(event, CondensationAction) and contains(standing, event.id):
                yield event
        yield from self.newer

    @overload
    def __getitem__(self, index: int) -> CondensationAction: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[CondensationAction, ...]: ...

    def __getitem__(
        self, index: int | slice
    ) -> CondensationAction | tuple[CondensationAction, ...]:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(CondensationAction.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]
