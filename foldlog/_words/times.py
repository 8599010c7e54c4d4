"""When events happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from foldlog.eventstore import Event


def happened_at(event: Event, recorded_at: datetime) -> datetime | None:
    """Return when the event happened: its own time; without one, the time of its recording.

    For an event of a format whose records say when they happened, and for one of a history that was imported, it is the
    time that its source wrote, or None: the time of the import says nothing about it.
    """
    if event.timestamp is not None:
        return event.timestamp
    if event.origin is None or (event.origin.time is None and not _has_times(event.origin.format)):
        return recorded_at
    return time_in(event.origin.time)


def time_text(event: Event, recorded_at: datetime) -> str | None:
    """Return the same time as ISO 8601, without a zone where its source names none; another text as it is."""
    at, local = happened_at(event, recorded_at), local_time(event)
    if at is None:
        return local
    return at.isoformat() if local is None else at.replace(tzinfo=None).isoformat()


def local_time(event: Event) -> str | None:
    """Return the time without a zone that the source of an event wrote; None if the event has another time, or none."""
    return None if event.timestamp is not None or event.origin is None else event.origin.time or None


def time_in(text: Any) -> datetime | None:
    """Return the time in a text, without a zone as if it were in UTC; None for another text or value."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)


def _has_times(format: str) -> bool:
    """Return whether records of this format say when they happened. Of an unknown format that is assumed."""
    from foldlog._formats.registry import format_named  # loads all formats; most events need none
    from foldlog.eventstore import EventStoreError

    try:
        return format_named(format).times
    except EventStoreError:  # it is unknown, or a package brings one that cannot be used: an import says so
        return True
