"""Find the model calls that imported events report. Each format reports calls in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldlog.eventstore import Event
from foldlog.formats.registry import UnknownFormat, format_named
from foldlog.formats.usage import IN_REPLIES, ModelCall, RecordedUsage, at_total, calls_of_replies


def calls_of_imported(events: Iterable[Event], format: str) -> Iterator[ModelCall]:
    recorded = _usage_in_format(format)
    for call in (recorded.calls or calls_of_replies)(events):
        yield (
            at_total(call, {**call.usage, "cost": call.cost})
            if recorded.is_copied and call.at
            else call
        )


def counts_on(format: str) -> bool:
    """Return whether the model calls in new events of this format can be counted without the
    earlier events.
    """
    return _usage_in_format(format).calls is None


def _usage_in_format(format: str) -> RecordedUsage:
    try:
        return format_named(format).recorded_usage
    except UnknownFormat:  # the package of the format was uninstalled
        return IN_REPLIES
