"""Print the times of events, and parse the times of ``--since`` and ``--until``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from foldlog._cli.outcome import Refused
from foldlog._words.safe_text import printable
from foldlog._words.times import time_text
from foldlog.eventstore import CondensationAction, CondensationSummary, Event, Origin

_SPAN = re.compile(r"(\d{1,9})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def summary_at(summary: CondensationSummary, action: CondensationAction) -> CondensationSummary:
    """Return a summary with the time and the format of its condensation."""
    origin = None if action.origin is None else Origin(format=action.origin.format, time=action.origin.time)
    return replace(summary, timestamp=action.timestamp, origin=origin)


@lru_cache(64)  # the events of one batch have one time
def moment_words(at: datetime) -> str:
    """Return a time in UTC, in the form ``2026-03-01 14:03:05``."""
    return at.astimezone(UTC).isoformat(" ", "seconds")[:19]


def event_moment(event: Event, recorded_at: datetime) -> str:
    """Return when the event happened, as ``moment_words`` does. A time without a zone is shown as its source wrote it.
    Empty if the event has no time.
    """
    return printable(time_text(event, recorded_at) or "", one_line=True).replace("T", " ", 1)[:19]


def given_moment(option: str, text: str | None) -> datetime | None:
    """Return the moment that an option names: a date, a time (UTC unless it names a zone), or a span before now.

    Raises ``Refused`` for any other text.
    """
    if text is None:
        return None
    try:
        if span := _SPAN.fullmatch(text.strip()):
            return datetime.now(UTC) - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Refused(
            f"{option} {text!r} is not a time; give a date (2026-03-01), a time (2026-03-01T14:30, in UTC) or how "
            f"long ago (90s, 30m, 2h, 7d)"
        ) from error
