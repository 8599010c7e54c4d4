"""Find the packed records that repeat the content of an event, so that a redaction takes them with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foldlog._formats.live import recorded
from foldlog._formats.packing import json_of, texts_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Event,
    Observation,
    Store,
    can_be_redacted,
    summary_of,
)

_TEXT_MIN = 16
"""Shorter texts say little, and are in many records. Records of the same call are found whatever their texts."""


def imported_event(store: Store, conversation: str, event_id: int) -> Event | None:
    """Return an event with a record of its source that can be redacted; None for any other one."""
    wanted = summary_of(event_id) if event_id < -1 else event_id
    event = next(iter(store.events(conversation, wanted, wanted + 1)), None) if wanted >= 0 else None
    if event is None or event.origin is None or not can_be_redacted(event):
        return None
    is_summary = isinstance(event, CondensationAction) and bool(event.summary)
    return event if is_summary or event_id >= -1 else None


def records_with(gone: Sequence[Event], events: Iterable[Event]) -> list[int]:
    """Return the ids of those of these events whose packed records may repeat the content of imported events: they were
    made of the same record, they belong to the same response or call, or the record holds one of their texts.

    Cost: the events, and unpacking their records.
    """
    texts = {text for event in gone for text in texts_of(event, _TEXT_MIN)}
    names = {name for event in gone for name in _names(event)}
    ids = {event.id for event in gone}
    near, origin = ids | {event.cause for event in gone}, gone[0].origin
    found: list[int] = []
    for record, made in recorded("" if origin is None else origin.format, events):
        is_near = any(each.id in near or each.cause in ids for each in made)
        if is_near or any(not names.isdisjoint(_names(each)) for each in made):
            found.append(made[0].id)
        elif texts:
            text = json_of(record)
            if any(each in text for each in texts):
                found.append(made[0].id)
    return [each for each in found if each not in ids]


def _names(event: Event) -> set[str | None]:
    if isinstance(event, Action):
        return {event.call_id, event.response_id} - {None}
    return {event.call_id} - {None} if isinstance(event, Observation) else set()
