"""Read the events of a View for figures, which need no long contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from foldlog._reports.figures.sizes import shorten
from foldlog.eventstore import Event, ReadTransaction

Interval = tuple[int, int]

_FIRST: Final = 8
_AT_ONCE: Final = 1_000


class ShortReading(ReadTransaction):
    """Shortens each event of a View after it was read, and reads long events one by one. Events of
    a View that are read together may have gigabytes.
    """

    def __init__(self, reading: ReadTransaction) -> None:
        super().__init__(reading._reader, reading.state, reading.database)

    def flagged_events(self, intervals: Sequence[Interval]) -> list[Event]:
        events = list[Event]()
        waiting = list(intervals)[::-1]
        count = _FIRST
        while waiting:
            read = super().flagged_events(list(_take(waiting, count)))
            shortened = list(map(shorten, read))
            events += shortened
            is_long = any(map(_is_other, read, shortened))
            count = 1 if is_long else _AT_ONCE
        return events


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
