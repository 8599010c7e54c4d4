"""The fields of messages, as OpenAI defines them. Agents whose messages have more fields say so in a class below it."""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import Source

NAME = "openai-chat"

_SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}


def matches(record: Any) -> bool:
    """Return whether ``record`` has a role and a content or calls. A message of SWE-agent also names its agent."""
    return accepts(record) and ("content" in record or "tool_calls" in record) and type(record.get("agent")) is not str


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a role."""
    return type(record) is dict and type(record.get("role")) is str


class OpenAI:
    """Messages as OpenAI defines them. A dialect may remember earlier messages."""

    format = NAME

    def speaker(self, message: dict[str, Any]) -> Source:
        """Return the source of a message that neither calls nor answers."""
        return _SPEAKERS.get(message["role"], "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the calls that a tool's message answers."""
        call_id = message.get("tool_call_id")
        return [call_id] if type(call_id) is str else []

    def written(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message from the message that OpenAI would have."""
        return message

    def remember(self, message: dict[str, Any]) -> None:
        """Remember what later messages need."""
