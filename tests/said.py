"""What a user says, and the ids of events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog.eventstore import Event, Message

__all__ = ["ids", "said"]


def said(text: str, **fields: Any) -> Message:
    return Message(source="user", content=text, **fields)


def ids(events: Iterable[Event]) -> list[int]:
    return [event.id for event in events]
