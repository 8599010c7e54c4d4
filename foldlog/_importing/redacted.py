"""What a conversation with redacted events and a source have in common."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._formats.past import is_of, recorded
from foldlog._formats.rewritten import OF_OTHERS, is_rewriting, standing_records, text_of
from foldlog._seen_files import SeenFiles
from foldlog.eventstore import ConversationErased, Event, InvalidEvent, Retraction, Store, has_content
from foldlog.eventstore.codec import encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.log.importing import ids_moved, say_the_same, timed_as
from foldlog.formats import Source
from foldlog.projections import contains, intervals_kept

SHARED_MIN = 3
"""This number of equal first events (or all events, if there are fewer) makes a conversation with a former name the
beginning of a history: two histories of one task begin with the same prompt.
"""


def rewritings(store: Store, conversation: str) -> list[Retraction]:
    """Return the events that take back what a source no longer had."""
    structural = store.query(conversation, lambda read: [*read.structural_events(0, read.version)])
    return [each for each in structural if isinstance(each, Retraction) and is_rewriting(each)]


def made_whole(
    store: Store, conversation: str, given: Iterable[Event], format: str, *, without_others: bool = False
) -> tuple[Iterable[Event], list[Event]]:
    """Return the stored events that stand, and in the place of a redacted one that of the source with its names, the
    nth for the nth, if what stays of it is equal; and these. ``without_others``: nothing that another hand wrote, and
    only events of the size of the redacted ones. Memory: the events, if some are redacted.
    """
    version = store.version(conversation)
    kept = intervals_kept(rewritings(store, conversation), version)
    stored = store.events(conversation, 0, version)
    if not store.conversation(conversation).redactions:
        return (each for each in stored if contains(kept, each.id) and (each.origin or not without_others)), []
    events, put_back, others = list[Event](), list[Event](), list[int]()  # of these the source knows nothing
    named: defaultdict[Any, deque[Event]] = defaultdict(deque)
    for event in given:
        if event.origin is not None and event.origin.format == format:
            named[_names(event, event.timestamp)].append(event)
    for event in stored:
        found = named[_names(event, event.timestamp)] or named[_names(event, None)]
        is_ours = event.origin is not None and event.origin.format == format
        if not (is_ours and contains(kept, event.id) and found):
            others.append(event.id)
        elif event.redacted is None:
            found.popleft()
        elif (whole := _whole(event, found.popleft(), others, of_its_size=without_others)) is not None:
            put_back.append(event := whole)
        if contains(kept, event.id) and (is_ours or not without_others):
            events.append(event)
    return events, put_back


def _whole(event: Event, theirs: Event, others: Sequence[int], *, of_its_size: bool) -> Event | None:
    """Return an event of a source in the place of a redacted one, if what stays of that is equal. ``others`` are the
    events before it of which the source knows nothing.
    """
    moved = ids_moved(encode(timed_as(event, theirs)), others)
    whole = replace(moved.event, id=event.id, timestamp=theirs.timestamp or event.timestamp)
    is_its_size = not of_its_size or (event.redacted is not None and size_of(moved.body) == event.redacted.bytes)
    return whole if is_its_size and say_the_same(event, whole) else None


def _names(event: Event, at: datetime | None) -> tuple[Any, ...]:
    """Return what names an event in its source, as far as it is named: its kind, its ids and its time."""
    return type(event), event.origin and event.origin.id, getattr(event, "call_id", None), at


def is_among(new: Sequence[Event], gone: Event) -> bool:
    """Return whether new events of a source have the content of a redacted one, also of one that was taken back: by
    the ids of its record and its call and its time, else by all that stays of it.
    """
    for event in new:
        if _names(event, None) == _names(gone, None) and event.timestamp in (None, gone.timestamp):
            alike = replace(event, cause=gone.cause, origin=gone.origin if gone.redacted is None else event.origin)
            _, source_id, call, _ = _names(event, None)
            if source_id is not None or (event.timestamp and call is not None):
                return True
            is_of_its_size = gone.redacted is None or size_of(encode(alike).body) == gone.redacted.bytes
            if is_of_its_size and say_the_same(gone, replace(alike, timestamp=gone.timestamp)):
                return True
    return False


def texts_of(events: Iterable[Event], format: str) -> set[str]:
    """Return the records of a conversation of which nothing was redacted, as texts."""
    return {text_of(record) for record, _ in recorded(format, (event for event in events if event.redacted is None))}


def packed_in(events: Iterable[Event]) -> set[str]:
    """Return the packed records of which nothing was redacted: what their sizes depend on, such as the order of keys
    and the version of zlib, differs where these differ.
    """
    return {repr(each.origin.rest) for each in events if each.origin is not None and each.redacted is None}


def has_records(stored: Set[Any], given: Set[Any], least: int = 1) -> bool:
    """Return whether three of the stored records, or all, at ``least`` this number, are among the given ones."""
    return least <= min(SHARED_MIN, len(stored)) <= len(stored & given)


class _Left(NamedTuple):
    """What is left of a conversation with redacted events, as an import keeps it in memory.

    ``records``  hashes of the texts of its records
    ``begin``    hashes of those that stand, in order, before the first redacted one
    ``first``    the event that was redacted there; None if none was
    ``others``   the ids of the events before that one of which a source knows nothing
    ``gone``     what names the redacted events, with their times
    """

    records: Set[int]
    begin: Sequence[int]
    first: Event | None
    others: Sequence[int]
    gone: Set[tuple[Any, ...]]


def _left(store: Store, conversation: str, version: int, format: str) -> _Left:
    events = [*store.events(conversation, 0, version)]
    kept = intervals_kept([each for each in events if isinstance(each, Retraction) and is_rewriting(each)], version)
    own = {each.id: each for each in events if is_of(each, format) and contains(kept, each.id)}
    begin, first = list[int](), None
    with suppress(InvalidEvent):  # half a record
        for each in standing_records(own.values(), format, shown=True):
            if each.record is OF_OTHERS:
                first = events[each.first_id]
            else:
                begin.append(hash(text_of(each.record)))
    others = [] if first is None else [each for each in range(first.id) if each not in own]
    gone = {_names(each, each.timestamp) for each in events if not has_content(each)}
    return _Left({*map(hash, texts_of(events, format))}, begin, first, others, gone)


def redacted_alike(store: Store, source: Source, seen: SeenFiles) -> dict[str, bool]:
    """Return the conversations with redacted events that may be the history of a source, or have of it what was
    redacted; each with whether they have three records in common; if some of the source cannot be read, one.

    Cost: one row of each of ``SeenFiles.redacted_like``, and once in an import the events of these.
    """
    found: dict[str, bool] = {}
    if not (alike := seen.redacted_like(source)):
        return found
    given = [*source.decoded()]
    texts = [hash(text_of(record)) for record, _ in given]
    records = {*texts}
    timed = {_names(each, each.timestamp) for _, events in given for each in events if each.timestamp is not None}
    for name in alike:
        with suppress(ConversationErased):  # since it was listed
            row, key = store.conversation(name), (name, source.format)
            state = row.generation, row.version, row.redactions  # another writer may have been there
            if key not in seen.left or seen.left[key][0] != state:
                seen.left[key] = state, _left(store, name, row.version, source.format)
            left: _Left = seen.left[key][1]
            common, first = len(left.begin), left.first
            there = given[common][1] if texts[:common] == left.begin and common < len(given) else ()
            begins = first and any(_whole(first, each, left.others, of_its_size=True) for each in there)
            in_common = has_records(left.records, records, SHARED_MIN if source.is_whole else 1)
            if begins or in_common or not left.gone.isdisjoint(timed):
                found[name] = in_common
    return found
