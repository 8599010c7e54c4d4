"""An event as JSON, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventstore import Event

__all__ = ["event_document"]


def event_document(event: Event) -> dict[str, Any]:
    """Return the event as it is stored, with its id; an unknown event as its writer wrote it."""
    import json

    import msgspec

    from eventstore import UnknownEvent

    if isinstance(event, UnknownEvent):
        return {"id": event.id, "schema": event.stored_schema, **json.loads(event.body), "kind": event.stored_kind}
    fields: dict[str, Any] = msgspec.to_builtins(event)
    return {"id": event.id, **fields}
