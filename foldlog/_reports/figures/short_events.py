"""Read the events of a View for figures, which need no long contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from foldlog._reports.figures.overview import AT_ONCE, FIRST, is_long
from foldlog._reports.figures.tokens import ShortContent, event_tokens
from foldlog.eventstore import Event, Message, Observation, ReadTransaction

Interval = tuple[int, int]

_SHORT_CHARS: Final = 1_000


class ShortReading(ReadTransaction):
    """Shortens each event of a View after it was read, and reads long events one by one."""

    def __init__(self, reading: ReadTransaction) -> None:
        super().__init__(reading._reader, reading.state, reading.database)

    def flagged_events(self, intervals: Sequence[Interval]) -> list[Event]:
        events = list[Event]()
        waiting = list(intervals)[::-1]
        count = FIRST
        while waiting:
            read = super().flagged_events(list(_take(waiting, count)))
            shortened = list(map(shorten, read))
            events += shortened
            count = 1 if any(map(_is_other, read, shortened)) else AT_ONCE
        return events


def shorten(event: Event) -> Event:
    """Return an event without its long content, but with the same ``event_tokens``."""
    if not isinstance(event, Message | Observation) or not is_long(event):
        return event
    content = event.content
    short = ShortContent(content[:_SHORT_CHARS] if isinstance(content, str) else "")
    short.tokens = event_tokens(event)
    return replace(event, content=short)


def _take(waiting: list[Interval], count: int) -> Iterator[Interval]:
    """Take the first ``count`` ids from intervals, whose first is the last of the list."""
    while waiting and count > 0:
        first, last = waiting.pop()
        end = min(last, first + count - 1)
        if end < last:
            waiting.append((end + 1, last))
        count -= end - first + 1
        yield first, end


def _is_other(event: Event, shortened: Event) -> bool:
    return shortened is not event
