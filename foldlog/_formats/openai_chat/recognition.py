"""Recognize chat messages."""

from __future__ import annotations

from typing import Any


def matches(record: Any) -> bool:
    """Return whether ``record`` has a role and a content or calls. A message of SWE-agent also names its agent."""
    return accepts(record) and ("content" in record or "tool_calls" in record) and type(record.get("agent")) is not str


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a role."""
    return type(record) is dict and type(record.get("role")) is str
