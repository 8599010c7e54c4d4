"""Store a changing list of records as events of a conversation.

New records are appended. Removed records are retracted or forgotten, so that the View shows the
present list. A checkpoint stores its list as ranges of event ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from foldlog.eventstore import Event, summary_of
from foldlog.runtimes import HistoryRecorder, change_of_prompt, staying

Span = tuple[int, int]
"""The ids of a record's events: the first id, and the id after the last event."""

_REASON = "the runtime took these messages out of its state"
"""The reason in the metadata of a condensation that forgets removed records."""

WRITES = "writes"
SNAPSHOT = "snapshot"
"""If a list is stored as differences, a checkpoint has either the writes that change the list
(``WRITES``), or the whole list (``SNAPSHOT``).
"""


class Listed(NamedTuple):
    """The records of a new checkpoint: their keys and source ids. ``record(n)`` returns a new
    record by its index.
    """

    keys: Sequence[bytes]
    ids: Sequence[Any]
    record: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of a checkpoint. ``spans`` are the event ids of each record. ``keys`` identify
    the records, and ``ids`` are their ids in the source. ``ranges`` are the joined spans: see
    ``ranges``.
    """

    spans: Sequence[Span] = ()
    keys: Sequence[bytes] = ()
    ids: Sequence[Any] = ()
    ranges: Sequence[int] = field(default=())


def changes(
    old: RecordList,
    new: Sequence[bytes],
    recorder: Callable[[], HistoryRecorder],
    record: Callable[[int], Any],
    removed: int,
    summaries: Callable[[], Mapping[int, Sequence[Span]]],
) -> tuple[list[Event], list[Span]]:
    """Return the events that change the old list of records into the new list, and the event ids of
    each record in the new list.

    ``recorder()`` and ``record(n)`` are called only for new records. The caller appends the
    returned events at the version of the recorder. ``removed`` is the id of the last condensation
    that forgot records of the list, or -1. ``summaries()`` maps each shown summary to the ids that
    it replaces. A summary is forgotten if the new list has none of the records that it replaces.
    """
    places = staying(old.keys, new)
    spans = [old.spans[place] for place in places]
    events: list[Event] = []
    if len(places) < len(old.spans):
        stood = summaries()
        of_gone = [
            event_id
            for event_id, ranges in stood.items()
            if not any(first <= span[0] <= last for first, last in ranges for span in spans)
        ]
        before = [*of_gone, *(event_id for span in old.spans for event_id in range(*span))]
        after = [event_id for span in spans for event_id in range(*span)]
        condensed_at = max(removed, *map(summary_of, stood), -1)
        change = change_of_prompt(
            before, after, condensed_at=condensed_at, metadata={"reason": _REASON}
        )
        if change is not None:
            events.append(change)
    if len(places) < len(new):
        decoder = recorder()
        decoder.skip(len(events))
        for place in range(len(places), len(new)):
            record_events = decoder.decode(record(place))
            spans.append((record_events[0].id, record_events[-1].id + 1))
            events += record_events
    return events, spans


def ranges(old: RecordList, spans: Sequence[Span], joins: Callable[[int, int], bool]) -> list[int]:
    """Join ``spans`` into ranges of ids: start, stop, start, stop, and so on. ``joins(start,
    stop)`` returns True if the View shows nothing between these ids.
    """
    old_spans = {*old.spans}
    after = dict(pairwise(old.spans))
    starts = {*old.ranges[::2]}
    bounds: list[int] = []
    before: Span | None = None
    for span in spans:
        if span in old_spans:
            joined = before is not None and after.get(before) == span and span[0] not in starts
        elif before in old_spans:  # all later spans are new
            joined = before == old.spans[-1] and joins(before[1], span[0])
        else:
            joined = before is not None
        if joined:
            bounds[-1] = span[1]
        else:
            bounds += span
        before = span
    return bounds


def without(spans: Sequence[Span], places: Sequence[int]) -> list[Span]:
    """Return the spans, except those at ``places``."""
    left_out = set(places)
    return [span for place, span in enumerate(spans) if place not in left_out]
