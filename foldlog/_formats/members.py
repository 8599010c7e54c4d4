"""The content of a View while records are read or written: what a condensation of a source forgets, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Generic, TypeVar

from foldlog.eventstore import CondensationAction, Event, Retraction, summary_id

T = TypeVar("T")

PROMPT_REPLACED = {"outcome": "replaced", "reason": "the system prompt was updated"}
"""The metadata of a condensation that forgets a system prompt because the next event has a newer one."""


class MemberLink(Generic[T]):
    """The newest member, after those before it: the id of an event or of a summary, and what the format knows of it.

    With ``read`` it stands for several members, which are read when they are needed.
    """

    __slots__ = ("before", "member", "read")
    read: Callable[[], Iterable[tuple[int, T]]]

    def __init__(self, before: MemberLink[T] | None, member: tuple[int, T] | None) -> None:
        self.before, self.member = before, member


class Members(Generic[T]):
    """The present content of a View, in order. It is as large as the View.

    ``earlier`` returns the members at a version before the first record, whose event is ``begin``, and with None those
    at ``begin``. To remember the members, keep ``newest``: later changes affect nothing before a link.
    """

    def __init__(self, earlier: Callable[[int | None], Iterable[tuple[int, T]]] | None = None, begin: int = 0) -> None:
        self._earlier, self._begin = earlier, begin
        self.newest: MemberLink[T] | None = None if earlier is None else self._at(None)
        self._stages: list[tuple[int, MemberLink[T] | None]] = []
        """The members before each change that ``follow`` applied, by the id of its event."""

    def _at(self, version: int | None) -> MemberLink[T] | None:
        if self._earlier is None:
            return None
        link = MemberLink[T](None, None)
        link.read = partial(self._earlier, version)
        return link

    def newest_first(self) -> Iterator[tuple[int, T]]:
        """Yield the members, the last one first."""
        link = self.newest
        while link is not None:
            if link.member is not None:
                yield link.member
            else:
                members = tuple(link.read())
                link.read = members.__iter__
                yield from reversed(members)
            link = link.before

    def all(self) -> list[tuple[int, T]]:
        """Return the members in their order."""
        return list(self.newest_first())[::-1]

    def follow(self, event: Event, known: T) -> None:
        """Add an event, or apply its change of the View: then ``known`` is of the summary that it brings."""
        if type(event) is CondensationAction:
            self._stages.append((event.id, self.newest))
            gone = set(event.forgotten_event_ids or ())
            members = [member for member in self.all() if member[0] not in gone]
            if event.summary_offset is not None:
                place = min(max(event.summary_offset, 0), len(members))
                members.insert(place, (summary_id(event.id), known))
            self.newest = None
            for member in members:
                self.newest = MemberLink(self.newest, member)
        elif type(event) is Retraction:
            self._stages.append((event.id, self.newest))
            if event.version <= self._begin:
                self.newest = self._at(event.version)
                return
            self.newest = next(newest for event_id, newest in self._stages if event_id >= event.version)
            while self.newest is not None and self.newest.member is not None and self.newest.member[0] >= event.version:
                self.newest = self.newest.before
        elif event.shown:
            self.newest = MemberLink(self.newest, (event.id, known))
