"""What a user says."""

from __future__ import annotations

from foldlog.eventstore import Message

__all__ = ["said"]


def said(text: str) -> Message:
    return Message(source="user", content=text)
