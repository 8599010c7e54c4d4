"""What a JSON value looks like: a record of which format, or a container of records, and whose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from foldlog.formats import claude_code, codex, openai_chat, openhands_v0, openhands_v1, swe_agent

__all__ = [
    "CONTAINER_KEYS",
    "LOOK_AT",
    "Looks",
    "format_of",
    "format_of_all",
    "format_of_container",
    "looks",
    "name_in",
    "name_of",
]

CONTAINER_KEYS = ("events", "history", "trajectory", "messages", "traj")
"""Under these an object may hold a history's records."""

LOOK_AT = 50
"""A format shows in the first records, or it does not."""

_V0_NAMES = frozenset(
    (
        *("message", "system", "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "null"),
        *("call_tool_mcp", "mcp", "delegate", "think", "finish", "reject", "recall", "change_agent_state", "error"),
        *("condensation", "condensation_request", "task_tracking", "loop_recovery", "agent_state_changed", "condense"),
    )
)
_V1_ENDINGS = ("Event", "Observation", "Condensation", "CondensationRequest")
_CLAUDE_TYPES = frozenset(
    ("user", "assistant", "system", "progress", "summary", "file-history-snapshot", "queue-operation")
)
_CLAUDE_KEYS = ("sessionId", "uuid", "leafUuid", "messageId")
_CODEX_TYPES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))


def _is_v0(record: dict[str, Any]) -> bool:
    action, observation = record.get("action"), record.get("observation")
    if type(action) is str:
        return action in _V0_NAMES or type(record.get("args")) is dict
    return type(observation) is str and (observation in _V0_NAMES or "content" in record or "extras" in record)


def _is_v1(record: dict[str, Any]) -> bool:
    kind = record.get("kind")
    if type(kind) is not str:
        return False
    return kind.endswith(_V1_ENDINGS) or ("id" in record and ("timestamp" in record or "source" in record))


def _is_chat(record: dict[str, Any]) -> bool:
    return type(record.get("role")) is str and ("content" in record or "tool_calls" in record)


def _is_claude_code(record: dict[str, Any]) -> bool:
    type_ = record.get("type")
    return type(type_) is str and type_ in _CLAUDE_TYPES and any(key in record for key in _CLAUDE_KEYS)


def _is_codex(record: dict[str, Any]) -> bool:
    type_ = record.get("type")
    return type(type_) is str and type_ in _CODEX_TYPES and type(record.get("payload")) is dict


def _is_swe_agent(record: dict[str, Any]) -> bool:
    return type(record.get("role")) is str and type(record.get("agent")) is str


_LOOKS: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    swe_agent.FORMAT: _is_swe_agent,  # first: its messages are chat messages too
    openhands_v0.FORMAT: _is_v0,
    openhands_v1.FORMAT: _is_v1,
    openai_chat.FORMAT: _is_chat,
    claude_code.FORMAT: _is_claude_code,
    codex.FORMAT: _is_codex,
}


Looks = Callable[[Any], str | None]
"""Tells of which format a value is a record, or None."""


def looks(format: str = "auto") -> Looks:
    """How to tell records: of whichever format, or what can pass for a record of this one."""
    if format == "auto":
        return format_of
    accepts = _ACCEPTS[format]
    return lambda record: format if accepts(record) else None


def format_of(record: Any) -> str | None:
    """The format that ``record`` is most likely a record of, or None."""
    if type(record) is list:  # an action with its observation, in V0's oldest files
        return openhands_v0.FORMAT if record and all(type(it) is dict and _is_v0(it) for it in record) else None
    if type(record) is not dict:
        return None
    return next((format for format, looks in _LOOKS.items() if looks(record)), None)


def format_of_all(records: Iterable[Any], looks: Looks = format_of) -> str | None:
    """The format of the first of ``records`` that has one, looking at the first few."""
    return next((format for record in islice(records, LOOK_AT) if (format := looks(record)) is not None), None)


def format_of_container(lists: Mapping[str, Iterable[Any]], looks: Looks) -> tuple[str, str] | None:
    """Of the arrays in an object, by their keys: the key of the history's records, and their format."""
    for key in CONTAINER_KEYS:
        if key in lists and (format := format_of_all(lists[key], looks)) is not None:
            return key, format
    return None


def _accepts_v0(record: Any) -> bool:
    members = record if type(record) is list else [record]
    return bool(members) and all(
        type(it) is dict and (type(it.get("action")) is str or type(it.get("observation")) is str) for it in members
    )


def _has_role(record: Any) -> bool:
    return type(record) is dict and type(record.get("role")) is str


def _has_type(record: Any) -> bool:
    return type(record) is dict and type(record.get("type")) is str


_ACCEPTS: Mapping[str, Callable[[Any], bool]] = {
    openhands_v0.FORMAT: _accepts_v0,
    openhands_v1.FORMAT: lambda record: type(record) is dict and type(record.get("kind")) is str,
    openai_chat.FORMAT: _has_role,
    swe_agent.FORMAT: _has_role,
    claude_code.FORMAT: _has_type,
    codex.FORMAT: _has_type,
}


def name_in(format: str, records: Iterable[Any]) -> str | None:
    """The name that the first of ``records`` give their history.

    Lines of Claude Code name their session. Those of a side chain name the one that it is a part of. A Codex rollout
    begins with its session's id.
    """
    if format == codex.FORMAT:
        return next((name for record in islice(records, LOOK_AT) if (name := _session(record)) is not None), None)
    if format != claude_code.FORMAT:
        return None
    for record in islice(records, LOOK_AT):
        session = record.get("sessionId") if type(record) is dict else None
        if type(session) is str and session:
            return None if record.get("isSidechain") is True else session
    return None


def _session(record: Any) -> str | None:
    about = record.get("payload") if type(record) is dict and record.get("type") == "session_meta" else None
    name = about.get("id") if type(about) is dict else None
    return name if type(name) is str and name else None


def name_of(container: Mapping[str, Any], stem: str) -> str | None:
    """The name that a container gives its history. A number says little: the file's ``stem`` goes before it."""
    about = container.get("conversation")
    for named in (container, about if type(about) is dict else {}):
        for key in ("conversation", "conversation_id", "session_id", "instance_id", "id"):
            name = named.get(key)
            if type(name) is str and name:
                return name
    numbers = [container[key] for key in ("task_id", "question_id", "trial") if key in container]
    if numbers and all(type(number) is int or type(number) is str for number in numbers):
        return ":".join([stem, *map(str, numbers)])
    return None
