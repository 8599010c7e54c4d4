"""Find the model calls that imported events report. Each format reports calls in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldlog.eventstore import Event
from foldlog.formats.model_calls import (
    IN_REPLIES,
    ModelCall,
    RecordedUsage,
    at_total,
    calls_of_replies,
)
from foldlog.formats.registry import UnknownFormat, format_named


def calls_of_imported(events: Iterable[Event], format: str) -> Iterator[ModelCall]:
    """Yield the model calls in imported events. Copies of a reply get the same id."""
    recorded = _usage_in_format(format)
    calls_in = recorded.calls or calls_of_replies
    for call in calls_in(events):
        if recorded.is_copied and call.at:
            yield at_total(call, {**call.usage, "cost": call.cost})
        else:
            yield call


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
