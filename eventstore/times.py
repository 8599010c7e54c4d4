"""Convert times that come from outside: from a caller, a source or another program.

``foldlog.eventstore.arguments.to_microseconds`` checks the times of the store's clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NewType

EventTime = NewType("EventTime", datetime)
"""The time of an event according to its source. Every reader can convert an ``EventTime`` to UTC
and write it as ISO 8601. If the source names no time zone, the time has no zone, and is stored in
``Origin.time`` instead of the event's timestamp.
"""
EPOCH: Final = EventTime(datetime(1970, 1, 1, tzinfo=UTC))
_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)


def event_time(time: datetime) -> EventTime:
    """Return the stored form of a source's time. If the offset of the time has seconds, the time is
    converted to UTC, because ISO 8601 cannot write seconds in an offset.

    Raises ``ValueError`` if the year of the time in UTC is not from 1 to 9999.
    """
    offset = None if time.tzinfo is UTC else time.utcoffset()
    if not offset:
        return EventTime(time)
    try:
        in_utc = time.astimezone(UTC)
    except OverflowError:
        raise ValueError(
            f"the time {time.isoformat()} is outside the years 1 to 9999 in UTC; give another"
            " time, or no time"
        ) from None
    return EventTime(in_utc if offset % _MINUTE else time)


def parse_event_time(text: Any) -> EventTime | None:
    """Return the time in a text in ISO 8601, or None if there is no such time in it."""
    try:
        if isinstance(text, str):
            return event_time(datetime.fromisoformat(text))
        return None
    except ValueError:
        return None


def in_utc(time: EventTime) -> EventTime:
    """Return a time that can be compared with other times. A time without a zone counts as UTC
    everywhere.
    """
    return time if time.tzinfo else EventTime(time.replace(tzinfo=UTC))


def event_microseconds(time: EventTime) -> int:
    """Return a time in microseconds since 1970, negative for an earlier time."""
    return (in_utc(time) - EPOCH) // _MICROSECOND
