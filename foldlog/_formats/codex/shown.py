"""Track the events of a rollout that are shown now, and which of them a record forgets."""

from __future__ import annotations

from array import array
from enum import IntEnum

from foldlog._formats.codex.said import is_base
from foldlog._formats.format import Past
from foldlog.eventstore import Event, Message, SystemMessage, summary_id


class _Role(IntEnum):
    OTHER = 0
    TURN = 1
    INSTRUCTIONS = 2
    BASE = 3


class Shown:
    """The ids of the events in the View, in its order, as far as forgetting needs them. Memory: nine bytes for each
    event.

    Base instructions are part of every request and are never forgotten. A turn begins with a message of the user.
    """

    def __init__(self, past: Past | None = None) -> None:
        self._past = past
        self._ids = array("q")
        self._roles = bytearray()

    def add(self, event: Event, *, base: bool = False) -> None:
        if event.shown:
            self._insert(len(self._ids), event.id, _role(event, base=base))

    def summarize(self, condensation_id: int, offset: int) -> None:
        """Record that the summary of this condensation stands at ``offset``."""
        self._insert(offset, summary_id(condensation_id), _Role.OTHER)

    def _insert(self, place: int, event_id: int, role: _Role) -> None:
        self._ids.insert(place, event_id)
        self._roles.insert(place, role)

    def _settle(self) -> None:
        """Read what is shown of the events before the first record."""
        past, self._past = self._past, None
        if past is not None:
            earlier = tuple(past.view())
            self._ids[:0] = array("q", (event.id for event in earlier))
            self._roles[:0] = bytes(_role(event, base=is_base(event)) for event in earlier)

    def compact(self, *, but_instructions: bool) -> tuple[tuple[int, ...], int]:
        """Forget all but the instructions or the base instructions. Return the forgotten ids and how many events
        stay.
        """
        self._settle()
        forgotten = self._forget(0, _Role.INSTRUCTIONS if but_instructions else _Role.BASE)
        return forgotten, len(self._ids)

    def roll_back(self, turns: int) -> tuple[int, ...]:
        """Forget the last turns with their events. Return the forgotten ids."""
        self._settle()
        first = len(self._roles)
        while turns and (before := self._roles.rfind(_Role.TURN, 0, first)) >= 0:
            first = before
            turns -= 1
        return self._forget(first, _Role.BASE)

    def _forget(self, first: int, kept: _Role) -> tuple[int, ...]:
        """Forget the events from ``first`` on that have a lesser role than ``kept``."""
        last = list(zip(self._ids[first:], self._roles[first:], strict=True))
        del self._ids[first:], self._roles[first:]
        for event_id, role in last:
            if role >= kept:
                self._insert(len(self._ids), event_id, _Role(role))
        return tuple(event_id for event_id, role in last if role < kept)


def _role(event: Event, *, base: bool) -> _Role:
    if isinstance(event, SystemMessage):
        return _Role.BASE if base else _Role.INSTRUCTIONS
    return _Role.TURN if isinstance(event, Message) and event.source == "user" else _Role.OTHER
