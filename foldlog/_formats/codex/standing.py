"""The View of a history as items of Codex, because a condensation that foldlog made is written with all items that it
keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog.eventstore import CondensationAction, Event, Retraction, summary_id


class _Member(NamedTuple):
    """One event of the View, or a summary, by its id, with the items that it is written as."""

    event_id: int
    items: list[Any]


class ShownItems:
    """The items of the View, in its order. After each condensation, memory is that of the View.

    Base instructions are not an item: Codex sends them with every request, and no compaction removes them.
    """

    def __init__(self) -> None:
        self._stages: list[tuple[int, list[_Member]]] = [(0, [])]
        """The items of each stage, by the version at which the stage begins."""

    def follow(self, event: Event, items: list[Any]) -> None:
        """Add ``event``, which is written as ``items``. If it changes the View, apply the change."""
        members = self._stages[-1][1]
        if isinstance(event, CondensationAction):
            members = _without(members, event)
            if event.summary_offset is not None:
                members.insert(max(event.summary_offset, 0), _Member(summary_id(event.id), items))
            self._stages.append((event.id + 1, members))
        elif isinstance(event, Retraction):
            self._stages.append((event.id + 1, self._at(event.version)))
        elif event.shown:
            members.append(_Member(event.id, items))

    def _at(self, version: int) -> list[_Member]:
        members = next(members for start, members in reversed(self._stages) if start <= version)
        return [member for member in members if member.event_id < version]

    def items(self) -> list[Any]:
        """Return the items that the View shows now."""
        return [item for member in self._stages[-1][1] for item in member.items]


def _without(members: list[_Member], event: CondensationAction) -> list[_Member]:
    intervals, summaries = event.forgotten
    return [
        member
        for member in members
        if member.event_id not in summaries and not any(first <= member.event_id <= last for first, last in intervals)
    ]
