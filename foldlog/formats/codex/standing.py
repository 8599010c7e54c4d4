"""What the View of a history shows, as items of Codex: a condensation of ours is written with all that it leaves."""

from __future__ import annotations

from typing import Any

from eventstore.events import CondensationAction, Event, summary_id

__all__ = ["Standing"]


class Standing:
    """The items of the View, in its order. It is as large as the View.

    Base instructions are no item: Codex sends them with every request, and no compaction takes them away.
    """

    def __init__(self) -> None:
        self._members: list[tuple[int, list[Any], bool]] = []

    def follow(self, event: Event, items: list[Any], *, base: bool = False) -> None:
        """Have ``event`` come, which is written as ``items``. A condensation takes its place in the View."""
        if isinstance(event, CondensationAction):
            self._forget(event)
            if event.summary_offset is not None:
                self._members.insert(max(event.summary_offset, 0), (summary_id(event.id), items, False))
        elif event.shown:
            self._members.append((event.id, items, base))

    def _forget(self, event: CondensationAction) -> None:
        intervals, summaries = event.forgotten
        self._members = [
            member
            for member in self._members
            if member[0] not in summaries and not any(first <= member[0] <= last for first, last in intervals)
        ]

    def items(self) -> list[Any]:
        """Return the items that the View shows now."""
        return [item for _, items, _ in self._members for item in items]
