"""Recognize lines of Claude Code, and the session that they belong to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from foldlog._formats.format import LOOK_AT, Lookalike

_TYPES = frozenset(("user", "assistant", "system", "progress", "summary", "file-history-snapshot", "queue-operation"))
_KEYS = ("sessionId", "uuid", "leafUuid", "messageId")


def matches(record: Any) -> bool:
    """Return whether ``record`` has a type and a field that only Claude Code's lines have."""
    return accepts(record) and record["type"] in _TYPES and any(key in record for key in _KEYS)


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a type."""
    return type(record) is dict and type(record.get("type")) is str


def conversation(records: Iterable[Any]) -> str | None:
    """Return the session that the first line names, with the sub-agent if the line belongs to one."""
    for record in islice(records, LOOK_AT):
        session = record.get("sessionId") if type(record) is dict else None
        if type(session) is str and session:
            agent = record.get("agentId")
            if record.get("isSidechain") is not True:
                return session
            return f"{session}/agent-{agent}" if type(agent) is str and agent else None
    return None


def source_id(record: Any) -> Any:
    """Return the id of a line, or None."""
    return record.get("uuid") if type(record) is dict else None


_QWEN_SUBTYPES = frozenset(("chat_compression", "slash_command", "ui_telemetry", "at_command", "attribution_snapshot"))


def _is_qwen(record: Any) -> bool:
    """Return whether a record is a line of Qwen Code, whose messages have Google's form: parts, not content."""
    if not accepts(record) or type(record.get("sessionId")) is not str:
        return False
    message = record.get("message")
    if type(message) is dict and type(message.get("parts")) is list and "content" not in message:
        return True
    subtype = record.get("subtype")
    is_event = record["type"] == "system" and type(subtype) is str and subtype in _QWEN_SUBTYPES
    return record["type"] == "tool_result" or is_event


LOOKALIKES = (Lookalike("Qwen Code", _is_qwen),)
