"""Do a work once and record it: for steps that may run again, as those of durable engines do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foldlog.eventstore import Event, IdempotencyConflict, Recorded

if TYPE_CHECKING:
    from foldlog._history.history import History


def append_once(history: History, idempotency_key: str, made: Any) -> tuple[Recorded, ...]:
    """Append what a work returned: events, a chat message that is not a model's, or a model's
    reply. Where another worker was first, return what it recorded.
    """
    append = history.append if _are_events(made) else history.append_reply
    try:
        return append(made, idempotency_key=idempotency_key)
    except IdempotencyConflict:
        return history.recorded(idempotency_key)


def _are_events(made: Any) -> bool:
    if isinstance(made, list | tuple):
        return bool(made) and all(map(_are_events, made))
    return isinstance(made, Event) or (
        isinstance(made, Mapping) and made.get("role") not in (None, "assistant")
    )
