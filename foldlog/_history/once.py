"""Do a piece of work once and record its result. A durable engine may run a step again, and then
gets the recorded result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foldlog.eventstore import (
    Event,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Recorded,
)

if TYPE_CHECKING:
    from foldlog._history.log import HistoryLog


def append_once(history: HistoryLog, idempotency_key: str, result: Any) -> tuple[Recorded, ...]:
    """Append a result under a key, and return its events. If another worker appended its result
    first, return the events of that worker.
    """
    append = history.append if _are_events(result) else history.append_reply
    try:
        return append(result, idempotency_key=idempotency_key)
    except (IdempotencyConflict, InvalidArgument, InvalidEvent):
        recorded = history.recorded(idempotency_key)
        if not recorded:
            raise
        return recorded


def _are_events(result: Any) -> bool:
    """Return whether a result is one or several events or chat messages, and not a reply."""
    if isinstance(result, list | tuple):
        return bool(result) and all(map(_are_events, result))
    return isinstance(result, Event) or (
        isinstance(result, Mapping) and result.get("role") not in (None, "assistant")
    )
