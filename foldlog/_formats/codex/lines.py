"""Read the lines of a rollout, of today and of the first releases.

Since September 2025 a line is ``{"timestamp", "type", "payload"}``. Before that, the line was the payload itself: first
the session, which has no type, then items of the model's API one after the other, and between them ``{"record_type":
"state"}``. Such a *bare* line is read like the line that holds it today.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ENVELOPES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))
"""Types of lines with a payload."""


class Line(NamedTuple):
    """The type and the payload of a line."""

    type: str
    payload: Any


def line_of(record: dict[str, Any]) -> Line | None:
    """Return the type and the payload of a record, or None if it is not a line of a rollout."""
    kind = record.get("type")
    if type(kind) is str:
        is_bare = "payload" not in record and kind not in ENVELOPES
        return Line("response_item", record) if is_bare else Line(kind, record.get("payload"))
    if is_session(record):
        return Line("session_meta", record)
    state = record.get("record_type")
    return Line(state, record) if type(state) is str else None


def is_session(record: dict[str, Any]) -> bool:
    """Return whether a record is the first line of an old rollout."""
    return (
        "type" not in record
        and "role" not in record
        and "instructions" in record
        and type(record.get("id")) is str
        and type(record.get("timestamp")) is str
    )


def parent_of(session: Any) -> str | None:
    """Return the session that started this one as a sub-agent."""
    about: Any = session
    for key in ("source", "subagent", "thread_spawn", "parent_thread_id"):
        about = about.get(key) if type(about) is dict else None
    if about is None and type(session) is dict:
        about = session.get("parent_thread_id")
    return about if type(about) is str and about else None
