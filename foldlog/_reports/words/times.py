"""Find the times of events, and write times as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from foldlog.eventstore import Event, EventStoreError
from foldlog.eventstore.times import EventTime, in_utc, parse_event_time

if TYPE_CHECKING:
    from foldlog.formats.format import Format

T = TypeVar("T")

# How long ago, such as 7d.
_SPAN = re.compile(r"(\d{1,9})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def moment_of(text: str) -> datetime:
    """Return the moment that a text names: a date, a time, or how long ago, such as ``7d``. A date
    or a time without a zone is in UTC. Raises ``ValueError`` for a text that names no moment.
    """
    try:
        if span := _SPAN.fullmatch(text.strip()):
            return datetime.now(UTC) - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text[:80]!r} is not a time; write a date such as 2026-03-01, or 7d"
        ) from error


def time_words(at: datetime | str) -> str:
    """Return a time as text for people, such as ``2026-03-01 14:03:05``. The time is in UTC, or
    without a zone if its source names no zone. The argument may be a text in ISO 8601.
    """
    if isinstance(at, str):
        return at.replace("T", " ", 1)[:19]
    return (at.astimezone(UTC) if at.tzinfo else at).isoformat(" ", "seconds")[:19]


def duration_words(seconds: float) -> str:
    """Return a duration as text, such as ``0.6 s``, ``9 m 50 s``, ``1 h 04 m`` or ``3 d 4 h``."""
    whole = round(seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def time_of_event(event: Event, recorded_at: datetime) -> EventTime | None:
    """Return when the event happened. The time has no zone if the source names no zone.

    An event without a ``timestamp`` happened when it was recorded. An imported event has the time
    that its source recorded for it, or None if the source records times but not for this event.
    """
    if event.timestamp is not None:
        return EventTime(event.timestamp)  # the codec has checked the timestamp
    if event.origin is None or (
        event.origin.time is None
        and read_with_format(event.origin.format, lambda known: known.time is not None) is False
    ):
        return EventTime(recorded_at)
    return parse_event_time(event.origin.time)


def happened_at(event: Event, recorded_at: datetime) -> EventTime | None:
    """Return when the event happened (see ``time_of_event``), converted by ``in_utc`` so that times
    can be compared.
    """
    at = time_of_event(event, recorded_at)
    return None if at is None else in_utc(at)


def time_text(event: Event, recorded_at: datetime) -> str | None:
    """Return when the event happened (see ``time_of_event``) in ISO 8601. If the time that the
    source wrote cannot be read, return the text of the source.
    """
    at = time_of_event(event, recorded_at)
    if at is not None:
        return at.isoformat()
    return None if event.origin is None else event.origin.time or None


def read_with_format(format: str, read: Callable[[Format], T]) -> T | None:
    """Call ``read`` with the format of this name, and return the result. Return None if the format
    is unknown.
    """
    # imported here, because most events need no format
    from foldlog.formats.registry import format_named

    try:
        return read(format_named(format))
    except EventStoreError:
        # The format is unknown, or a package has an unusable format. An import reports both.
        return None
