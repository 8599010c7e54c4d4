"""Put the summaries of a View in the places of the messages that a runtime would send its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from foldlog.adapters._without_sdk.record_lists import Span
from foldlog.eventstore import CondensationSummary
from foldlog.projections import View, well_formed

M = TypeVar("M")


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
