"""The ids of an imported history in a conversation that has receipts of redactions between its events.

A source knows nothing of redactions. So its event n has the id n plus the number of receipts before it, and the ids
that its events name move too. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.events import (
    NOT_RECORDED,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Retraction,
    summary_id,
    summary_of,
)

_V0 = "openhands-v0"
"""The format whose condensations name ids of the source."""


def place_of(event_id: int, receipts: Sequence[int]) -> int:
    """Return the id in the conversation of the event of the source with this id. ``receipts`` are ascending ids."""
    for receipt in receipts:
        if receipt > event_id:
            break
        event_id += 1
    return event_id


def ids_moved(encoded: Encoded, receipts: Sequence[int]) -> Encoded:
    """Return the event with the ids that it and the events that it names have in the conversation."""
    if not receipts:
        return encoded
    event = encoded.event
    changed = _changed(event, receipts)
    return encode(replace(event, id=NOT_RECORDED, **changed)) if changed else encoded


def _changed(event: Event, receipts: Sequence[int]) -> dict[str, Any]:
    """Return the fields in which ids have moved."""
    moved: dict[str, Any] = {}
    if event.cause is not None:
        moved["cause"] = place_of(event.cause, receipts)
    match event:
        case Retraction(version=version):
            moved["version"] = place_of(version, receipts)
        case CondensationSummary(summary_of=condensation) if condensation is not None:
            moved["summary_of"] = place_of(condensation, receipts)
        case CondensationAction() if event.origin is None or event.origin.format != _V0:
            start, end = event.forgotten_events_start_id, event.forgotten_events_end_id
            if start is not None and end is not None:
                moved["forgotten_events_start_id"] = place_of(start, receipts)
                moved["forgotten_events_end_id"] = place_of(end, receipts)
            else:
                moved["forgotten_event_ids"] = tuple(_forgotten(each, receipts) for each in event.given_ids or ())
        case DocumentChanges(changed=changes, others=others):
            moved["changed"] = {name: _change(change, receipts) for name, change in changes.items()}
            moved["others"] = {name: place_of(event_id, receipts) for name, event_id in others.items()}
    given = {**moved, "forgotten_event_ids": event.given_ids} if isinstance(event, CondensationAction) else {}
    return {name: value for name, value in moved.items() if value != given.get(name, getattr(event, name))}


def _forgotten(event_id: int, receipts: Sequence[int]) -> int:
    if event_id < NOT_RECORDED:
        return summary_id(place_of(summary_of(event_id), receipts))
    return place_of(event_id, receipts)


def _change(change: Mapping[str, Any], receipts: Sequence[int]) -> dict[str, Any]:
    return {**change, "base": place_of(change["base"], receipts)} if "base" in change else dict(change)
