"""The history before a record that is read: its View, its events, and the records from which they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from foldlog._formats.packing import events_of, place_of, unpack
from foldlog._formats.repeats import is_repeated
from foldlog.eventstore import Event, InvalidEvent, has_content

if TYPE_CHECKING:
    from foldlog.projections import View


class ReadableHistory(Protocol):
    """The methods of a history that a decoder needs, such as those of ``foldlog.History``."""

    def version(self) -> int: ...

    def at(self, version: int) -> View: ...

    def events(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[Event]: ...


class Past:
    """The history before a decoder's first record. It is read only when the decoder asks."""

    def __init__(self, format: str, history: ReadableHistory, version: int) -> None:
        self._format, self._history, self._version = format, history, version

    def view(self, version: int | None = None) -> View:
        """Return the View at a version, by default at the end. Cost: the size of that View."""
        return self._history.at(self._version if version is None else version)

    def newest_first(self) -> Iterator[Event]:
        """Yield the events there, the last one first. Cost: the events that are read."""
        return self._history.events(0, self._version, reverse=True) if self._version else iter(())

    def records(self) -> Iterator[tuple[Any, Sequence[Event]]]:
        """Yield each record of this format in that history, with the events that were made of it, but none a second
        time. Cost: the events.
        """
        made = self._history.events(0, self._version) if self._version else ()
        return recorded(self._format, (event for event in made if not is_repeated(event)))

    def newest_records(self) -> Iterator[tuple[Any, Sequence[Event]]]:
        """Yield these records, the last one first. Cost: the events that are read."""
        group: list[Event] = []
        for event in self.newest_first():
            if not is_repeated(event):
                group.insert(0, event)
            if not (is_of(event, self._format) and place_of(event)):
                yield from recorded(self._format, group)
                group = []

    def source_id(self, event_id: int) -> Any:
        """Return the id that the source gave an event of that history, or None."""
        (event,) = self._history.events(event_id, event_id + 1)
        return event.origin.id if event.origin is not None and is_of(event, self._format) else None


def recorded(
    format: str, events: Iterable[Event], on_damage: Callable[[InvalidEvent], object] | None = None
) -> Iterator[tuple[Any, Sequence[Event]]]:
    """Yield each record from which imported events were made, with these events.

    Raises ``InvalidEvent`` for a record that cannot be unpacked; with ``on_damage``, calls that, and goes on.
    """
    group: list[Event] = []
    for event in events:
        is_ours = is_of(event, format) and has_content(event)
        if not is_ours or place_of(event) != len(group):
            group = []
        if is_ours and (group or events_of(event)):
            group.append(event)
            if len(group) == events_of(group[0]):
                try:
                    record = unpack(group)
                except InvalidEvent as error:
                    if on_damage is None:
                        raise
                    on_damage(error)
                else:
                    yield record, group
                group = []


def is_of(event: Event, format: str) -> bool:
    """Return whether an event was imported from a format."""
    return event.origin is not None and event.origin.format == format
