"""Times that come from outside: from a caller, a source, another program.

The clock of the store has a check of its own, ``foldlog.eventstore.arguments.to_microseconds``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NewType

EventTime = NewType("EventTime", datetime)
"""The time of an event according to its source. Every reader can convert it to UTC and write it as
ISO 8601. It has no zone if its source names none.
"""
EPOCH: Final = EventTime(datetime(1970, 1, 1, tzinfo=UTC))
_MINUTE = timedelta(minutes=1)
_MICROSECOND = timedelta(microseconds=1)


def event_time(time: datetime) -> EventTime:
    """Return a time of a source. It is converted to UTC if its offset has seconds, which ISO 8601
    cannot write.

    Raises ``ValueError`` if its year in UTC is not from 1 to 9999.
    """
    offset = None if time.tzinfo is UTC else time.utcoffset()
    if not offset:
        return EventTime(time)
    try:
        in_utc = time.astimezone(UTC)
    except OverflowError:
        raise ValueError(
            f"the time {time.isoformat()} is outside the years 1 to 9999 in UTC; give another"
            " time, or none"
        ) from None
    return EventTime(in_utc if offset % _MINUTE else time)


def parse_event_time(text: Any) -> EventTime | None:
    """Return the time in a text of a source; None for any other text or value."""
    try:
        if isinstance(text, str):
            return event_time(datetime.fromisoformat(text))
        return None
    except ValueError:
        return None


def in_utc(time: EventTime) -> EventTime:
    """Return a time in a form that can be compared with other times. A time without a zone counts
    as UTC everywhere.
    """
    return time if time.tzinfo else EventTime(time.replace(tzinfo=UTC))


def event_microseconds(time: EventTime) -> int:
    """Return the exact number of microseconds from 1970 to a time: negative for an earlier time."""
    return (in_utc(time) - EPOCH) // _MICROSECOND
