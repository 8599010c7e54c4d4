"""This module finds the event at which two conversations with shared events diverge."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foldlog._reports.answers.runs import DivergenceDocument
from foldlog._reports.words.event_json import event_document
from foldlog.eventstore import Event, Logged, Store

if TYPE_CHECKING:
    from foldlog._reports.figures.prices import Prices

_LOOKED_AT = 50
"""The number of events among which a conversation has its first event with a time."""


def find_divergence(
    store: Store, one: str, other: str, shared: int, prices: Prices
) -> DivergenceDocument:
    """Find the first different event at or after the version ``shared``. Cost: the function reads
    the events of both conversations.
    """
    from foldlog._reports.runs import run_of

    version = store.version(one)
    other_version = store.version(other)
    place: int | None = None
    entry: Logged | None = None
    other_entry: Logged | None = None
    pairs = zip_longest(store.log(one, shared, version), store.log(other, shared, other_version))
    for number, (entry_here, entry_there) in enumerate(pairs, start=shared):
        if (
            entry_here is None
            or entry_there is None
            or not _are_equal(entry_here.event, entry_there.event)
        ):
            place = number
            entry = entry_here
            other_entry = entry_there
            break
    return DivergenceDocument(
        conversation=one,
        version=version,
        other=other,
        other_version=other_version,
        common_past=shared,
        first_divergent_event=place,
        event=None if entry is None else event_document(entry.event, entry.recorded_at),
        other_event=(
            None
            if other_entry is None
            else event_document(other_entry.event, other_entry.recorded_at)
        ),
        runs=(run_of(store, one, prices), run_of(store, other, prices)),
    )


def _are_equal(one: Event, other: Event) -> bool:
    """Compare events without their times, because a replay records its own times."""
    return replace(one, timestamp=None) == replace(other, timestamp=None)


def common_past(store: Store, one: str, other: str) -> int | None:
    """Return the version up to which two conversations share stored events. Two imports of a source
    share no stored events, but their first events with a time are equal: return 0 for them. For any
    other two conversations, return None.
    """
    reach = _reach(store, one)
    other_reach = _reach(store, other)
    shared = [min(reach[name], other_reach[name]) for name in reach.keys() & other_reach.keys()]
    if shared:
        return max(shared)
    first = _first_with_a_time(store, one)
    other_first = _first_with_a_time(store, other)
    return 0 if first is not None and first == other_first else None


def _first_with_a_time(store: Store, name: str) -> Event | None:
    """Return the first event with a time, of the first ``_LOOKED_AT`` events, or None."""
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
    """Return the conversations that store events of ``conversation``, each with the version up to
    which it does.
    """
    reach = {
        border.parent: border.version
        for border in store.query(conversation, lambda read: read.lineage)
    }
    return {**reach, conversation: store.version(conversation)}
