"""The memory of a replay of a long history: a few bytes for each event and each turn."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple, overload

_UNKNOWN = -1


class Turn(NamedTuple):
    """One call of the agent's model: its first event, and the size of the View that it was shown.

    ``hidden`` counts events of the View that the condenser left out this time. ``tokens`` is None if they could not be
    counted.
    """

    event_id: int
    events: int
    hidden: int
    tokens: int | None


class Turns(Sequence[Turn]):
    """The turns of a replay, in order."""

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in Turn._fields)

    def append(self, turn: Turn) -> None:
        for column, value in zip(self._columns, turn, strict=True):
            column.append(_UNKNOWN if value is None else value)

    def set_tokens(self, place: int, tokens: int | None) -> None:
        self._columns[-1][place] = _UNKNOWN if tokens is None else tokens

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> Turn: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, index: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(len(self))[index])
        event_id, events, hidden, tokens = (column[index] for column in self._columns)
        return Turn(event_id, events, hidden, None if tokens == _UNKNOWN else tokens)

    def __eq__(self, other: object) -> bool:
        return self._columns == other._columns if isinstance(other, Turns) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Numbers:
    """The ids that events have in the history, and those that they have in the replay. Both ascend."""

    def __init__(self) -> None:
        self._old, self._new = array("q"), array("q")

    def add(self, old: int, new: int) -> None:
        self._old.append(old)
        self._new.append(new)

    def new(self, old: int) -> int | None:
        """Return the id in the replay; None for an event that the replay leaves out."""
        return _beside(self._old, old, self._new)

    def old(self, new: int) -> int:
        """Return the id in the history of an event that the replay has."""
        found = _beside(self._new, new, self._old)
        assert found is not None
        return found


def _beside(values: array[int], value: int, others: array[int]) -> int | None:
    place = bisect_left(values, value)
    return others[place] if place < len(values) and values[place] == value else None


class Fates:
    """The forgotten events: a summary stands for them, or they are lost.

    Each condensation is a node. If a summary is forgotten, its node is linked to the node that forgot it, so no event
    is visited twice.
    """

    def __init__(self) -> None:
        self._forgotten, self._nodes = array("q"), array("q")
        self._parents: list[int] = []
        self._lost: list[bool] = []
        self._node_of: dict[int, int] = {}

    def forget(self, events: Sequence[int], summaries: Iterable[int], summary: int | None) -> None:
        """Record that a condensation forgot these events and summaries, with or without a ``summary`` in their
        place.
        """
        node = len(self._parents)
        self._parents.append(node)
        self._lost.append(summary is None)
        self._forgotten.extend(events)
        self._nodes.extend(repeat(node, len(events)))
        for gone in summaries:
            self._parents[self._node_of.pop(gone)] = node
        if summary is not None:
            self._node_of[summary] = node

    def settled(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the events for which a summary stands at the end, and the lost events, both ascending."""
        roots = list(self._parents)
        for node in reversed(range(len(roots))):  # a node links to a later one
            roots[node] = roots[roots[node]]
        summarized, lost = array("q"), array("q")
        for event_id, node in zip(self._forgotten, self._nodes, strict=True):
            (lost if self._lost[roots[node]] else summarized).append(event_id)
        return tuple(sorted(summarized)), tuple(sorted(lost))
