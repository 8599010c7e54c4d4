"""Which JSON values are records of a Codex rollout, and of which session."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from foldlog.formats.format import LOOK_AT

__all__ = ["accepts", "conversation", "matches"]

_TYPES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))


def matches(record: Any) -> bool:
    """Return whether ``record`` has one of Codex's types and a payload."""
    return accepts(record) and record["type"] in _TYPES and type(record.get("payload")) is dict


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a type."""
    return type(record) is dict and type(record.get("type")) is str


def conversation(records: Iterable[Any]) -> str | None:
    """Return the id of the session that the rollout begins with."""
    return next((name for record in islice(records, LOOK_AT) if (name := _session(record)) is not None), None)


def _session(record: Any) -> str | None:
    about = record.get("payload") if type(record) is dict and record.get("type") == "session_meta" else None
    name = about.get("id") if type(about) is dict else None
    return name if type(name) is str and name else None
