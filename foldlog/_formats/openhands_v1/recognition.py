"""Recognize V1 records."""

from __future__ import annotations

from typing import Any

_ENDINGS = ("Event", "Observation", "Condensation", "CondensationRequest")


def matches(record: Any) -> bool:
    """Return whether ``record`` has a known kind, or the fields that every event has."""
    if not accepts(record):
        return False
    return record["kind"].endswith(_ENDINGS) or ("id" in record and ("timestamp" in record or "source" in record))


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a kind."""
    return type(record) is dict and type(record.get("kind")) is str
