"""Follow the content of a View while records are read or written. A format uses the content of the
View to find the events that a condensation forgets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from foldlog.eventstore import CondensationAction, Event, Retraction, summary_id

T = TypeVar("T")


class MemberLink(Generic[T]):
    """The newest member of a View, linked to the earlier members. A member is the id of an event or
    summary, with a tag: any value that the format needs later to choose the events that a
    condensation forgets.
    """

    __slots__ = ("before", "member")

    def __init__(self, before: MemberLink[T] | None, member: tuple[int, T]) -> None:
        self.before = before
        self.member = member


class Members(Generic[T]):
    """The present content of a View, in order. The memory grows with the number of events, and with
    the size of the View after each condensation, because a retraction may return to any of them.

    To save the present members, store ``newest``: its links never change.
    """

    def __init__(self) -> None:
        self.newest: MemberLink[T] | None = None
        self._stages: list[tuple[int, MemberLink[T] | None]] = []
        """A pair for each event that changed the View: the id of the event, and the newest member
        before the event.
        """
        self.condensed_at = -1
        """The id of the newest condensation, or -1 if there is no condensation."""

    def newest_first(self) -> Iterator[tuple[int, T]]:
        """Yield the members, the newest first."""
        link = self.newest
        while link is not None:
            yield link.member
            link = link.before

    def all(self) -> list[tuple[int, T]]:
        """Return the members in order: ids with tags."""
        return list(self.newest_first())[::-1]

    def ids(self) -> list[int]:
        """Return the ids of the members in order."""
        return [event_id for event_id, _ in self.all()]

    def tags(self) -> list[T]:
        """Return the tags of the members in order."""
        return [tag for _, tag in self.all()]

    def follow(self, event: Event, tag: T) -> None:
        """Add a shown event, or apply a condensation or a retraction. ``tag`` is the tag of the
        event, or of the summary that a condensation adds.
        """
        if type(event) is CondensationAction:
            self._stages.append((event.id, self.newest))
            self.condensed_at = event.id
            forgotten = set(event.forgotten_event_ids or ())
            members = [member for member in self.all() if member[0] not in forgotten]
            if event.summary_offset is not None:
                place = min(max(event.summary_offset, 0), len(members))
                members.insert(place, (summary_id(event.id), tag))
            self.newest = None
            for member in members:
                self.newest = MemberLink(self.newest, member)
        elif type(event) is Retraction:
            self._stages.append((event.id, self.newest))
            stage = bisect_left(self._stages, event.version, key=itemgetter(0))
            _, self.newest = self._stages[stage]
            while self.newest is not None and self.newest.member[0] >= event.version:
                self.newest = self.newest.before
        elif event.shown:
            self.newest = MemberLink(self.newest, (event.id, tag))
