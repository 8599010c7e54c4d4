"""What of a rollout is shown at the moment, and what a record takes out of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from eventstore.events import Event, Message, SystemMessage, summary_id

__all__ = ["Shown"]

Role = Literal["base", "instructions", "turn", "other"]


class _Item(NamedTuple):
    event_id: int
    role: Role


class Shown:
    """Ids of the events in the View, in its order, as far as forgetting needs to know them. As large as a View.

    Base instructions go with every request and are never forgotten; a turn begins with what the user says.
    """

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def add(self, event: Event, *, base: bool = False) -> None:
        if not event.shown:
            return
        role: Role = "other"
        if isinstance(event, SystemMessage):
            role = "base" if base else "instructions"
        elif isinstance(event, Message) and event.source == "user":
            role = "turn"
        self._items.append(_Item(event.id, role))

    def compact(self, *, but_instructions: bool) -> tuple[tuple[int, ...], int]:
        """Forget all but the instructions, or but the base instructions: the ids forgotten, and how many are left."""
        kept = ("base", "instructions") if but_instructions else ("base",)
        forgotten = tuple(item.event_id for item in self._items if item.role not in kept)
        self._items = [item for item in self._items if item.role in kept]
        return forgotten, len(self._items)

    def summarize(self, condensation_id: int, offset: int) -> None:
        """The summary of this condensation stands at ``offset``."""
        self._items.insert(offset, _Item(summary_id(condensation_id), "other"))

    def roll_back(self, turns: int) -> tuple[int, ...]:
        """Forget the last turns, with what came in them: the ids forgotten."""
        begins = [place for place, item in enumerate(self._items) if item.role == "turn"]
        if not begins:
            return ()
        first = begins[-turns] if turns <= len(begins) else begins[0]
        last = self._items[first:]
        self._items[first:] = [item for item in last if item.role == "base"]
        return tuple(item.event_id for item in last if item.role != "base")
