"""This module finds the event at which two conversations with shared events diverge."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foldlog._reports.answers.runs import DivergenceDocument
from foldlog._reports.words.event_json import event_document
from foldlog.eventstore import Event, Store

if TYPE_CHECKING:
    from foldlog._reports.figures.prices import Prices

_LOOKED_AT = 50


def find_divergence(
    store: Store, one: str, other: str, shared: int, prices: Prices
) -> DivergenceDocument:
    """Find the first different event at or after the version ``shared``. Cost: the function reads
    the events of both conversations.
    """
    from foldlog._reports.runs import run_of

    versions = store.version(one), store.version(other)
    logs = (
        store.log(name, shared, stop) for name, stop in zip((one, other), versions, strict=True)
    )
    pairs = enumerate(zip_longest(*logs), start=shared)
    differing = (
        entries
        for entries in pairs
        if None in entries[1] or not _equal(*(one.event for one in entries[1]))
    )
    place, pair = next(differing, (None, (None, None)))
    event, other_event = (
        None if entry is None else event_document(entry.event, entry.recorded_at) for entry in pair
    )
    return DivergenceDocument(
        conversation=one,
        version=versions[0],
        other=other,
        other_version=versions[1],
        common_past=shared,
        first_divergent_event=place,
        event=event,
        other_event=other_event,
        runs=(run_of(store, one, prices), run_of(store, other, prices)),
    )


def _equal(one: Event, other: Event) -> bool:
    # A replay records its own times, so times do not count.
    return replace(one, timestamp=None) == replace(other, timestamp=None)


def common_past(store: Store, one: str, other: str) -> int | None:
    """Return the version up to which two conversations share stored events. Two imports of a source
    share no stored events, but their first events with a time are equal: return 0 for them. For any
    other two conversations, return None.
    """
    reach = _reach(store, one)
    other_reach = _reach(store, other)
    shared = [min(reach[name], other_reach[name]) for name in reach.keys() & other_reach.keys()]
    first = _first_with_a_time(store, one)
    other_first = _first_with_a_time(store, other)
    return max(shared, default=0 if first is not None and first == other_first else None)


def _first_with_a_time(store: Store, name: str) -> Event | None:
    events = store.events(name, 0, _LOOKED_AT)
    return next(
        (
            event
            for event in events
            if event.timestamp or (event.origin is not None and event.origin.time)
        ),
        None,
    )


def _reach(store: Store, conversation: str) -> dict[str, int]:
    reach = {
        border.parent: border.version
        for border in store.query(conversation, lambda read: read.lineage)
    }
    return {**reach, conversation: store.version(conversation)}
