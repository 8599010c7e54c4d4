"""Masks: old, long observations are shown as one line. No event is forgotten, and the log does not change.

A masked event keeps its id, its place and its call. So it is still the result of its call, can be forgotten by its id,
and is not taken for a summary. It is marked in ``meta`` under ``MASKED``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from foldlog.condensers.base import Step
from foldlog.condensers.errors import InvalidCondenser
from foldlog.eventstore import Event
from foldlog.projections import View

MASKED = "masked_by"
"""The key in a masked event's ``meta``; its value is the ``type`` of the condenser that masked it."""


def is_masked(event: Event) -> bool:
    """Return whether the content of this event in a View is masked."""
    return MASKED in event.meta


def check_window(attention_window: int) -> None:
    if attention_window < 0:
        raise InvalidCondenser(f"attention_window ({attention_window}) cannot be negative; 0 masks everything")


def masked(view: View, masks: Mapping[int, str], by: str, attention_window: int) -> Step:
    """Return ``view`` with the contents at these indices replaced, and a report on these events."""
    kept_from, made = view.kept_from, view.state.items.masks
    shown: dict[int, Event] = {}
    for index, content in masks.items():
        event = view.events[index]
        if kept_from is not None and event.id >= kept_from:
            continue
        before = made.get((by, content, event.id))
        if before is None or before[0] is not event:
            mask = replace(event, content=content, meta={**event.meta, MASKED: by})
            before = made[by, content, event.id] = event, mask
        shown[index] = before[1]
    if not shown:
        return Step(view)
    report = {
        "condenser": by,
        "rule": {"attention_window": attention_window},
        "masked": len(shown),
        "newest_masked": view[max(shown)].id,
    }
    return Step(view.with_masks(shown), (report,))
