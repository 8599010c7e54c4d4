"""Recognize V0 records."""

from __future__ import annotations

from typing import Any

_NAMES = frozenset(
    (
        *("message", "system", "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "null"),
        *("call_tool_mcp", "mcp", "delegate", "think", "finish", "reject", "recall", "change_agent_state", "error"),
        *("condensation", "condensation_request", "task_tracking", "loop_recovery", "agent_state_changed", "condense"),
    )
)


def matches(record: Any) -> bool:
    """Return whether ``record`` is an action or an observation, or an array of them, as in the oldest files."""
    if type(record) is list:
        return bool(record) and all(map(_matches_one, record))
    return _matches_one(record)


def _matches_one(record: Any) -> bool:
    if type(record) is not dict or "role" in record:  # a message of SWE-agent has an action too
        return False
    action, observation = record.get("action"), record.get("observation")
    if type(action) is str:
        return action in _NAMES or type(record.get("args")) is dict
    return type(observation) is str and (observation in _NAMES or "content" in record or "extras" in record)


def accepts(record: Any) -> bool:
    """Return whether ``record`` names an action or an observation of any kind, or is an array of such objects."""
    members = record if type(record) is list else [record]
    return bool(members) and all(
        type(it) is dict and (type(it.get("action")) is str or type(it.get("observation")) is str) for it in members
    )
