"""When events happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventstore import Event


def happened_at(event: Event, recorded_at: datetime) -> datetime | None:
    """Return when the event happened: its own time; without one, the time of its recording.

    For an imported event it is the time that its source wrote, or None: the time of the import says nothing about it.
    """
    if event.timestamp is not None or event.origin is None:
        return event.timestamp or recorded_at
    return time_in(event.origin.time)


def time_in(text: Any) -> datetime | None:
    """Return the time in a text, without a zone as if it were in UTC; None for another text or value."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC)
