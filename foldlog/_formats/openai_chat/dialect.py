"""The interface for messages of an agent that have more fields than OpenAI's."""

from __future__ import annotations

from typing import Any, Protocol

from foldlog.eventstore import Event, Source

NAME = "openai-chat"

SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}


class Dialect(Protocol):
    """The fields that the messages of an agent have in addition to OpenAI's. It may remember earlier messages."""

    @property
    def format(self) -> str: ...

    def speaker(self, message: dict[str, Any]) -> Source:
        """Return the source of a message that neither calls nor answers."""

    def answers(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the calls that a tool's message answers."""

    def written(self, message: dict[str, Any], events: list[Event]) -> dict[str, Any]:
        """Return the message of these events from the message that OpenAI would have."""

    def remember(self, message: dict[str, Any]) -> None:
        """Remember what later messages need."""


class OpenAI:
    """Messages as OpenAI defines them."""

    format = NAME

    def speaker(self, message: dict[str, Any]) -> Source:
        return SPEAKERS.get(message["role"], "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        call_id = message.get("tool_call_id")
        return [call_id] if type(call_id) is str else []

    def written(self, message: dict[str, Any], events: list[Event]) -> dict[str, Any]:
        return message

    def remember(self, message: dict[str, Any]) -> None:
        pass
