"""The interface for messages of an agent that have more fields than OpenAI's."""

from __future__ import annotations

from typing import Any, Protocol

from foldlog.eventstore import Event, Source

NAME = "openai-chat"

SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}

Marks = dict[str, Any]
MARKS = ("calls", "answers", "function")
"""Keys of ``origin.rest`` that say how to predict the message, on the first event made of it:

    calls     how many calls it makes, where it is not one
    answers   how many calls it answers, where it is not one
    function  its call stands in ``function_call``, as before there were tools
"""


class Dialect(Protocol):
    """The fields that the messages of an agent have in addition to OpenAI's. It may remember earlier messages."""

    @property
    def format(self) -> str: ...

    @property
    def marks(self) -> tuple[str, ...]:
        """The keys of ``origin.rest`` for the marks of this dialect."""

    def speaker(self, message: dict[str, Any]) -> Source:
        """Return the source of a message that neither calls nor answers."""

    def answers(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the calls that a tool's message answers."""

    def mark(self, message: dict[str, Any], marks: Marks) -> None:
        """Add the marks that predict the message."""

    def predicted(self, message: dict[str, Any], events: list[Event], marks: Marks) -> dict[str, Any]:
        """Predict the message from the message that OpenAI would have."""

    def restart(self) -> None:
        """Forget the content of earlier messages."""

    def remember(self, message: dict[str, Any]) -> None:
        """Remember the content from which later messages are predicted."""


class OpenAI:
    """Messages as OpenAI defines them."""

    format = NAME
    marks = ()

    def speaker(self, message: dict[str, Any]) -> Source:
        return SPEAKERS.get(message["role"], "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        call_id = message.get("tool_call_id")
        return [call_id] if type(call_id) is str else []

    def mark(self, message: dict[str, Any], marks: Marks) -> None:
        pass

    def predicted(self, message: dict[str, Any], events: list[Event], marks: Marks) -> dict[str, Any]:
        return message

    def restart(self) -> None:
        pass

    def remember(self, message: dict[str, Any]) -> None:
        pass
