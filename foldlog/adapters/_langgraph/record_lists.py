"""Keep a list of records, which changes from checkpoint to checkpoint, as events of a conversation.

New records are appended. Records that were removed at the end are retracted, and other removed records are forgotten,
so that the View follows the list. Ranges of ids say which events are in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from foldlog._archive.recording import HistoryRecorder
from foldlog.eventstore import CondensationAction, Event, Retraction

Span = tuple[int, int]
"""The ids of the events of a record: the first one, and the one after the last."""

_REASON = "the runtime took these messages out of its state"


@dataclass(frozen=True, slots=True)
class RecordList:
    """The ids of the events of each record, its key, which identifies it, and the id that its source gave it."""

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
    """Return the events that turn a list into another one, and the ids of the events of its records.

    ``recorder()`` and ``record(n)`` are called if there are new records; the recorder is at the version of the next
    event. ``removed`` is the id of the last event that forgot records before the end, or -1. ``summaries()`` are those
    that are shown: one that stands for no record that stays is forgotten too.
    """
    staying = stay(old.keys, new)
    spans = [old.spans[place] for place in staying]
    events: list[Event] = []
    if len(staying) < len(old.spans):
        gone = without(old.spans, staying)
        if (spans and gone[0] < spans[-1]) or gone[0][0] < removed:
            ids = [event_id for span in gone for event_id in range(*span)]
            ids += (each for each, of in summaries().items() if not any(a <= s[0] <= b for a, b in of for s in spans))
            events.append(CondensationAction(forgotten_event_ids=tuple(ids), metadata={"reason": _REASON}))
        else:
            events.append(Retraction(version=gone[0][0], reason=_REASON))
    if len(staying) < len(new):
        decoder = recorder()
        decoder.skip(len(events))
        for place in range(len(staying), len(new)):
            made = decoder.decode(record(place))
            spans.append((made[0].id, made[-1].id + 1))
            events += made
    return events, spans


def ranges(old: RecordList, spans: Sequence[Span], joins: Callable[[int, int], bool]) -> list[int]:
    """Return ranges of ids whose records are exactly those of these spans: start, stop, start, stop, … ``joins(start,
    stop)`` tells whether no other records lie between the end of the old list and the new ones.
    """
    known, after, starts = {*old.spans}, dict(pairwise(old.spans)), {*old.ranges[::2]}
    made: list[int] = []
    before: Span | None = None
    for span in spans:
        if span in known:
            joined = before is not None and after.get(before) == span and span[0] not in starts
        elif before in known:  # all that follow are new
            joined = before == old.spans[-1] and joins(before[1], span[0])
        else:
            joined = before is not None
        if joined:
            made[-1] = span[1]
        else:
            made += span
        before = span
    return made


def stay(old: Sequence[bytes], new: Sequence[bytes]) -> list[int]:
    """Return the places of the old records that stay, in order. They are the first records of the new list."""
    staying: list[int] = []
    for place, key in enumerate(old):
        if len(staying) < len(new) and new[len(staying)] == key:
            staying.append(place)
    return staying


def without(spans: Sequence[Span], places: Sequence[int]) -> list[Span]:
    """Return the spans at all other places."""
    left_out = set(places)
    return [span for place, span in enumerate(spans) if place not in left_out]
