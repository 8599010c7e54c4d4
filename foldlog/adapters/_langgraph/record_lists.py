"""Keep a list of records, which changes from checkpoint to checkpoint, as events of a conversation.

New records are appended. Records that were removed at the end are retracted, and other removed records are forgotten,
so that the View follows the list. Ranges of ids say which events are in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from foldlog.eventstore import CondensationAction, CondensationSummary, Event, Retraction
from foldlog.formats import Decoder
from foldlog.projections import View, well_formed

M = TypeVar("M")

Span = tuple[int, int]
"""The ids of the events of a record: the first one, and the one after the last."""

_REASON = "the runtime took these messages out of its state"


@dataclass(frozen=True, slots=True)
class RecordList:
    """The ids of the events of each record, and its key, which identifies it."""

    spans: Sequence[Span] = ()
    keys: Sequence[bytes] = ()
    ranges: Sequence[int] = field(default=())


def changes(
    old: RecordList,
    new: Sequence[bytes],
    decoder: Callable[[], Decoder],
    record: Callable[[int], Any],
    removed: int,
    summaries: Callable[[], Mapping[int, Sequence[Span]]],
) -> tuple[list[Event], list[Span]]:
    """Return the events that turn a list into another one, and the ids of the events of its records.

    ``decoder()`` and ``record(n)`` are called if there are new records; the decoder is at the version of the next
    event. ``removed`` is the id of the last event that forgot records before the end, or -1. ``summaries()`` are those
    that are shown: one that stands for no record that stays is forgotten too.
    """
    stay = _stay(old.keys, new)
    spans = [old.spans[place] for place in stay]
    events: list[Event] = []
    if len(stay) < len(old.spans):
        staying = set(stay)
        gone = [span for place, span in enumerate(old.spans) if place not in staying]
        if (spans and gone[0] < spans[-1]) or gone[0][0] < removed:
            ids = [event_id for span in gone for event_id in range(*span)]
            ids += (each for each, of in summaries().items() if not any(a <= s[0] <= b for a, b in of for s in spans))
            events.append(CondensationAction(forgotten_event_ids=tuple(ids), metadata={"reason": _REASON}))
        else:
            events.append(Retraction(version=gone[0][0], reason=_REASON))
    if len(stay) < len(new):
        decodes = decoder()
        decodes.skip(len(events))
        for place in range(len(stay), len(new)):
            made = decodes.events(record(place))
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


def _stay(old: Sequence[bytes], new: Sequence[bytes]) -> list[int]:
    """Return the places of the old records that stay, in order. They are the first records of the new list."""
    stay: list[int] = []
    for place, key in enumerate(old):
        if len(stay) < len(new) and new[len(stay)] == key:
            stay.append(place)
    return stay


def model_input(
    messages: list[M],
    recorded: Sequence[tuple[Span, bytes]],
    view: View,
    key: Callable[[M], bytes],
    summarized: Callable[[str], M],
) -> list[M]:
    """Return the messages that a View shows, with its summaries in their places.

    ``recorded`` are the event ids and the keys of the messages in the View's conversation. Messages after these stay;
    if the messages begin otherwise, all stay.
    """
    count = len(recorded)
    if not 0 < count <= len(messages) or not any(event.id < 0 for event in view):
        return messages
    if recorded[-1][1] != key(messages[count - 1]):
        return messages
    places = {event_id: place for place, (span, _) in enumerate(recorded) for event_id in range(*span)}
    sendable = {event.id for event in (*well_formed(view), *view.open_calls)}
    shown: dict[int, M] = {}
    for event in view:
        if isinstance(event, CondensationSummary):
            shown[event.id] = summarized(event.content)
        elif event.id in places and event.id in sendable:
            shown.setdefault(places[event.id], messages[places[event.id]])
    return [*shown.values(), *messages[count:]]
