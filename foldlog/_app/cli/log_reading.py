"""Read the selected events of a conversation."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import nlargest

from foldlog._app.cli.selection import Selection
from foldlog._reports.figures.counts import is_waited_for, seconds_between
from foldlog._reports.figures.overview import counted_in, is_about_it
from foldlog._reports.v0_ids import in_own_ids
from foldlog._reports.words.times import time_of_event
from foldlog.eventstore import CorruptEvent, DocumentChanges, Event, Logged, Store
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.times import EventTime
from foldlog.projections.conversations.labels import KINDS
from foldlog.projections.conversations.unreadable import sound

_POLL_S = 0.2
"""The seconds between two looks for new events. A person sees no delay."""
KINDS_BY_DEFAULT = frozenset(KINDS) - {"documents"}
"""The kinds that ``foldlog log`` shows by default.

With these kinds, the command also prints how many changes of documents it left out.
"""
_SPAN = 500
"""The number of events that are read at once. A search for the last selected events reads the log
from its end.
"""


class LogReading:
    """The selected events of one conversation. An unreadable event becomes a finding, and the
    reading continues.

    The constructor raises ``ConversationNotFound`` or ``ConversationErased``, before any line is
    printed.
    """

    def __init__(self, store: Store, conversation: str, filters: Selection) -> None:
        self._store = store
        self._conversation = conversation
        self._filters = filters
        store.events(conversation, stop=0)
        self.in_own_ids = in_own_ids(store, conversation)
        self.version = store.version(conversation)
        self.findings: list[str] = []
        self.documents: list[int] = []
        """The ids of the changes of documents that were left out of the log."""
        self._counted: tuple[int, Callable[[Event], bool]] | None = None
        """The last result of ``counted_in``, and the version for which it was computed."""

    def is_uncounted(self, event: Event) -> bool:
        """Return whether the event is left out of the figures. Return False if the conversation is
        damaged.
        """
        if self._counted is None or self._counted[0] != self.version:
            with suppress(CorruptEvent):  # reading the events reports the damage
                is_counted = self._store.query(
                    self._conversation,
                    lambda read: counted_in(read.structural_events(), self.version),
                )
                self._counted = self.version, is_counted
        if self._counted is None:
            return False
        _, is_counted = self._counted
        return not is_counted(event)

    def end(self, stop: int | None) -> int:
        """Return the version up to which events are read."""
        return self.version if stop is None else min(stop, self.version)

    def events(self, start: int, stop: int | None) -> Iterator[Logged]:
        """Yield the selected events."""
        end = self.end(stop)
        takes = self._filters.takes
        everything = self._filters.everything
        is_default = self._filters.kinds is KINDS_BY_DEFAULT
        for entry in sound(self._store, self._conversation, start, end, self.findings):
            if everything or takes(entry.event, entry.recorded_at):
                yield entry
            elif is_default and isinstance(entry.event, DocumentChanges):
                self.documents.append(entry.event.id)

    def last(self, number: int, start: int, stop: int | None) -> list[Logged]:
        """Return the last ``number`` selected events. ``documents`` then has only the changes of
        documents after the first of these events. Cost: the method reads from the end of the log,
        at least ``_SPAN`` events at once, until it has them.
        """
        newest: list[Logged] = []
        end = self.end(stop)
        while len(newest) < number and end > start:
            begin = max(start, end - max(number, _SPAN))
            newest = [*self.events(begin, end), *newest]
            end = begin
        if len(newest) < number:
            return newest
        shown = newest[-number:] if number else []
        first = shown[0].event.id if shown else self.version
        self.documents = [event_id for event_id in self.documents if event_id > first]
        return shown

    def slowest(self, number: int, start: int, stop: int | None) -> list[tuple[float, Logged]]:
        """Return the ``number`` selected events with the longest waits for a model or a tool, the
        longest wait first. Each event comes with its wait in seconds. Cost: the events between
        ``start`` and ``stop`` are read.
        """
        waits: list[tuple[float, Logged]] = []
        reached: EventTime | None = None
        for entry in sound(self._store, self._conversation, start, self.end(stop), self.findings):
            at = time_of_event(entry.event, entry.recorded_at)
            if at is None or is_about_it(entry.event) or is_structural(entry.event):
                continue
            if (
                reached is not None
                and is_waited_for(entry.event)
                and self._filters.takes(entry.event, entry.recorded_at)
            ):
                waits.append((seconds_between(reached, at), entry))
            reached = at
        return nlargest(number, waits, key=lambda wait: wait[0])

    def coming(self, stop: int | None) -> Iterator[Logged]:
        """Yield the selected events that are appended from now on, until Ctrl-C or ``stop``."""
        last_change: int | None = None
        position = self.version
        try:
            while stop is None or position < stop:
                changed = self._store.database.data_version()
                if changed != last_change:
                    last_change = changed
                    self.version = self._store.version(self._conversation)
                    yield from self.events(position, stop)
                    position = max(position, self.version)
                sys.stdout.flush()
                time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return
