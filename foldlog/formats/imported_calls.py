"""Find the model calls that imported events report. Each format reports calls in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Event
from foldlog.formats.model_calls import (
    IN_REPLIES,
    CallsReader,
    ModelCall,
    RecordedUsage,
    at_total,
    calls_of_replies,
)
from foldlog.formats.registry import UnknownFormat, format_named


def calls_of_imported(
    events: Iterable[Event], format: str, reader: CallsReader | None = None
) -> Iterator[ModelCall]:
    """Yield the model calls in imported events. Copies of a reply get the same id. ``reader`` comes
    from ``reader_of``; without it, ``events`` are all events.
    """
    recorded = _usage_in_format(format)
    if reader is None and recorded.reader is not None:
        reader = recorded.reader()
    calls_in = recorded.calls or calls_of_replies
    for call in calls_in(events) if reader is None else reader.calls(events):
        if recorded.is_copied and call.at:
            yield at_total(call, {**call.usage, "cost": call.cost})
        else:
            yield call


def reader_of(format: str, known: JsonMap | None = None) -> CallsReader | None:
    """Return the reader of a format, or None if the format has none. ``known`` are the fields of
    the reader of the earlier events.
    """
    reader = _usage_in_format(format).reader
    if reader is None:
        return None
    return msgspec.convert(known or {}, reader)


def counts_on(format: str) -> bool:
    """Return whether the model calls in new events of this format can be counted without the
    earlier events.
    """
    return _usage_in_format(format).calls is None


def _usage_in_format(format: str) -> RecordedUsage:
    """Return how a format reports calls. An unknown format counts as one of the usual ones."""
    try:
        return format_named(format).recorded_usage
    except UnknownFormat:  # the package of the format was uninstalled
        return IN_REPLIES
